package revoke

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// board is a page shared with the storm's processes.
type board struct {
	// dead is the CLOCK_MONOTONIC time at which the last revocation
	// returned. It is 0 from just before each grant until the next
	// revocation has returned. No other value repeats. So if dead has
	// the same non-zero value before an operation and after it, the
	// root was revoked during the whole operation.
	dead atomic.Int64
	// ends counts revocations that have returned.
	ends atomic.Int64
	// stop ends the storm when it is not 0.
	stop atomic.Int64
	// ops counts operations, so that each phase lasts until some have run.
	ops atomic.Int64
}

// phaseOps is how many operations a phase lasts: about thirty of each worker, sixty with ROOTSFS_SOAK.
var phaseOps = int64(reps(300, 600))

// phase waits until the storm has done phaseOps more operations, but at most a few seconds.
func (b *board) phase() {
	until := b.ops.Load() + phaseOps
	for range 5_000 {
		if b.ops.Load() >= until {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func mapBoard(f *os.File) (*board, error) {
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*board)(unsafe.Pointer(unsafe.SliceData(m))), nil
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// stormer is the mode of a process that does operations all the time.
type stormer struct{}

type stormArg struct {
	Root    string
	Workers int
}

// stormResult counts operations and leaks. An operation is a leak if it began after a
// revocation had returned and succeeded before the root was granted again. An operation is also
// a leak if it used a file opened before a revocation, began after the revocation had returned, and
// succeeded.
type stormResult struct {
	Ops       int64
	Good      int64            // operations that succeeded
	WhileDead int64            // operations that must not succeed
	Leaks     map[string]int64 // by the name of the operation
	First     string           // describes the first leak of an operation by path
}

func (*stormer) do(cmd string, arg json.RawMessage) (any, error) {
	var a stormArg
	if err := json.Unmarshal(arg, &a); err != nil {
		return nil, err
	}
	b, err := mapBoard(os.NewFile(3, "board"))
	if err != nil {
		return nil, err
	}
	total := stormResult{Leaks: map[string]int64{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range a.Workers {
		wg.Go(func() {
			r := stormWorker(b, a.Root, i)
			mu.Lock()
			defer mu.Unlock()
			total.add(r)
		})
	}
	wg.Wait()
	return total, nil
}

func (r *stormResult) add(o stormResult) {
	r.Ops, r.Good, r.WhileDead = r.Ops+o.Ops, r.Good+o.Good, r.WhileDead+o.WhileDead
	for k, n := range o.Leaks {
		r.Leaks[k] += n
	}
	if r.First == "" {
		r.First = o.First
	}
}

// heldFile is a file that a worker keeps open and mapped across revocations, with its directory.
type heldFile struct {
	born int64 // the value of board.ends when the file was opened
	fd   int
	dir  int
	page []byte
}

func (h *heldFile) drop() {
	if h.page != nil {
		_ = unix.Munmap(h.page)
	}
	for _, fd := range []int{h.fd, h.dir} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	*h = heldFile{fd: -1, dir: -1}
}

func (h *heldFile) open(b *board, root string, i int) {
	h.drop()
	born := b.ends.Load()
	fd, err := unix.Open(stormFile(root, i), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	h.fd, h.born = fd, born
	h.page, _ = unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	h.dir, err = unix.Open(filepath.Join(root, "d"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		h.dir = -1
	}
}

const stormFiles = 64

func stormFile(root string, i int) string {
	return filepath.Join(root, "d", fmt.Sprintf("f%02d", i%stormFiles))
}

func stormWorker(b *board, root string, seed int) stormResult {
	r := stormResult{Leaks: map[string]int64{}}
	h := heldFile{fd: -1, dir: -1}
	defer h.drop()
	buf := make([]byte, 8192)
	for i := seed * 7; b.stop.Load() == 0; i++ {
		name := stormFile(root, i)
		if i%97 == 0 || h.fd < 0 && i%5 == 0 {
			h.open(b, root, i)
		}
		r.run(b, "stat", func() error { var st unix.Stat_t; return unix.Lstat(name, &st) })
		r.run(b, "open and read", func() error { return openRead(name, buf) })
		r.run(b, "readlink", func() error {
			n, err := unix.Readlink(filepath.Join(root, "link"), buf)
			return some(n, err)
		})
		if i%8 == 0 {
			r.run(b, "list", func() error { return listDir(filepath.Join(root, "d"), buf) })
			r.run(b, "open and map", func() error { return openMap(name) })
		}
		if h.fd < 0 {
			continue
		}
		r.runHeld(b, h.born, "pread of a held file", func() error { return pread(h.fd, 0) })
		r.runHeld(b, h.born, "fstat of a held file", func() error { return fstat(h.fd) })
		if h.page != nil {
			r.runHeld(b, h.born, "load from a held mapping", func() error { return load(h.page, 0) })
		}
		if h.dir >= 0 {
			r.runHeld(b, h.born, "openat from a held directory", func() error { return openat(h.dir, filepath.Base(name), unix.O_RDONLY) })
			r.runHeld(b, h.born, "getdents of a held directory", func() error { return rewindAndList(h.dir) })
		}
	}
	return r
}

// run does one operation by path.
func (r *stormResult) run(b *board, name string, f func() error) {
	dead := b.dead.Load()
	begin := monotonic()
	err := f()
	after := b.dead.Load()
	r.Ops++
	b.ops.Add(1)
	inside := dead != 0 && dead == after
	if inside {
		r.WhileDead++
	}
	if err != nil {
		return
	}
	r.Good++
	if inside && begin > dead {
		r.leak(name, begin-dead)
	}
}

// runHeld does one operation on a file that was opened when born revocations had returned.
func (r *stormResult) runHeld(b *board, born int64, name string, f func() error) {
	ends := b.ends.Load()
	err := f()
	r.Ops++
	b.ops.Add(1)
	if ends > born {
		r.WhileDead++
	}
	if err != nil {
		return
	}
	r.Good++
	if ends > born {
		if b.dead.Load() == 0 {
			name += ", granted again"
		}
		r.leak(name, 0)
	}
}

func (r *stormResult) leak(name string, after int64) {
	r.Leaks[name]++
	if r.First == "" && after > 0 {
		r.First = fmt.Sprintf("%s, begun %v after the revocation had returned", name, time.Duration(after))
	}
}

func openRead(name string, buf []byte) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	return some(n, err)
}

func openMap(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return mapNew(fd, unix.PROT_READ, false)
}

func listDir(name string, buf []byte) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	total := 0
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		total += n
	}
	return some(total, nil)
}

// storm revokes a root n times while several processes use the root (the storm), and returns the
// sum of the processes' results. end revokes the root. The board shows the revocation only after
// end has returned.
func storm(t *testing.T, s setting, n int, end func(l *lab) error) stormResult {
	t.Helper()
	src := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(src, "d"), 0o777))
	for i := range stormFiles {
		testkit.Must(t, os.WriteFile(stormFile(src, i), make([]byte, 8192), 0o666))
	}
	testkit.Must(t, os.Symlink("d", filepath.Join(src, "link")))
	l := newLab(t, mount.Options{Level: s.level, ReadOnly: s.ro}, grantOf("code", src, s.rights))
	fd, err := unix.MemfdCreate("board", unix.MFD_CLOEXEC)
	testkit.Must(t, err)
	f := os.NewFile(uintptr(fd), "board")
	defer f.Close()
	testkit.Must(t, f.Truncate(4096))
	b, err := mapBoard(f)
	testkit.Must(t, err)

	var stormers []*child
	for range 3 {
		c := start(t, "storm", nil, f)
		testkit.Must(t, c.send("storm", stormArg{Root: l.in("code"), Workers: 3}))
		stormers = append(stormers, c)
	}
	for range n {
		b.phase()
		if err := end(l); err != nil {
			t.Errorf("revoke: %v", err)
		}
		b.ends.Add(1)
		b.dead.Store(monotonic())
		b.phase()
		b.dead.Store(0)
		if _, live := l.reg.Lookup("code"); !live {
			l.grant(grantOf("code", src, s.rights))
		}
	}
	b.stop.Store(1)
	total := stormResult{Leaks: map[string]int64{}}
	for _, c := range stormers {
		var r stormResult
		testkit.Must(t, c.receive("storm", &r))
		total.add(r)
	}
	t.Logf("%s: %d revocations, %d operations, %d of them good, %d while revoked, leaks %v",
		s.name, n, total.Ops, total.Good, total.WhileDead, total.Leaks)
	return total
}

// While processes storm the mount, no operation by path that runs between the return of revoke and
// the next grant succeeds, at any level. Nothing that was held before the revocation works again.
func TestStormsSeeNothingAfterRevoke(t *testing.T) {
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			r := storm(t, s, reps(4, 100), func(l *lab) error {
				_, err := l.reg.Revoke(context.Background(), "code")
				return err
			})
			if r.Good == 0 || r.WhileDead == 0 {
				t.Fatal("the storm proves nothing: no operation succeeded, or none ran while the root was revoked")
			}
			for what, n := range r.Leaks {
				t.Errorf("%s: %d leaks", what, n)
			}
			if r.First != "" {
				t.Error("first:", r.First)
			}
		})
	}
}

// Here the registry does not tell the mount about the revocation, so the kernel keeps what it has
// cached. The storm must find leaks. This shows that the storm can detect a leak.
func TestStormFindsLeaksWithoutInvalidation(t *testing.T) {
	r := storm(t, settings[1], 5, func(l *lab) error {
		l.reg.RemoveView(l.m)
		defer l.reg.AddView(l.m)
		_, err := l.reg.Revoke(context.Background(), "code")
		return err
	})
	if len(r.Leaks) == 0 {
		t.Error("no leak without invalidation: the storm is blind")
	}
}
