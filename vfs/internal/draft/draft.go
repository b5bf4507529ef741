// Package draft stores the changes of a staged root, whose own directory is called the source.
// A store has a directory tree, the upper, with the files that programs made or changed. Its
// log describes the files that the source had under the names that programs changed or removed.
//
// # Promises
//
// A record survives a kill of the process once Note has returned, and a power loss once Sync or
// Commit has returned. A record is in the log before its change is made. A damaged line ends
// the log, and nothing after it is believed. After a power loss, changes since the last commit
// are marked as unsure until they are cleared.
//
// # Not promised
//
// The package makes no change in upper/ until it removes the store, with one exception: a walk
// briefly changes the mode of a directory whose mode keeps its owner out. The package never opens
// the source. It serialises its own calls, but not the operations around them.
package draft

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Meta says whose changes a store keeps.
type Meta struct {
	Version int            `json:"version"`
	Root    guard.RootName `json:"root"`
	Path    string         `json:"path"` // of the source, absolute and without links
	ID      rules.Identity `json:"id"`   // of the source, as the last session found it
	Subject guard.Subject  `json:"subject"`
	Session string         `json:"session"` // the last session that opened the store
	Created time.Time      `json:"created"`
	// Patterns are the root's patterns in the last session; nil in a store of an older version.
	Patterns *rules.Patterns `json:"patterns,omitempty"`
}

// The kinds of a Base.
const (
	Nothing byte = 0
	File    byte = 'f'
	Dir     byte = 'd'
	Link    byte = 'l'
	Other   byte = 'o' // a device, FIFO or socket
)

// Base describes the file that the source had at a path when a program first changed it. The
// zero Base says that nothing was there.
type Base struct {
	Kind         byte
	Ino          uint64
	Birth        int64 // this and the next two: nanoseconds since 1970
	Mtime, Ctime int64
	Size         int64
	Mode         uint32   // with the type
	Hash         [32]byte // SHA-256 of the contents, or of a link's target; zero if it was not taken
}

// Record holds the state of one path of the source.
type Record struct {
	Path     string // relative to the source
	Whiteout bool   // nothing of the source is seen at the path and below it
	Base     Base
}

// Step is a step of the owner's apply that is about to begin: a new file is exchanged with a file of
// the source, or a file of the source is removed.
type Step struct {
	Path string // relative to the source
	Temp string // a temporary name in the same directory: first of the new file, then of the old one
	Old  Base   // the file at Path before the step
	New  Base   // the file at Temp before an exchange; zero for a removal, which moves Path to Temp
	// Making says that the file at Temp is not complete, and was not exchanged. New is zero.
	Making bool
}

// Store is an open store. Its lock is held until Close.
type Store struct {
	dir       string
	meta      Meta
	boot      string // the machine's present boot id
	continued bool
	lock      int
	upper     int
	tmp       int

	mu      sync.RWMutex
	records map[string]Record
	hidden  map[string]bool // paths of whiteouts
	names   upperDir        // the names in the upper
	files   int             // number of the files in names
	moving  bool            // names may be out of date: see MoveUpper
	steps   map[string]Step // that have not ended, by path
	unsure  map[string]bool // paths of records
	lost    map[uint64]bool // inodes of upper files that are unsure: see Unsure
	damaged string

	points checkpoints
	onHide func(path string, isHidden bool) // see OnHide

	log logFile
	// untouched is unset by whatever changes the store: see IsTouched.
	untouched atomic.Bool

	size sizes
}

// Dir is the store's directory. Meta says whose changes it keeps.
func (s *Store) Dir() string { return s.dir }
func (s *Store) Meta() Meta  { return s.meta }

// Continued reports whether the store existed before it was opened.
func (s *Store) Continued() bool { return s.continued }

// Damaged says which part of the log was lost; "" if none was.
func (s *Store) Damaged() string { return s.damaged }

// Upper and Tmp are descriptors of the tree's top and of the directory for copies in progress.
// Both lie in one file system. Close closes them.
func (s *Store) Upper() int { return s.upper }
func (s *Store) Tmp() int   { return s.tmp }

// Locate returns the longest part of rel that is a directory of the upper: rel itself, a path
// above it, or "" for the upper's top. isHidden reports whether a whiteout at rel or above
// hides the source's file. If mayHave is false, the upper has nothing at rel, and only directories
// at the paths above rel.
func (s *Store) Locate(rel string) (upper string, isHidden, mayHave bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	length, mayHave := s.names.locate(rel)
	if len(s.hidden) > 0 {
		for end := range ends(rel) {
			isHidden = isHidden || s.hidden[rel[:end]]
		}
	}
	return rel[:length], isHidden, mayHave || s.moving
}

