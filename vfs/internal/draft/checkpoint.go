package draft

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A checkpoint is the state of a store at a moment: the names of the upper directory, and the
// records. It is one file, which gets its name by a rename, so a checkpoint is complete or does
// not exist. The contents of the files are in a directory of objects. An object is a hard link to a
// file in the upper directory. Before a program changes that file, a copy replaces the object. So a
// checkpoint takes no room for unchanged files.

const (
	checkpointsName = "checkpoints"
	objectsName     = "objects"
	// MaxCheckpoints is the most checkpoints that a store has. The oldest is removed first. A
	// checkpoint that the owner asked for is removed only when there are no others.
	MaxCheckpoints = 50
	// keepEmptyFor is how long a store without changes is kept for its checkpoints.
	keepEmptyFor = 7 * 24 * time.Hour
)

// CauseAsked is the Cause of a checkpoint that the owner asked for. CauseStart is the Cause of
// checkpoint 0, which every store has and in which nothing is staged.
const (
	CauseAsked = "asked"
	CauseStart = "start"
)

// Checkpoint describes a checkpoint.
type Checkpoint struct {
	Number  int       `json:"number"` // 0 with CauseStart, otherwise from 1 on; a later one has a larger number
	Name    string    `json:"name,omitempty"`
	Cause   string    `json:"cause"` // the operation before which it was made, CauseAsked or CauseStart
	Time    time.Time `json:"time"`
	Changed int       `json:"changed"` // names that programs had changed, made or removed
	// Paths limits the checkpoint to these paths, everything below them and the directories above.
	// Without paths, the checkpoint covers the whole store.
	Paths [][]byte `json:"paths,omitempty"`
}

// Node is a name of the upper directory in a checkpoint.
type Node struct {
	Path   []byte `json:"p"`
	Object uint64 `json:"o,omitempty"` // 0: a directory, which has the fields below
	Mode   uint32 `json:"m,omitempty"`
	UID    uint32 `json:"u,omitempty"`
	GID    uint32 `json:"g,omitempty"`
	Mtime  int64  `json:"t,omitempty"`
	// Attrs are the extended attributes named user.*, and those that hold the ACLs.
	Attrs map[string][]byte `json:"a,omitempty"`
	// Apart says that an undo places a copy of the object at Path: the file of the object may have
	// other names in the upper by now.
	Apart bool `json:"-"`
}

// State is the state of a store that a checkpoint keeps.
type State struct {
	Nodes   []Node   // sorted by path
	Records []Record // sorted by path
}

// Equal reports whether two states show the same files. It ignores the times of directories.
func (s *State) Equal(other *State) bool {
	return slices.Equal(s.Records, other.Records) && slices.EqualFunc(s.Nodes, other.Nodes, func(a, b Node) bool {
		if !bytes.Equal(a.Path, b.Path) || a.Object != b.Object || a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID || len(a.Attrs) != len(b.Attrs) {
			return false
		}
		for name, v := range a.Attrs {
			if w, ok := b.Attrs[name]; !ok || !bytes.Equal(v, w) {
				return false
			}
		}
		return true
	})
}

// savedState is a State as the file of a checkpoint contains it.
type savedState struct {
	Nodes   []Node `json:"nodes"`
	Records []line `json:"records"`
}

// checkpoints has the data about a store's checkpoints. Store.mu guards it.
type checkpoints struct {
	objects int // descriptor of the directory of objects, -1 until there is one
	list    []Checkpoint
	// uses caches the objects of each checkpoint, by the checkpoint's number.
	uses map[int][]uint64
	// applied has the numbers of the checkpoints with notes of applies, in order. Some of these
	// checkpoints may have been removed: see dropApplied.
	applied []int
	next    uint64 // number of the next object
	// undoing is the number of the checkpoint to which an unfinished undo goes back; nil: none.
	undoing *int
}

// Checkpoints returns the checkpoints, the oldest first.
func (s *Store) Checkpoints() []Checkpoint {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.points.list)
}

// Objects returns the descriptor of the directory of objects, -1 if there is none.
func (s *Store) Objects() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.points.objects
}

// NewObject returns a number for a new object. It makes the directory of objects if necessary.
func (s *Store) NewObject() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.points
	if p.objects < 0 {
		if err := s.makeObjects(); err != nil {
			return 0, err
		}
	}
	p.next++
	return p.next, nil
}

