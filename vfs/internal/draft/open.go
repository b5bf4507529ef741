package draft

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The files of a store.
const (
	metaFile  = "meta.json"
	lockFile  = "lock"
	logName   = "log"
	upperName = "upper"
	tmpName   = "tmp"
)

var (
	errHeld    = errors.New("held")                             // another process has the store open
	errRemoved = fmt.Errorf("just removed: %w", fs.ErrNotExist) // as the lock was being taken
)

// OpenFor opens the first store of m's root, directory and subject that is not in use, or makes
// another one. stages is the directory of all stores. A store that was made for another
// directory at the same path stays as it is.
func OpenFor(stages string, m Meta) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(stages), 0o700); err != nil {
		return nil, err
	}
	if err := makeDir(stages); err != nil {
		return nil, err
	}
	base := baseName(m)
	numbers, err := numbersOf(stages, base)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if st, err := open(filepath.Join(stages, numbered(base, n)), &m, false); !isTaken(err) && !errors.Is(err, fs.ErrNotExist) {
			return st, err
		}
	}
	for n := 1; ; {
		st, err := open(filepath.Join(stages, numbered(base, n)), &m, true)
		switch {
		case isTaken(err):
			n++
		case !errors.Is(err, errRemoved):
			return st, err
		}
	}
}

// isTaken reports whether the error of open says that the store is in use, or belongs to another
// directory.
func isTaken(err error) bool { return errors.Is(err, errHeld) || errors.Is(err, names.Conflict) }

// Open opens one store. If another process or root has it open, the error is Locked and names
// the session.
func Open(dir string) (*Store, error) {
	st, err := open(dir, nil, false)
	if errors.Is(err, errHeld) {
		return nil, heldError(dir)
	}
	return st, err
}

// OpenIn opens one store for the session that m names. If the store belongs to another
// directory than m's, the error is Conflict.
func OpenIn(dir string, m Meta) (*Store, error) {
	st, err := open(dir, &m, false)
	if errors.Is(err, errHeld) {
		return nil, heldError(dir)
	}
	return st, err
}

func heldError(dir string) error {
	m, _ := readMeta(dir)
	return &guard.Error{Kind: names.Locked, Err: fmt.Errorf("session %s holds the stage %s: end it, or ask it",
		names.Quote(m.Session), names.Quote(filepath.Base(dir)))}
}

// baseName is the name of the first store of a root, path and subject.
func baseName(m Meta) string {
	sum := sha256.Sum256([]byte(m.Path + "\x00" + string(m.Subject)))
	return string(m.Root) + "-" + hex.EncodeToString(sum[:4])
}

func numbered(base string, n int) string {
	if n == 1 {
		return base
	}
	return base + "-" + strconv.Itoa(n)
}

