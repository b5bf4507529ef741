package draft

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// sizes has the bytes that the store takes on the disk, and the most that it may take.
type sizes struct {
	mu       sync.Mutex
	most     int64 // 0: rules.DefaultMaxStage
	measured time.Time
	names    int // in the upper, when it was measured
	changed  int
	bytes    int64 // when it was measured
	since    int64 // written since then
	// stale is set before each change of the store, and unset before a measurement.
	stale atomic.Bool
	// freed is set after each change that may have made the store smaller, and unset before a
	// measurement.
	freed atomic.Bool
}

// measureAfter is the time after which a store with many names or little room is measured again.
const measureAfter = time.Second

// fewNames is the number of names below which Size measures a store again after each change, so
// that the owner sees a change at once.
const fewNames = 1000

// Limit sets how many bytes the store may take on the disk.
func (s *Store) Limit(bytes int64) {
	s.size.mu.Lock()
	defer s.size.mu.Unlock()
	s.size.most = bytes
}

// WillWrite charges n bytes before they are written to the upper. Without room for them it
// returns ENOSPC. It must be called before each change of the upper, with 0 if no bytes are
// written, so that the change is committed.
func (s *Store) WillWrite(n int64) error {
	s.log.stale.Store(true)
	s.size.stale.Store(true)
	s.untouched.Store(false)
	if n <= 0 {
		return nil
	}
	z := &s.size
	z.mu.Lock()
	defer z.mu.Unlock()
	if left := z.limit() - z.bytes; z.since+n > left/4 && time.Since(z.measured) > measureAfter {
		s.measure()
	}
	if z.bytes+z.since+n > z.limit() && z.mayHaveRoom(n) {
		s.measure()
	}
	if z.bytes+z.since+n > z.limit() {
		return unix.ENOSPC
	}
	z.since += n
	return nil
}

// Freed records that the store may have become smaller. Without Freed, a store that was measured as
// full is measured at most once a second: a measurement for each refused write would take too long.
func (s *Store) Freed() { s.size.freed.Store(true) }

// mayHaveRoom reports whether a measurement may find room for n bytes: programs have removed
// something, or have overwritten their own data.
func (z *sizes) mayHaveRoom(n int64) bool {
	return z.freed.Load() || z.since > 0 && z.bytes+n <= z.limit()
}

func (z *sizes) limit() int64 {
	if z.most == 0 {
		return rules.DefaultMaxStage
	}
	return z.most
}

// Room is how many bytes may still be written.
func (s *Store) Room() int64 {
	z := &s.size
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.freed.Load() && (z.names < fewNames || time.Since(z.measured) > measureAfter) {
		s.measure()
	}
	return max(0, z.limit()-z.bytes-z.since)
}

// Size returns how many names programs changed, made or removed, and the bytes that the upper and
// the copied objects of checkpoints take on the disk. It measures a store with many names at most
// once a second.
func (s *Store) Size() (changed int, bytes int64) {
	z := &s.size
	z.mu.Lock()
	defer z.mu.Unlock()
	if time.Since(z.measured) > measureAfter || z.names < fewNames && z.stale.Load() {
		s.measure()
	}
	return z.changed, z.bytes
}

// measure counts the names and bytes of the upper, and the bytes of copied objects. The caller holds
// s.size.mu.
func (s *Store) measure() {
	z := &s.size
	z.stale.Store(false)
	z.freed.Store(false)
	z.names, z.changed, z.bytes, z.since = 0, 0, 0, 0
	inUpper := map[string]bool{}
	_ = s.walkUpper(func(rel string, st *unix.Stat_t) { // names that cannot be read are not counted
		inUpper[rel] = true
		z.names++
		z.bytes += st.Blocks * 512
		if s.isChange(rel, st) {
			z.changed++
		}
	})
	_ = s.eachObject(func(_ uint64, st *unix.Stat_t) {
		if st.Nlink == 1 { // a copy; the others are files of the upper
			z.bytes += st.Blocks * 512
		}
	})
	for r := range s.Records() {
		if r.Whiteout && !inUpper[r.Path] {
			z.changed++
		}
	}
	z.measured = time.Now()
}

// isChange reports whether a file of the upper can differ from the source. A directory that was
// only made there to hold changed files does not.
func (s *Store) isChange(rel string, st *unix.Stat_t) bool {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return true
	}
	r, ok := s.RecordOf(rel)
	return !ok || r.Whiteout || r.Base.Mode != st.Mode
}

// isEmpty reports whether the store keeps nothing that an owner could want.
func (s *Store) isEmpty() (bool, error) {
	isEmpty := len(s.OpenSteps()) == 0 && !s.keepsCheckpoints()
	for r := range s.Records() {
		isEmpty = isEmpty && !r.Whiteout
	}
	err := s.Walk(nil, func(rel string, st *unix.Stat_t) {
		isEmpty = isEmpty && !s.isChange(rel, st) && !hasAttributes(filepath.Join(s.dir, upperName, rel))
	})
	return isEmpty && err == nil, err
}

// hasAttributes reports whether a file has extended attributes. Those of the kernel (security.*) do
// not count.
func hasAttributes(path string) bool {
	buf := make([]byte, 1<<16)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		return !errors.Is(err, unix.ENOTSUP)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name != "" && !strings.HasPrefix(name, "security.") {
			return true
		}
	}
	return false
}
