package sandbox

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// caller is a user who calls rootsfs.
type caller struct {
	name string
	uid  int
}

var callers = []caller{{"root", 0}, {"user", 1001}}

// eachUser runs a test for each caller. The tests run at the same time.
func eachUser(t *testing.T, f func(*testing.T, *outside)) {
	for _, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f(t, newOutside(t, w))
		})
	}
}

// eachLevel runs a test for each caller at each level. The tests run at the same time.
func eachLevel(t *testing.T, f func(*testing.T, *outside, sandbox.Level)) {
	for _, w := range callers {
		for _, level := range levels {
			t.Run(w.name+"/"+level.String(), func(t *testing.T) {
				t.Parallel()
				f(t, newOutside(t, w), level)
			})
		}
	}
}

// eachNetLevel runs a test for each caller at a level with a network namespace: root tests one of
// these levels, the user the other one. In the soak (lab.Soak) each caller tests both.
func eachNetLevel(t *testing.T, f func(*testing.T, *outside, sandbox.Level)) {
	for i, w := range callers {
		for j, level := range netLevels {
			if i != j && !lab.Soak() {
				continue
			}
			t.Run(w.name+"/"+level.String(), func(t *testing.T) {
				t.Parallel()
				f(t, newOutside(t, w), level)
			})
		}
	}
}

// commandUID returns the uid that the command of a caller runs as.
func (w caller) commandUID() int {
	if w.uid == 0 {
		uid, _ := sandbox.DefaultID()
		return int(uid)
	}
	return w.uid
}

// targets has the fields that the hostile program reads.
type targets struct {
	Secret, SecretContent, Dir, Root, Link, SetUID, Handle string
	Victim, Parent                                         int
	Pathname, Abstract, TCP, UDP, MPTCP, Log               string
	System, Shared, Net                                    string
	ShmKey                                                 int
	Shm                                                    string
	Pids, Inotify                                          int
	Host, Control, Audit, Session                          string
}

// outside is everything that the hostile program must not reach, and its one root.
type outside struct {
	t      *testing.T
	caller caller
	base   string // the directory that has all files; its mode is 0755
	root   string
	home   string   // HOME in the runs
	env    []string // the environment of rootsfs; its XDG variables name directories in base
	// mounts becomes the field Mounts of each order to the driver. For an ordinary user it has a
	// /dev/fuse that everybody may open, and an /etc/passwd that lists the user. Tests may add others.
	mounts map[string]string
	targets
	victimSays      func() string // returns the victim's output so far
	closeRootSocket func()        // closes the socket in the root
	granted         string        // a socket of the host, granted with --socket
	order           []string      // the names of the attempts, in the order of their first results
}

// pidsMax is the limit of processes in these runs. pidsBeyond is the number that the hostile
// program tries to exceed. It is far above pidsMax, because at level Landlock other processes of
// the same uid count, too: rootsfs itself, with its threads, and programs of other packages' tests.
const (
	pidsMax    = 128
	pidsBeyond = 4 * pidsMax
)

// needRoot skips the test unless it runs as root and can mount with FUSE, because the tests act as
// two users, and mount. In CI the test then fails instead.
func needRoot(t *testing.T) {
	t.Helper()
	err := mountpoint.CheckFUSE()
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("needs root: it acts as two users")
	}
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("CI must be able to run this: %v", err)
	default:
		t.Skip(err)
	}
}

var builds struct {
	once sync.Once
	dir  string
	err  error
}

