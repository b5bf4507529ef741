package transport

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/oldkernel"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// serveEnv makes the test binary serve a mount. The tests use a mount of another process,
// because a process must not use a mount that it serves itself.
const serveEnv = "ROOTSFS_TRANSPORT_SERVE"

func TestMain(m *testing.M) {
	if how := os.Getenv(serveEnv); how != "" {
		if err := serve(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const fileSize = 1 << 20

// testFS has files named f…, of fileSize bytes. Each byte of a file is the last byte of its name.
// A READ of a file named fhang… waits until the READ is interrupted or release is closed. The
// counts are for the tests.
type testFS struct {
	fuse.RawFileSystem
	mu      sync.Mutex // guards the fields below
	ids     map[string]uint64
	names   map[uint64]string
	locked  uint64 // owner; 0: none
	unlock  chan struct{}
	release chan struct{}

	lookups, forgets, interrupted, waiting, written, unmounted atomic.Int64
	mayCache                                                   atomic.Bool // the kernel may cache attributes and names
}

func newTestFS() *testFS {
	return &testFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), ids: map[string]uint64{}, names: map[uint64]string{},
		unlock: make(chan struct{}), release: make(chan struct{})}
}

func (f *testFS) id(name string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ids[name] == 0 {
		id := uint64(len(f.ids) + 2)
		f.ids[name], f.names[id] = id, name
	}
	return f.ids[name]
}

func (f *testFS) name(id uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[id]
}

func (f *testFS) attr(id uint64, a *fuse.Attr) (timeout uint64) {
	a.Ino, a.Mode, a.Nlink = id, fuse.S_IFREG|0o666, 1
	a.Size = fileSize
	if id == fuse.FUSE_ROOT_ID {
		a.Mode = fuse.S_IFDIR | 0o755
	}
	if f.mayCache.Load() {
		return 3600
	}
	return 0
}

func (f *testFS) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if h.NodeId != fuse.FUSE_ROOT_ID || !strings.HasPrefix(name, "f") {
		return fuse.ENOENT
	}
	if name == "fpanic" {
		panic("a bug")
	}
	f.lookups.Add(1)
	out.NodeId = f.id(name)
	out.AttrValid = f.attr(out.NodeId, &out.Attr)
	out.EntryValid = out.AttrValid
	return fuse.OK
}

func (f *testFS) Forget(_, n uint64) { f.forgets.Add(int64(n)) }

func (f *testFS) OnUnmount() { f.unmounted.Add(1) }

func (f *testFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.AttrValid = f.attr(in.NodeId, &out.Attr)
	return fuse.OK
}

func (f *testFS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.attr(in.NodeId, &out.Attr)
	return fuse.OK
}

func (f *testFS) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_DIRECT_IO
	return fuse.OK
}

// Create accepts every name. The kernel sends CREATE for names that Lookup does not know.
func (f *testFS) Create(_ <-chan struct{}, _ *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.NodeId = f.id(name)
	out.AttrValid = f.attr(out.NodeId, &out.Attr)
	return fuse.OK
}

func (f *testFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (f *testFS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	name := f.name(in.NodeId)
	if strings.HasPrefix(name, "fhang") {
		f.waiting.Add(1)
		defer f.waiting.Add(-1)
		select {
		case <-cancel:
			f.interrupted.Add(1)
			return nil, fuse.EINTR
		case <-f.release:
		}
	}
	n := min(len(buf), int(fileSize-min(in.Offset, fileSize)))
	for i := range buf[:n] {
		buf[i] = last(name)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// last returns the last byte of a name.
func last(name string) byte {
	if name == "" {
		return 0
	}
	return name[len(name)-1]
}

func (f *testFS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	name := f.name(in.NodeId)
	if i := bytes.IndexFunc(data, func(r rune) bool { return r != rune(last(name)) }); i >= 0 {
		return 0, fuse.EIO
	}
	f.written.Add(int64(len(data)))
	return uint32(len(data)), fuse.OK
}

// SetLkw waits for the lock and takes it. There is one lock for all files.
func (f *testFS) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	for {
		f.mu.Lock()
		freed := f.unlock
		if f.locked == 0 || f.locked == in.Owner {
			f.locked = in.Owner
			f.mu.Unlock()
			return fuse.OK
		}
		f.mu.Unlock()
		f.waiting.Add(1)
		select {
		case <-cancel:
			f.waiting.Add(-1)
			f.interrupted.Add(1)
			return fuse.EINTR
		case <-freed:
		}
		f.waiting.Add(-1)
	}
}

func (f *testFS) SetLk(_ <-chan struct{}, in *fuse.LkIn) fuse.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case in.Lk.Typ == unix.F_UNLCK:
		f.unlockLocked(in.Owner)
	case f.locked != 0 && f.locked != in.Owner:
		return fuse.EAGAIN
	default:
		f.locked = in.Owner
	}
	return fuse.OK
}