// numbersOf returns the numbers of the stores that have a base name, in order.
func numbersOf(stages, base string) ([]int, error) {
	list, err := os.ReadDir(stages)
	var numbers []int
	for _, e := range list {
		if e.Name() == base {
			numbers = append(numbers, 1)
		} else if rest, ok := strings.CutPrefix(e.Name(), base+"-"); ok {
			if n, err := strconv.Atoi(rest); err == nil && n > 1 && strconv.Itoa(n) == rest {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// open opens a store. If create is set, it makes the store if there is none. Unless m is nil, open
// records m's session as the one that has the store, and refuses a store that belongs to another
// directory at the same path.
func open(dir string, m *Meta, create bool) (*Store, error) {
	if create {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
	}
	lock, err := acquire(dir, create)
	if err != nil {
		return nil, err
	}
	s := newStore(dir)
	s.lock = lock
	if err := s.load(m, create); err != nil {
		s.closeFiles()
		return nil, err
	}
	return s, nil
}

func newStore(dir string) *Store {
	return &Store{
		dir: dir, lock: -1, upper: -1, tmp: -1, boot: bootID(), points: checkpoints{objects: -1, uses: map[int][]uint64{}},
		records: map[string]Record{}, hidden: map[string]bool{}, steps: map[string]Step{},
		unsure: map[string]bool{}, lost: map[uint64]bool{},
	}
}

// acquire acquires the store's lock, and makes the file of the lock if create is set. The lock ends
// with the process.
func acquire(dir string, create bool) (int, error) {
	flags := unix.O_RDWR | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if create {
		flags |= unix.O_CREAT
	}
	path := filepath.Join(dir, lockFile)
	fd, err := unix.Open(path, flags, 0o600)
	switch {
	case create && errors.Is(err, unix.ENOENT):
		return -1, errRemoved
	case err != nil:
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if create {
		err = unix.Fchmod(fd, 0o600) // whatever the umask is
	}
	if err == nil {
		err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES):
		err = errHeld
	case err == nil && st.Nlink == 0: // the last holder has removed the store
		err = errRemoved
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// isHeld reports whether a process has the store open. It does not acquire the lock.
func isHeld(dir string) bool {
	fd, err := unix.Open(filepath.Join(dir, lockFile), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	ask := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &ask) == nil && ask.Type != unix.F_UNLCK
}

// load makes the missing files of a store, and reads the store. Unless create is set, the store
// must have a meta.json. The caller holds the store's lock.
func (s *Store) load(m *Meta, create bool) error {
	meta, err := readMeta(s.dir)
	s.continued = err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		meta = *m
		meta.Version, meta.Created = version, time.Now().Round(0)
		if err := s.wipe(); err != nil { // a store whose removal was interrupted
			return err
		}
	case err != nil:
		return err
	case m != nil:
		if meta.ID.Ino != m.ID.Ino || meta.ID.Birth != m.ID.Birth { // device numbers change
			return &guard.Error{Kind: names.Conflict, Err: fmt.Errorf("the stage %s was made for another directory, which was at %s: discard it, or put that directory back",
				names.Quote(filepath.Base(s.dir)), names.Quote(meta.Path))}
		}
		meta.Session, meta.ID = m.Session, m.ID
		if m.Patterns != nil {
			meta.Patterns = m.Patterns
		}
	}
	s.meta = meta
	if m != nil {
		if err := writeMeta(s.dir, meta); err != nil {
			return err
		}
	}
	if err := s.openDirs(); err != nil {
		return err
	}
	got, err := s.openLog()
	if err != nil {
		return err
	}
	if !s.continued {
		if err := errors.Join(syncDir(s.dir), syncDir(filepath.Dir(s.dir))); err != nil {
			return err
		}
	}
	return s.settle(got)
}

// openDirs opens upper/ and tmp/, and empties tmp/.
func (s *Store) openDirs() error {
	for _, d := range []struct {
		name string
		fd   *int
	}{{upperName, &s.upper}, {tmpName, &s.tmp}} {
		path := filepath.Join(s.dir, d.name)
		if err := makeDir(path); err != nil {
			return err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		*d.fd = fd
	}
	return s.walk(tmpName, walker{opens: true, removes: true, visit: func(string, *unix.Stat_t) {}})
}

// openLog opens the log, or makes it, and replays it. It cuts off an incomplete last line, and a
// damaged line with all that follows. If the log was damaged or lost, openLog records that in the
// log.
func (s *Store) openLog() (logState, error) {
	path := filepath.Join(s.dir, logName)
	f, err := createFile(path, os.O_RDWR)
	if err != nil {
		return logState{}, err
	}
	s.log.file = f
	got, err := s.replay(f)
	if err != nil {
		return got, fmt.Errorf("%s: %w", names.Quote(path), err)
	}
	s.log.end = got.end
	if err := f.Truncate(got.end); err != nil {
		return got, err
	}
	if got.lines == 0 {
		got.boot = s.boot
		if err := s.append([]line{{Stage: version, Boot: s.boot}}); err != nil {
			return got, err
		}
	}
	switch {
	case got.isBroken:
		return got, s.append([]line{{Damaged: s.damageText()}})
	case got.lines == 0 && s.continued && hasNames(filepath.Join(s.dir, upperName)):
		return got, s.append([]line{{Damaged: noLog}})
	}
	return got, nil
}

// noLog describes a store whose log is missing.
const noLog = "its log is missing: what programs removed is not known, and what they changed of yours is a conflict"

// hasNames reports whether a directory is not empty.
func hasNames(dir string) bool {
	list, err := os.ReadDir(dir)
	return err == nil && len(list) > 0
}

func (s *Store) damageText() string {
	return fmt.Sprintf("the log was damaged after record %d, and what followed is lost", len(s.records))
}

// settle opens the checkpoints, indexes the upper, and marks changes that a power loss made unsure.
// It compacts the log if most of its lines are obsolete.
func (s *Store) settle(got logState) error {
	isUnclean := got.boot != s.boot
	var marks []line
	since := int64(0)
	if isUnclean {
		since = max(got.commit, 1)
	}
	if err := s.openCheckpoints(since); err != nil {
		return err
	}
	err := s.walk(upperName, walker{opens: true, visit: func(rel string, st *unix.Stat_t) {
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		s.addUpper(rel, isDir)
		if isUnclean && !isDir && st.Ctim.Nano() >= got.commit && !s.lost[st.Ino] {
			marks = append(marks, line{Lost: []uint64{st.Ino}})
		}
	}})
	if err != nil {
		return err
	}
	if isUnclean {
		for _, y := range got.young {
			if _, ok := s.records[y.path]; ok && !s.unsure[y.path] {
				marks = append(marks, line{Unsure: pathOf(y.path)})
			}
		}
		if err := s.append(marks); err != nil {
			return err
		}
		s.log.stale.Store(true)
		if err := s.Commit(nil); err != nil {
			return err
		}
	}
	if live := len(s.records) + len(s.unsure) + len(s.lost) + len(s.steps); got.lines > 2*live+compactFrom {
		return s.compact()
	}
	return nil
}

// compactFrom is how many lines a log may have in addition to twice the number of lines that are
// still needed. A log with more lines is compacted.
const compactFrom = 1000

// compact replaces the log by one without the obsolete lines.
func (s *Store) compact() error {
	lines := []line{{Stage: version, Boot: s.boot}}
	if s.damaged != "" {
		lines = append(lines, line{Damaged: s.damaged})
	}
	for r := range s.Records() {
		lines = append(lines, recordLine(r))
		if s.unsure[r.Path] {
			lines = append(lines, line{Unsure: pathOf(r.Path)})
		}
	}
	for ino := range s.lost {
		lines = append(lines, line{Lost: []uint64{ino}})
	}
	for _, p := range s.OpenSteps() {
		lines = append(lines, stepLine(p))
	}
	if n := s.points.undoing; n != nil {
		lines = append(lines, line{Undo: n})
	}
	path := filepath.Join(s.dir, logName)
	f, err := createFile(path+".new", os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return err
	}
	old := s.log.file
	s.log.file, s.log.end = f, 0
	err = s.append(lines)
	if err == nil {
		err = s.commit(line{Commit: time.Now().UnixNano(), Boot: s.boot, Upto: s.log.end})
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err // the store is not opened; the old log is untouched
	}
	old.Close()
	return syncDir(s.dir)
}

// Close commits and releases the store. It removes a store that has neither changes nor checkpoints
// worth keeping (isEmpty).
func (s *Store) Close() error {
	s.mu.RLock()
	end := s.log.end
	s.mu.RUnlock()
	var err error
	if s.log.stale.Load() {
		err = s.commit(line{Commit: time.Now().UnixNano(), Boot: s.boot, Upto: end})
	}
	if isEmpty, lookErr := s.isEmpty(); err == nil && lookErr == nil && isEmpty {
		err = s.remove()
	}
	s.closeFiles()
	return err
}

// Remove removes the store with all its changes, and closes it.
func (s *Store) Remove() error {
	defer s.closeFiles()
	return s.remove()
}

// Remove removes a store that need not be readable. If another process has it open, the error is
// Locked.
func Remove(dir string) error {
	lock, err := acquire(dir, false)
	if errors.Is(err, errHeld) {
		return heldError(dir)
	}
	if err != nil {
		return err
	}
	s := newStore(dir)
	s.lock = lock
	return s.Remove()
}

// remove removes the store, its meta.json first: without that file a directory is not taken for
// a store, so a kill leaves no half store. The lock file is the last file that remove removes.
// The directory follows, unless another process has made a store there meanwhile.
func (s *Store) remove() error {
	err := errors.Join(os.Remove(filepath.Join(s.dir, metaFile)), s.wipe())
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(s.dir, lockFile))
	if err == nil && !errors.Is(os.Remove(s.dir), fs.ErrNotExist) {
		return syncDir(filepath.Dir(s.dir))
	}
	return err
}

// wipe removes all of a store but its meta.json and its lock.
func (s *Store) wipe() error {
	var err error
	for _, name := range []string{tmpName, upperName} {
		if walkErr := s.walk(name, walker{opens: true, removes: true, visit: func(string, *unix.Stat_t) {}}); !errors.Is(walkErr, fs.ErrNotExist) {
			err = errors.Join(err, walkErr, os.Remove(filepath.Join(s.dir, name)))
		}
	}
	err = errors.Join(err, s.dropObjects())
	for _, name := range []string{logName, logName + ".new", metaFile + ".new"} {
		if removeErr := os.Remove(filepath.Join(s.dir, name)); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

func (s *Store) closeFiles() {
	for _, fd := range []int{s.upper, s.tmp, s.lock, s.points.objects} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if s.log.file != nil {
		s.log.file.Close()
	}
}