// programsDir returns a directory with programs that every user may execute: hostile, a set-uid copy
// of hostile, rootsfs, and a copy of this test binary with the name driver.
func programsDir(t *testing.T) string {
	t.Helper()
	builds.once.Do(func() {
		if builds.dir, builds.err = os.MkdirTemp(guardtest.SharedTemp(), "rootsfs-hostile-"); builds.err != nil {
			return
		}
		if builds.err = os.Chmod(builds.dir, 0o755); builds.err != nil {
			return
		}
		if builds.err = testkit.Build(builds.dir+"/", "./hostile", "../../cmd/rootsfs"); builds.err != nil {
			return
		}
		builds.err = errors.Join(
			copyFile(filepath.Join(builds.dir, "hostile"), filepath.Join(builds.dir, "setuid"), 0o755|os.ModeSetuid),
			copyFile("/proc/self/exe", filepath.Join(builds.dir, "driver"), 0o755))
	})
	testkit.Must(t, builds.err)
	return builds.dir
}

func copyFile(from, to string, mode os.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		return err
	}
	return os.Chmod(to, mode)
}

// newOutside lays out the files for one caller.
func newOutside(t *testing.T, w caller) *outside {
	t.Helper()
	needRoot(t)
	unix.Umask(0o022)
	base, err := os.MkdirTemp(guardtest.SharedTemp(), "rootsfs-outside-")
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(base, 0o755))
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(base)) })
	o := &outside{t: t, caller: w, base: base}
	o.SecretContent, o.Log = "the owner's secret "+t.Name(), "the host's log "+t.Name()
	o.Pids = pidsBeyond
	instances, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	testkit.Must(t, err)
	o.Inotify, err = strconv.Atoi(strings.TrimSpace(string(instances)))
	testkit.Must(t, err)
	o.root, o.home = filepath.Join(base, "root"), filepath.Join(base, "home")
	o.resetFiles()
	o.resetRoot()
	o.makeCallerDirs()
	return o
}

// addTargets adds the targets of the hostile program that newOutside does not make: sockets, a
// process, shared memory, another session, and the host's name.
func (o *outside) addTargets() {
	o.t.Helper()
	o.listen()
	o.startVictim()
	o.makeSharedMemory()
	o.startSession()
	var u unix.Utsname
	testkit.Must(o.t, unix.Uname(&u))
	o.Host = unix.ByteSliceToString(u.Nodename[:])
}

// give gives a file to the command's user with the given mode, so that only confinement protects
// the file.
func (o *outside) give(path string, mode os.FileMode) {
	o.t.Helper()
	testkit.Must(o.t, os.Chmod(path, mode))
	testkit.Must(o.t, os.Lchown(path, o.caller.commandUID(), o.caller.commandUID()))
}

// own gives a file to the caller.
func (o *outside) own(path string) {
	o.t.Helper()
	testkit.Must(o.t, os.Lchown(path, o.caller.uid, o.caller.uid))
}

// makeCallerDirs makes the directories in which rootsfs keeps the caller's files. For an ordinary
// user it also makes a /dev/fuse and an /etc/passwd, without which the user may be unable to mount.
func (o *outside) makeCallerDirs() {
	t := o.t
	o.env = []string{"PATH=/usr/bin:/bin"}
	for _, name := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		dir := filepath.Join(o.base, strings.ToLower(name))
		testkit.Must(t, os.Mkdir(dir, 0o700))
		o.own(dir)
		o.env = append(o.env, name+"="+dir)
	}
	o.Session = filepath.Join(o.base, "xdg_runtime_dir/rootsfs", sessionName)
	if o.caller.uid == 0 {
		return
	}
	fuse, passwd := filepath.Join(o.base, "fuse"), filepath.Join(o.base, "passwd")
	o.mounts = map[string]string{"/dev/fuse": fuse, "/etc/passwd": passwd}
	testkit.Must(t, unix.Mknod(fuse, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))))
	testkit.Must(t, os.Chmod(fuse, 0o666))
	known, err := os.ReadFile("/etc/passwd")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(passwd, fmt.Appendf(known, "caller:x:%d:%d::/nonexistent:/bin/sh\n", o.caller.uid, o.caller.uid), 0o644))
}

// sessionName is the name of the sessions of runs.
const sessionName = "hostile"