// Release ends the lock of the closing owner: the kernel sends no other unlock for flock(2).
func (f *testFS) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.ReleaseFlags&fuse.FUSE_RELEASE_FLOCK_UNLOCK != 0 {
		f.unlockLocked(in.LockOwner)
	}
}

func (f *testFS) unlockLocked(owner uint64) {
	if f.locked == owner {
		f.locked = 0
		close(f.unlock)
		f.unlock = make(chan struct{})
	}
}

// serve mounts at the directory in the environment and obeys the lines of standard input. how
// is a Kind, followed by words: "cache", "patient", "register", "group=DIR" or keys of refused.
func serve(how string) error {
	kind, words, _ := strings.Cut(how, " ")
	for _, word := range strings.Fields(words) {
		if err := refuse(word); err != nil {
			return err
		}
		if group, ok := strings.CutPrefix(word, "group="); ok {
			if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
				return err
			}
		}
	}
	device, err := mountAt(os.Getenv(serveEnv + "_DIR"))
	if err != nil {
		return err
	}
	fs := newTestFS()
	fs.mayCache.Store(strings.Contains(words, "cache"))
	if Kind(kind) == goFUSE {
		return serveGoFUSE(device, fs)
	}
	var gap time.Duration
	if strings.Contains(words, "patient") {
		gap = time.Hour
	}
	c, err := New(fs, Options{Device: device, Kind: Kind(kind), failRegister: strings.Contains(words, "register"), burstGap: gap, Fuse: fuse.MountOptions{
		MaxWrite: 512 << 10, Name: "t", EnableLocks: true, MaxBackground: 64, Logger: log.New(os.Stderr, "", 0),
		PanicHandler: func(any) fuse.Status { return fuse.EIO },
	}})
	if err != nil {
		return err
	}
	fmt.Printf("%s %v\n", c.Kind(), c.Fallback())
	go obey(c, fs)
	c.Serve()
	fmt.Printf("ended, interrupted %d, waiting %d, unmounted %d\n", fs.interrupted.Load(), fs.waiting.Load(), fs.unmounted.Load())
	return nil
}

// obey obeys the lines of standard input: each is a verb, which may have an argument, or names a
// count of fs to print.
func obey(c *Conn, fs *testFS) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "release":
			close(fs.release)
			fmt.Println("ok")
		case "inode":
			fmt.Println(int(c.InodeNotify(fs.id(arg), 0, 0)))
		case "entry":
			fmt.Println(int(c.EntryNotify(fuse.FUSE_ROOT_ID, arg)))
		case "cpu":
			fmt.Println(int64(cpuTime()))
		case "workers":
			fmt.Println(len(c.allWorkers()))
		default:
			n := map[string]*atomic.Int64{"lookups": &fs.lookups, "forgets": &fs.forgets, "interrupted": &fs.interrupted,
				"waiting": &fs.waiting, "written": &fs.written}[verb]
			fmt.Println(n.Load())
		}
	}
}