// HasWhiteouts reports whether a whiteout hides any path.
func (s *Store) HasWhiteouts() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.hidden) > 0
}

// ends yields the length of each leading path of rel, and of rel itself.
func ends(rel string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := 0; rel != ""; at++ {
			next := strings.IndexByte(rel[at:], '/')
			if next < 0 {
				yield(len(rel))
				return
			}
			if at += next; !yield(at) {
				return
			}
		}
	}
}

// RecordOf returns the record of a path.
func (s *Store) RecordOf(path string) (Record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.records[path]
	return r, ok
}

// Records yields the present records, sorted by path.
func (s *Store) Records() iter.Seq[Record] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := slices.SortedFunc(maps.Values(s.records), func(a, b Record) int { return strings.Compare(a.Path, b.Path) })
	return slices.Values(list)
}

// Unsure reports whether the log and the upper may disagree about a path after a power loss.
// ino is the inode of the upper's file, 0 if there is none.
func (s *Store) Unsure(path string, ino uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.unsure[path] || ino != 0 && s.lost[ino]
}

// OpenSteps returns the steps that BeginSteps recorded and EndStep did not end, sorted by path.
func (s *Store) OpenSteps() []Step {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.steps), func(a, b Step) int { return strings.Compare(a.Path, b.Path) })
}

// Note appends records to the log, in one write. The first record of a path sets its base;
// later ones can only add the whiteout. The caller may make the recorded change only after Note has
// returned.
func (s *Store) Note(list ...Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []line
	for _, r := range list {
		if old, ok := s.records[r.Path]; ok && (old.Whiteout || !r.Whiteout) {
			continue
		}
		lines = append(lines, recordLine(r))
	}
	return s.append(lines)
}

// Replace appends a record that replaces the path's record, in one write.
func (s *Store) Replace(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []line{{Clear: pathOf(r.Path)}, recordLine(r)}
	if s.unsure[r.Path] {
		lines = append(lines, line{Unsure: pathOf(r.Path)})
	}
	return s.append(lines)
}

// Clear removes the records of paths. At a path where the upper has no file, programs see the
// source's file again.
func (s *Store) Clear(paths ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []line
	for _, p := range paths {
		if _, ok := s.records[p]; ok {
			lines = append(lines, line{Clear: pathOf(p)})
		}
	}
	return s.append(lines)
}

// BeginSteps records steps that are about to begin, in one write.
func (s *Store) BeginSteps(list ...Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := make([]line, len(list))
	for i, p := range list {
		lines[i] = stepLine(p)
	}
	return s.append(lines)
}

// EndStep records that the step of BeginSteps at a path is done, or was taken back.
func (s *Store) EndStep(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.append([]line{{Placed: pathOf(path)}})
}

// OnHide makes the store call f when a whiteout stops hiding the source's file at a path. The store
// also calls f when a whiteout begins to hide a path at which the upper has no directory. f is
// called with the store locked, and must not use the store.
func (s *Store) OnHide(f func(path string, isHidden bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onHide = f
}

// setHidden records whether a whiteout hides a path.
func (s *Store) setHidden(path string, isSet bool) {
	if s.hidden[path] == isSet || path == "" {
		return
	}
	if length, _ := s.names.locate(path); s.onHide != nil && (length < len(path) || !isSet) {
		s.onHide(path, isSet)
	}
	if isSet {
		s.hidden[path] = true
	} else {
		delete(s.hidden, path)
	}
}

// Sync writes the log to the disk, if a line was appended since the last Sync.
func (s *Store) Sync() error { return s.log.sync() }

// commitMargin is how far file times can lag behind the clock: the kernel stamps files with the
// time of its last tick.
const commitMargin = 20 * time.Millisecond

// Commit writes the upper directory and the log to the disk. Everything written before Commit was
// called then survives a crash of the machine. changing, unless nil, is a lock that is held from
// the Note of a change of names until the change is made. So no record survives whose change is
// lost.
func (s *Store) Commit(changing sync.Locker) error {
	if !s.log.stale.Swap(false) {
		return nil
	}
	if changing != nil {
		changing.Lock()
	}
	s.mu.RLock()
	l := line{Commit: time.Now().Add(-commitMargin).UnixNano(), Boot: s.boot, Upto: s.log.end}
	s.mu.RUnlock()
	if changing != nil {
		changing.Unlock()
	}
	err := s.commit(l)
	if err != nil {
		s.log.stale.Store(true)
	}
	return err
}

func (s *Store) commit(l line) error {
	if err := unix.Syncfs(s.upper); err != nil {
		return err
	}
	b, err := l.encode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	err = s.log.write(b)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.log.sync()
}