func (s *Store) makeObjects() error {
	for _, name := range []string{checkpointsName, objectsName} {
		if err := makeDir(filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	path := filepath.Join(s.dir, objectsName)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	s.points.objects = fd
	return nil
}

// ObjectName is the name of an object in its directory.
func ObjectName(object uint64) string { return strconv.FormatUint(object, 10) }

// ObjectInodes returns the inode of each object.
func (s *Store) ObjectInodes() (map[uint64]uint64, error) {
	out := map[uint64]uint64{}
	err := s.eachObject(func(object uint64, st *unix.Stat_t) { out[object] = st.Ino })
	return out, err
}

func (s *Store) eachObject(f func(object uint64, st *unix.Stat_t)) error {
	list, err := os.ReadDir(filepath.Join(s.dir, objectsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		n, nerr := strconv.ParseUint(e.Name(), 10, 64)
		var st unix.Stat_t
		if nerr == nil && unix.Lstat(filepath.Join(s.dir, objectsName, e.Name()), &st) == nil {
			f(n, &st)
		}
	}
	return err
}

// AddCheckpoint makes a checkpoint of a state, and sets its number. The objects of the state must
// exist.
func (s *Store) AddCheckpoint(c Checkpoint, state *State) (Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.points.objects < 0 {
		if err := s.makeObjects(); err != nil {
			return c, err
		}
	}
	c.Number = s.latest() + 1
	saved := savedState{Nodes: state.Nodes}
	for i := range state.Records {
		saved.Records = append(saved.Records, recordLine(state.Records[i]))
	}
	head, err := seal(&c)
	if err != nil {
		return c, err
	}
	body, err := seal(&saved)
	if err != nil {
		return c, err
	}
	path := s.checkpointPath(c.Number)
	f, err := createFile(path+".new", os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return c, err
	}
	_, err = f.Write(append(head, body...))
	if err := errors.Join(err, f.Close()); err != nil {
		return c, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return c, err
	}
	s.points.list = keepLatestNames(append(s.points.list, c))
	s.points.uses[c.Number] = state.objects()
	return c, nil
}

func (s *State) objects() (out []uint64) {
	for i := range s.Nodes {
		if o := s.Nodes[i].Object; o != 0 {
			out = append(out, o)
		}
	}
	return out
}

func (s *Store) checkpointPath(number int) string {
	return filepath.Join(s.dir, checkpointsName, strconv.Itoa(number))
}

// State reads the state that a checkpoint keeps.
func (s *Store) State(number int) (State, error) {
	_, body, err := readCheckpoint(s.checkpointPath(number))
	if err != nil {
		return State{}, err
	}
	var saved savedState
	if err := unseal(body, &saved); err != nil {
		return State{}, fmt.Errorf("checkpoint %d: %w", number, err)
	}
	state := State{Nodes: saved.Nodes}
	for i := range saved.Records {
		l := &saved.Records[i]
		base, err := l.Base.base()
		if err != nil || l.Path == nil {
			return State{}, fmt.Errorf("checkpoint %d: %w", number, errDamaged)
		}
		state.Records = append(state.Records, Record{Path: string(*l.Path), Whiteout: l.Whiteout, Base: base})
	}
	return state, nil
}

// readCheckpoint reads a checkpoint. It returns the state as it was sealed, and does not check it.
func readCheckpoint(path string) (c Checkpoint, state []byte, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, nil, err
	}
	head, state, _ := bytes.Cut(text, []byte("\n"))
	err = unseal(head, &c)
	return c, bytes.TrimSuffix(state, []byte("\n")), err
}

// openCheckpoints finds the checkpoints of a store that is being opened. since is 0 if there was no
// power loss. Otherwise openCheckpoints removes each checkpoint that the power loss may have
// damaged: the ctime of its file or of one of its objects is since (nanoseconds since 1970) or
// later, or the file cannot be read. The checkpoint of an unfinished undo stays.
func (s *Store) openCheckpoints(since int64) error {
	s.points.list = listCheckpoints(s.dir)
	if len(s.points.list) == 0 {
		return s.dropObjects()
	}
	s.points.applied = listApplied(s.dir)
	if err := s.dropApplied(); err != nil {
		return err
	}
	if err := s.makeObjects(); err != nil {
		return err
	}
	isYoung := map[uint64]bool{}
	err := s.eachObject(func(object uint64, st *unix.Stat_t) {
		s.points.next = max(s.points.next, object)
		isYoung[object] = since != 0 && st.Ctim.Nano() >= since
	})
	if err != nil || since == 0 {
		return err
	}
	for _, c := range slices.Clone(s.points.list) {
		if n := s.points.undoing; n != nil && c.Number == *n {
			continue // the undo is finished from it
		}
		state, err := s.State(c.Number)
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(s.checkpointPath(c.Number), &st)
		}
		if err != nil || st.Ctim.Nano() >= since || slices.ContainsFunc(state.objects(), func(o uint64) bool { return isYoung[o] }) {
			if err := s.Forget(c.Number); err != nil {
				return err
			}
		}
	}
	return nil
}

// listCheckpoints reads which checkpoints a store has, the oldest first.
func listCheckpoints(dir string) (out []Checkpoint) {
	list, err := os.ReadDir(filepath.Join(dir, checkpointsName))
	if err != nil {
		return nil
	}
	for _, e := range list {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		c, _, err := readCheckpoint(filepath.Join(dir, checkpointsName, e.Name()))
		if err == nil && c.Number == n {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Checkpoint) int { return a.Number - b.Number })
	return keepLatestNames(out)
}

// keepLatestNames lets only the latest of several checkpoints with the same name keep that name, so
// that a name refers to one checkpoint.
func keepLatestNames(list []Checkpoint) []Checkpoint {
	taken := map[string]bool{}
	for i := range slices.Backward(list) {
		if c := &list[i]; taken[c.Name] {
			c.Name = ""
		} else {
			taken[c.Name] = true
		}
	}
	return list
}

// Forget removes a checkpoint, but not its objects: the caller removes those that Unused returns.
// The checkpoint's notes of applies stay as long as there is an earlier checkpoint.
func (s *Store) Forget(number int) error {
	if err := os.Remove(s.checkpointPath(number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points.list = slices.DeleteFunc(s.points.list, func(c Checkpoint) bool { return c.Number == number })
	delete(s.points.uses, number) // usesOf computes the objects of the notes again
	return s.dropApplied()
}

// Excess returns the number of the checkpoint to remove next. ok is false if the number of
// checkpoints does not exceed most.
func (s *Store) Excess(most int) (number int, ok bool) {
	list := s.Checkpoints()
	if len(list) <= most {
		return 0, false
	}
	for _, c := range list {
		if c.Cause != CauseAsked {
			return c.Number, true
		}
	}
	return list[0].Number, true
}

// Unused returns the objects that no checkpoint and no note of an apply uses.
func (s *Store) Unused() ([]uint64, error) {
	used := map[uint64]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := slices.Clone(s.points.applied)
	for _, c := range s.points.list {
		numbers = append(numbers, c.Number)
	}
	for _, number := range numbers {
		list, err := s.usesOf(number)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			used[o] = true
		}
	}
	var out []uint64
	err := s.eachObject(func(object uint64, _ *unix.Stat_t) {
		if !used[object] {
			out = append(out, object)
		}
	})
	return out, err
}

// dropObjects removes a store's files for checkpoints.
func (s *Store) dropObjects() error {
	var err error
	for _, name := range []string{checkpointsName, objectsName} {
		if rmErr := os.RemoveAll(filepath.Join(s.dir, name)); rmErr != nil {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// keepsCheckpoints reports whether the checkpoints are a reason to keep the store, even if it has
// no changes.
func (s *Store) keepsCheckpoints() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := s.points.list
	worth := slices.ContainsFunc(list, func(c Checkpoint) bool { return c.Changed > 0 || c.Cause == CauseAsked })
	return (worth || len(list) > 0 && len(s.points.applied) > 0) && time.Since(list[len(list)-1].Time) < keepEmptyFor
}

// SetRecords replaces the records by those of list, in one write.
func (s *Store) SetRecords(list []Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := map[string]Record{}
	for _, r := range list {
		want[r.Path] = r
	}
	var lines []line
	for path, have := range s.records {
		if r, ok := want[path]; ok && r == have {
			delete(want, path)
			continue
		}
		lines = append(lines, line{Clear: pathOf(path)})
		if r, ok := want[path]; ok && s.unsure[path] {
			lines = append(lines, recordLine(r), line{Unsure: pathOf(path)})
			delete(want, path)
		}
	}
	for _, r := range want {
		lines = append(lines, recordLine(r))
	}
	return s.append(lines)
}

// BeginUndo records that an undo to the checkpoint with a number begins.
func (s *Store) BeginUndo(number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.append([]line{{Undo: &number}})
}

// EndUndo records that the undo has ended.
func (s *Store) EndUndo() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.append([]line{{Undone: true}})
}

// Undoing returns the number of the checkpoint to which an unfinished undo goes back. ok is false
// if there is none.
func (s *Store) Undoing() (number int, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.points.undoing == nil {
		return 0, false
	}
	return *s.points.undoing, true
}

// IsTouched reports whether the store may have changed since SetUntouched.
func (s *Store) IsTouched() bool { return !s.untouched.Load() }

// SetUntouched makes IsTouched report false until the next change.
func (s *Store) SetUntouched() { s.untouched.Store(true) }

// seal returns a value as a line with a checksum.
func seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1]
	return fmt.Appendf(b, "%s%08x\"}\n", checkKey, checksum(b)), nil
}

// unseal checks a line that seal returned, without its newline, and decodes its value into v.
func unseal(b []byte, v any) error {
	at := len(b) - checkLen
	if at < 1 {
		return errDamaged
	}
	if want := fmt.Sprintf("%s%08x\"}", checkKey, checksum(b[:at])); string(b[at:]) != want {
		return errDamaged
	}
	dec := json.NewDecoder(bytes.NewReader(append(b[:at:at], '}')))
	dec.DisallowUnknownFields()
	if dec.Decode(v) != nil {
		return errNewer // the checksum matches, so the line is not damaged
	}
	return nil
}