// mountAt attaches a new connection to a directory.
func mountAt(dir string) (*os.File, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,max_read=%d", fd, 512<<10)
	if err := unix.Mount("transport-test", dir, "fuse.t", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/fuse"), nil
}

// testServer is a mount that another process serves.
type testServer struct {
	t     testing.TB
	dir   string
	kind  string // the kind of transport, and the reason for a fallback, as the server reports them
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	minor int // of the mount's device, which is the connection's number
}

// startServer starts a process that serves a mount; how is as for serve.
func startServer(t testing.TB, how string) *testServer {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root mounts without a helper")
	}
	if strings.HasPrefix(how, string(IOUring)) {
		childfs.HoldRings(t)
	}
	s := &testServer{t: t, dir: t.TempDir(), cmd: exec.Command("/proc/self/exe")}
	s.cmd.Env = append(os.Environ(), serveEnv+"="+how, serveEnv+"_DIR="+s.dir)
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := s.cmd.StdoutPipe()
	testkit.Must(t, err)
	s.in, s.out = in, bufio.NewReader(out)
	testkit.Must(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = unix.Unmount(s.dir, unix.MNT_DETACH)
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	s.kind = s.line()
	var st unix.Statx_t
	testkit.Must(t, unix.Statx(unix.AT_FDCWD, s.dir, unix.AT_STATX_DONT_SYNC, 0, &st))
	s.minor = int(st.Dev_minor)
	return s
}

// abort ends the connection, whatever the server does.
func (s *testServer) abort() {
	s.t.Helper()
	dir := s.t.TempDir()
	testkit.Must(s.t, unix.Mount("fusectl", dir, "fusectl", 0, ""))
	defer unix.Unmount(dir, unix.MNT_DETACH) //nolint:errcheck // made above
	testkit.Must(s.t, os.WriteFile(filepath.Join(dir, strconv.Itoa(s.minor), "abort"), []byte("1"), 0))
}

// line returns the next line that the server prints.
func (s *testServer) line() string {
	s.t.Helper()
	text, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the server says %q, %v", text, err)
	}
	return strings.TrimSpace(text)
}

// ask sends the server a line for obey, and returns the line that the server prints.
func (s *testServer) ask(verb string) string {
	s.t.Helper()
	_, err := io.WriteString(s.in, verb+"\n")
	testkit.Must(s.t, err)
	return s.line()
}

// await returns when the server's count of something is n.
func (s *testServer) await(what string, n int) {
	s.t.Helper()
	for s.ask(what) != strconv.Itoa(n) {
		unix.Nanosleep(&unix.Timespec{Nsec: 2e6}, nil) //nolint:errcheck // asked again
	}
}

func (s *testServer) path(name string) string { return filepath.Join(s.dir, name) }

// kinds runs a test on each kind of transport, with words for serve.
func kinds(t *testing.T, words string, f func(t *testing.T, s *testServer)) {
	for _, kind := range []Kind{IOUring, Plain} {
		t.Run(string(kind), func(t *testing.T) {
			s := startServer(t, string(kind)+" "+words)
			if !strings.HasPrefix(s.kind, string(kind)+" ") {
				t.Fatalf("served by %s", s.kind)
			}
			f(t, s)
		})
	}
}

// client starts a process that reads the first byte of a file, on processor 0. It uses only
// programs that every system has.
func client(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("taskset", "-c", "0", "head", "-c", "1", path)
	testkit.Must(t, cmd.Start())
	return cmd
}

// refused maps words for serve to system calls that the kernel then refuses. Real kernels refuse
// them, too: io_uring_setup fails with EPERM if kernel.io_uring_disabled forbids io_uring, and
// sched_setaffinity fails with EINVAL for a processor that is not in the process's cpuset.
var refused = map[string]oldkernel.Call{
	"forbidden": {Nr: unix.SYS_IO_URING_SETUP, Errno: unix.EPERM},
	"nomemory":  {Nr: unix.SYS_IO_URING_SETUP, Errno: unix.ENOMEM},
	"nofiles":   {Nr: unix.SYS_IO_URING_SETUP, Errno: unix.EMFILE},
	"norings":   {Nr: unix.SYS_IO_URING_SETUP, Errno: unix.ENOSYS},
	"cpuset":    {Nr: unix.SYS_SCHED_SETAFFINITY, Errno: unix.EINVAL},
}

// refuse makes the kernel refuse the system call of a word to this process.
func refuse(word string) error {
	call, ok := refused[word]
	if !ok {
		return nil
	}
	return oldkernel.Refuse(call)
}