// startSession starts another session of the owner. Its control socket and audit file are targets.
func (o *outside) startSession() {
	t := o.t
	dir := filepath.Join(o.base, "witness")
	testkit.Must(t, os.Mkdir(dir, 0o755))
	cmd := o.driver(order{Args: o.rootsfs("serve", "--name", "witness", "--root", dir+":ro")})
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	cmd.Stderr = os.Stderr
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		testkit.Must(t, in.Close())
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other session: %v", err)
		}
	})
	o.Control = filepath.Join(o.base, "xdg_runtime_dir/rootsfs/witness/control.sock")
	testkit.Until(t, "the other session begins", func() bool {
		logs, err := filepath.Glob(filepath.Join(o.base, "xdg_state_home/rootsfs/audit/witness*.jsonl"))
		testkit.Must(t, err)
		if _, err := os.Stat(o.Control); err != nil || len(logs) != 1 {
			return false
		}
		o.Audit = logs[0]
		return true
	})
}

// listenInRoot listens on a socket in the root, until the next run.
func (o *outside) listenInRoot() {
	t, path := o.t, filepath.Join(o.root, "socket")
	if o.closeRootSocket != nil {
		o.closeRootSocket()
	}
	l, err := net.Listen("unix", path)
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(path, 0o777))
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	o.closeRootSocket = sync.OnceFunc(acceptAll(l))
	t.Cleanup(o.closeRootSocket)
}

// resetFiles makes the files of the host again, so that each run finds them unchanged.
func (o *outside) resetFiles() {
	t := o.t
	o.Dir = filepath.Join(o.base, "outside")
	testkit.Must(t, os.MkdirAll(o.Dir, 0o777))
	o.Secret = filepath.Join(o.Dir, "secret")
	for _, n := range []string{"made", "made-by-sh"} {
		testkit.Must(t, os.RemoveAll(filepath.Join(o.Dir, n)))
	}
	for _, n := range []string{"secret", "movable", "renamable", "removable", "movable-sh", "removable-sh"} {
		testkit.Must(t, os.WriteFile(filepath.Join(o.Dir, n), []byte(o.SecretContent), 0o666))
		o.give(filepath.Join(o.Dir, n), 0o666)
	}
	o.give(o.Dir, 0o777)
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, o.Secret, 0)
	testkit.Must(t, err)
	o.Handle = fmt.Sprintf("%d:%s", h.Type(), hex.EncodeToString(h.Bytes()))
}

// resetRoot makes the root and a HOME again for each run. The binaries hostile and setuid in the root
// are hard links to the files in programsDir, because the files are large and there are many runs. No
// command may write to them.
func (o *outside) resetRoot() {
	t, dir := o.t, o.root
	for _, d := range []string{dir, o.home} {
		testkit.Must(t, os.RemoveAll(d))
		testkit.Must(t, os.Mkdir(d, 0o755))
		o.give(d, 0o755)
	}
	testkit.Must(t, os.Link(filepath.Join(programsDir(t), "hostile"), filepath.Join(dir, "hostile")))
	testkit.Must(t, copyFile("hostile/hostile.sh", filepath.Join(dir, "hostile.sh"), 0o755))
	testkit.Must(t, os.Link(filepath.Join(programsDir(t), "setuid"), filepath.Join(dir, "setuid")))
	testkit.Must(t, os.Symlink(o.Secret, filepath.Join(dir, "link")))
	o.listenInRoot()
}

