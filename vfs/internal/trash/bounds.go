package trash

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Store has the state of the trashes that one tree uses.
type Store struct {
	isWritten func(file rules.Identity) bool

	mu    sync.Mutex                   // guards the fields below and their elements
	usage map[rules.Identity]*binUsage // by the identity of the trash's directory
	// written has files that were open for writing, or had another name, when they were kept. A
	// program that has such a file open can still write to it; see MayBeWritten.
	written map[rules.Identity]binEntry
}

// NewStore returns a Store. isWritten reports whether a file is open for writing.
func NewStore(isWritten func(file rules.Identity) bool) *Store {
	return &Store{isWritten: isWritten, usage: map[rules.Identity]*binUsage{}, written: map[rules.Identity]binEntry{}}
}

// binUsage is the space that a trash takes.
type binUsage struct {
	bytes    int64
	searched time.Time // when countEntry last ran Prune without an error; zero: never
	pruning  bool
}

// binEntry is an entry of the trash with the identity bin.
type binEntry struct {
	bin  rules.Identity
	name string
}

// maxWritten bounds the memory for Store.written, to about a megabyte.
const maxWritten = 4096

// noteWritten remembers a file that may still be written.
func (s *Store) noteWritten(id rules.Identity, e binEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.written) < maxWritten {
		s.written[id] = e
	}
}

// MayBeWritten reports whether a file is in a trash, and was open for writing or had another
// name when it was moved there.
func (s *Store) MayBeWritten(id rules.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.written[id]
	return ok
}

// forget drops an entry that has left its trash.
func (s *Store) forget(e binEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.written, func(_ rules.Identity, have binEntry) bool { return have == e })
}

// diskUsage returns how many bytes of the disk a file takes, without its holes. A remote source
// may not know that; for it diskUsage returns the length.
func (b *Bin) diskUsage(info *beneath.Info) int64 {
	if b.l.Source().Remote() {
		return info.Size
	}
	return min(info.Size, int64(info.Blocks)*512)
}

// searchEvery is how often a trash in use is searched for files that are too old, or have grown
// since they were kept.
const searchEvery = time.Minute

// countEntry counts a new entry. If the trash has become too large, or its last search is longer ago
// than searchEvery, countEntry calls Prune.
func (b *Bin) countEntry(size int64) {
	s := b.store
	s.mu.Lock()
	u := s.usage[b.id]
	if u == nil {
		u = &binUsage{}
		s.usage[b.id] = u
	}
	u.bytes += size + entryCost
	due := !u.pruning && (u.bytes > b.size || time.Since(u.searched) > searchEvery)
	u.pruning = u.pruning || due
	s.mu.Unlock()
	if !due {
		return
	}
	left, err := b.Prune()
	s.mu.Lock()
	if err == nil {
		u.bytes, u.searched = left, time.Now()
	}
	u.pruning = false
	s.mu.Unlock()
}

// largest returns the greatest size on disk of a file that is kept. An entry with such a file takes
// nine tenths of the bound, which is also the size to which Prune reduces a trash that exceeds the
// bound.
func (b *Bin) largest() int64 { return b.size - b.size/10 - entryCost }

// Prune removes the entries that are too old. If the entries exceed the bound, it removes the
// oldest until a tenth of the bound is free, so that it need not run again for every further entry.
// Before that, it removes each entry that has become too large to be kept, so that other entries
// need not make room for that entry. Prune returns the size of the remaining entries, in bytes.
func (b *Bin) Prune() (left int64, err error) {
	if b == nil {
		return 0, nil
	}
	ids, err := b.ids()
	if err != nil {
		return 0, err
	}
	sizes := make([]int64, len(ids))
	for i, id := range ids {
		sizes[i] = entryCost
		if info, err := beneath.StatIn(b.d, id); err == nil {
			size := b.diskUsage(&info)
			if size > b.largest() {
				b.drop(id)
				sizes[i] = 0
				continue
			}
			sizes[i] += size
		}
		left += sizes[i]
	}
	most := b.size
	if left > most {
		most -= most / 10
	}
	oldest := time.Now().Add(-b.age)
	for i, id := range ids {
		if at, _ := stampOf(id); left <= most && !at.Before(oldest) {
			break
		}
		b.drop(id)
		left -= sizes[i]
	}
	return left, nil
}

// ids returns the names of the entries, the oldest first. A note without a file is an empty
// entry: a dead daemon has left it, or it is being made.
func (b *Bin) ids() ([]string, error) {
	seen := map[string]bool{}
	err := beneath.EachName(b.d, func(e *beneath.Entry) bool {
		id := strings.TrimSuffix(e.Name, noteSuffix)
		if _, ok := stampOf(id); ok {
			seen[id] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(seen)), err
}

// stampOf returns the time at which the entry id was made. ok is false if id does not have the form
// of an entry's id.
func stampOf(id string) (at time.Time, ok bool) {
	if len(id) != len(stampFormat)+9 || id[len(stampFormat)] != '-' {
		return time.Time{}, false
	}
	at, err := time.Parse(stampFormat, id[:len(stampFormat)])
	return at, err == nil
}