// listen opens the Unix, TCP and UDP sockets that the hostile program tries to reach, and notes the
// network namespace.
func (o *outside) listen() {
	t := o.t
	o.Pathname = filepath.Join(o.Dir, "socket")
	o.Abstract = "rootsfs-hostile-" + filepath.Base(o.base)
	o.System = filepath.Join(o.makeSystemDir(), "socket")
	for _, addr := range []string{o.Pathname, "@" + o.Abstract, o.System} {
		l, err := net.Listen("unix", addr)
		testkit.Must(t, err)
		serve(t, l)
		d, err := net.ListenPacket("unixgram", addr+".dgram")
		testkit.Must(t, err)
		t.Cleanup(func() { d.Close() })
		if addr[0] == '/' {
			testkit.Must(t, os.Chmod(addr, 0o777))
			testkit.Must(t, os.Chmod(addr+".dgram", 0o777))
		}
	}
	var err error
	o.Net, err = os.Readlink("/proc/self/ns/net")
	testkit.Must(t, err)
	o.listenShared()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0") // speaks MPTCP too
	testkit.Must(t, err)
	serve(t, tcp)
	o.TCP = tcp.Addr().String()
	o.MPTCP = o.TCP
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	testkit.Must(t, err)
	o.UDP = udp.LocalAddr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() { udp.Close(); <-done })
}

// listenShared listens as the command's own user, and lets other processes of that user listen on
// the same port.
func (o *outside) listenShared() {
	t := o.t
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	testkit.Must(t, unix.Fchown(s, o.caller.commandUID(), o.caller.commandUID())) // SO_REUSEPORT compares the sockets' owners
	testkit.Must(t, unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	testkit.Must(t, unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	testkit.Must(t, unix.Listen(s, 1))
	at, err := unix.Getsockname(s)
	testkit.Must(t, err)
	o.Shared = fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
	t.Cleanup(func() { testkit.Must(t, unix.Close(s)) })
}

// makeSystemDir makes a directory in /usr/local.
func (o *outside) makeSystemDir() string {
	t := o.t
	dir, err := os.MkdirTemp("/usr/local", "rootsfs-hostile-")
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
	return dir
}

func serve(t *testing.T, l net.Listener) { t.Cleanup(acceptAll(l)) }

// acceptAll accepts every connection and closes it, until end is called.
func acceptAll(l net.Listener) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return func() { l.Close(); <-done }
}

// startVictim starts the victim as the user that the command runs as.
func (o *outside) startVictim() {
	t := o.t
	cmd := &exec.Cmd{
		Path: filepath.Join(programsDir(t), "driver"), Args: []string{"rootsfs-victim"}, Env: []string{victimVar + "=" + o.SecretContent}, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.caller.commandUID()), Gid: uint32(o.caller.commandUID())}},
	}
	f, err := os.Open(o.Secret)
	testkit.Must(t, err)
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f}
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	var mu sync.Mutex
	var victimOutput strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			line, err := lines.ReadString('\n')
			mu.Lock()
			victimOutput.WriteString(line)
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	o.Victim = cmd.Process.Pid
	o.victimSays = func() string { mu.Lock(); defer mu.Unlock(); return victimOutput.String() }
	t.Cleanup(func() {
		in.Close()
		<-done
		if err := cmd.Wait(); err != nil {
			t.Errorf("the victim: %v", err)
		}
	})
}

// makeSharedMemory makes a shared memory segment and a file in /dev/shm.
func (o *outside) makeSharedMemory() {
	t := o.t
	o.ShmKey = 0x726f6f74 + os.Getpid()
	get := func() (id uintptr, errno unix.Errno) {
		id, _, errno = unix.Syscall(unix.SYS_SHMGET, uintptr(o.ShmKey), 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
		return id, errno
	}
	id, errno := get()
	for ; errno == unix.EEXIST; id, errno = get() {
		o.ShmKey++ // another test uses this key
	}
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(int(id), unix.IPC_RMID, nil) })
	f, err := os.CreateTemp("/dev/shm", "rootsfs-hostile-")
	testkit.Must(t, err)
	_, err = f.WriteString(o.SecretContent)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	o.Shm = f.Name()
	o.give(o.Shm, 0o666)
	t.Cleanup(func() { testkit.Must(t, os.Remove(o.Shm)) })
}
