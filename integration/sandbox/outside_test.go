package sandbox

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// who is whom a caller runs as.
type who struct {
	name string
	uid  int // of the caller
}

var everybody = []who{{"root", 0}, {"user", 1001}}

// commandUID is whom the command of a caller runs as.
func (w who) commandUID() int {
	if w.uid == 0 {
		uid, _ := sandbox.DefaultID()
		return int(uid)
	}
	return w.uid
}

// targets has the fields that the hostile program reads.
type targets struct {
	Secret, Says, Dir, Root, Link, SetUID, Handle string
	Victim, Parent                                int
	Pathname, Abstract, TCP, UDP, MPTCP, Log      string
	ShmKey                                        int
	Shm                                           string
	Pids                                          int
	Host                                          string
}

// outside is everything that the hostile program must not reach, and the tree
// with its one root.
type outside struct {
	t    *testing.T
	who  who
	base string // 0755
	tree string
	root string // a path inside
	targets
	victimSays func() string // what the victim has heard so far
	order      []string      // of attempts, as they were made first
}

// pidsMax is the limit in these runs. Far beyond it means beyond what others of
// the same uid take of it at level Landlock.
const (
	pidsMax = 64
	beyond  = 4 * pidsMax
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// needRoot: the tests act as two users.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("CI must run this as root: it acts as two users")
	}
	t.Skip("needs root: it acts as two users")
}

var builds struct {
	once sync.Once
	dir  string
	err  error
}

// built is a directory with the hostile program, and this test's own, where
// everybody may execute them.
func built(t *testing.T) string {
	t.Helper()
	builds.once.Do(func() {
		if builds.dir, builds.err = os.MkdirTemp("", "rootsfs-hostile-"); builds.err != nil {
			return
		}
		if builds.err = os.Chmod(builds.dir, 0o755); builds.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(builds.dir, "hostile"), "./hostile")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			builds.err = fmt.Errorf("build the hostile program: %w\n%s", err, out)
			return
		}
		builds.err = copyFile("/proc/self/exe", filepath.Join(builds.dir, "driver"), 0o755)
	})
	must(t, builds.err)
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

// newOutside lays everything out for one caller.
func newOutside(t *testing.T, w who) *outside {
	t.Helper()
	needRoot(t)
	unix.Umask(0o022)
	base, err := os.MkdirTemp("", "rootsfs-outside-")
	must(t, err)
	must(t, os.Chmod(base, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	o := &outside{t: t, who: w, base: base}
	o.Says, o.Log = "the owner's secret "+t.Name(), "the host's log "+t.Name()
	o.Pids = beyond
	o.files()
	must(t, os.Mkdir(o.private(), 0o700))
	o.own(o.private())
	o.plant()
	o.listen()
	o.victim()
	o.shared()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	o.Host = unix.ByteSliceToString(u.Nodename[:])
	return o
}

// give makes something the command's user's, with rights for all: nothing but
// confinement protects it.
func (o *outside) give(path string, mode os.FileMode) {
	o.t.Helper()
	must(o.t, os.Chmod(path, mode))
	must(o.t, os.Lchown(path, o.who.commandUID(), o.who.commandUID()))
}

// own gives something of the caller's to the caller.
func (o *outside) own(path string) {
	o.t.Helper()
	must(o.t, os.Lchown(path, o.who.uid, o.who.uid))
}

// private is the caller's directory for levels without namespaces.
func (o *outside) private() string { return filepath.Join(o.base, "run") }

// files are those of the host. Each run finds them as if it were the first.
func (o *outside) files() {
	t := o.t
	o.Dir = filepath.Join(o.base, "outside")
	must(t, os.MkdirAll(o.Dir, 0o777))
	o.Secret = filepath.Join(o.Dir, "secret")
	for _, n := range []string{"made", "made-by-sh"} {
		must(t, os.RemoveAll(filepath.Join(o.Dir, n)))
	}
	for _, n := range []string{"secret", "movable", "renamable", "removable", "movable-sh", "removable-sh"} {
		must(t, os.WriteFile(filepath.Join(o.Dir, n), []byte(o.Says), 0o666))
		o.give(filepath.Join(o.Dir, n), 0o666)
	}
	o.give(o.Dir, 0o777)
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, o.Secret, 0)
	must(t, err)
	o.Handle = fmt.Sprintf("%d:%s", h.Type(), hex.EncodeToString(h.Bytes()))
}

// plant makes the tree: a plain directory stands in for the mount.
func (o *outside) plant() {
	t := o.t
	parent := filepath.Join(o.base, "private")
	must(t, os.RemoveAll(parent))
	o.tree = filepath.Join(parent, "mnt")
	o.root = "/srv/rootsfs-hostile"
	dir := o.tree + o.root
	must(t, os.MkdirAll(dir, 0o755))
	o.give(dir, 0o755)
	must(t, copyFile(filepath.Join(built(t), "hostile"), filepath.Join(dir, "hostile"), 0o755))
	must(t, copyFile("hostile/hostile.sh", filepath.Join(dir, "hostile.sh"), 0o755))
	must(t, copyFile(filepath.Join(built(t), "hostile"), filepath.Join(dir, "setuid"), 0o755))
	must(t, os.Chmod(filepath.Join(dir, "setuid"), 0o755|os.ModeSetuid))
	must(t, os.Symlink(o.Secret, filepath.Join(dir, "link")))
	must(t, os.Chmod(parent, 0o700))
	o.own(parent)
}

// listen opens sockets that answer whoever gets through.
func (o *outside) listen() {
	t := o.t
	o.Pathname = filepath.Join(o.Dir, "socket")
	o.Abstract = "rootsfs-hostile-" + filepath.Base(o.base)
	for _, addr := range []string{o.Pathname, "@" + o.Abstract} {
		l, err := net.Listen("unix", addr)
		must(t, err)
		serve(t, l)
	}
	must(t, os.Chmod(o.Pathname, 0o777))
	dgram, err := net.ListenPacket("unixgram", o.Pathname+".dgram")
	must(t, err)
	must(t, os.Chmod(o.Pathname+".dgram", 0o777))
	t.Cleanup(func() { dgram.Close() })
	tcp, err := net.Listen("tcp4", "127.0.0.1:0") // speaks MPTCP too
	must(t, err)
	serve(t, tcp)
	o.TCP = tcp.Addr().String()
	o.MPTCP = o.TCP
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
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

func serve(t *testing.T, l net.Listener) {
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
	t.Cleanup(func() { l.Close(); <-done })
}

// victim starts a process of the user that the command runs as.
func (o *outside) victim() {
	t := o.t
	cmd := &exec.Cmd{
		Path: filepath.Join(built(t), "driver"), Args: []string{"rootsfs-victim"}, Env: []string{victimVar + "=" + o.Says}, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.who.commandUID()), Gid: uint32(o.who.commandUID())}},
	}
	f, err := os.Open(o.Secret)
	must(t, err)
	defer f.Close()
	cmd.ExtraFiles = []*os.File{f}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	var mu sync.Mutex
	var heard strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			line, err := lines.ReadString('\n')
			mu.Lock()
			heard.WriteString(line)
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	o.Victim = cmd.Process.Pid
	o.victimSays = func() string { mu.Lock(); defer mu.Unlock(); return heard.String() }
	t.Cleanup(func() {
		in.Close()
		<-done
		if err := cmd.Wait(); err != nil {
			t.Errorf("the victim: %v", err)
		}
	})
}

// shared makes what processes of a user share without files.
func (o *outside) shared() {
	t := o.t
	o.ShmKey = 0x726f6f74 + os.Getpid() // any number that is not taken
	id, _, errno := unix.Syscall(unix.SYS_SHMGET, uintptr(o.ShmKey), 4096, unix.IPC_CREAT|0o666)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(int(id), unix.IPC_RMID, nil) })
	f, err := os.CreateTemp("/dev/shm", "rootsfs-hostile-")
	must(t, err)
	_, err = f.WriteString(o.Says)
	must(t, err)
	must(t, f.Close())
	o.Shm = f.Name()
	o.give(o.Shm, 0o666)
	t.Cleanup(func() { must(t, os.Remove(o.Shm)) })
}

// result is what the hostile program prints for an attempt.
type result struct {
	Name   string
	Worked bool
	Detail string
}

// giveUp ends a run that hangs; it is never what a test waits for.
const giveUp = 2 * time.Minute

// options are those of a run at a level.
func (o *outside) options(level sandbox.Level, args ...string) sandbox.Options {
	return sandbox.Options{
		Args: args, Level: level, Tree: o.tree, Roots: []string{o.root}, Dir: o.root, Private: o.private(), PidsMax: pidsMax,
		Env: []string{"PATH=/usr/bin:/bin"},
	}
}

// run starts a driver with an order and returns what came out of it and what the
// log holds afterwards.
func (o *outside) run(ord order) (stdout, log string, code int) {
	t := o.t
	t.Helper()
	o.files()
	o.plant()
	raw, err := json.Marshal(ord)
	must(t, err)
	cmd := exec.Command(filepath.Join(built(t), "driver"))
	cmd.Env = []string{driverVar + "=" + string(raw), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	logFile, err := os.OpenFile(filepath.Join(o.base, "log"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o666)
	must(t, err)
	defer logFile.Close()
	must(t, os.Chmod(logFile.Name(), 0o666))
	_, err = logFile.WriteString(o.Log + "\n")
	must(t, err)
	cmd.Stderr = logFile
	leak, err := os.Open(o.Secret)
	must(t, err)
	defer leak.Close()
	cmd.ExtraFiles = []*os.File{leak} // as a careless host leaves it open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.who.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.who.uid), Gid: uint32(o.who.uid)}
	}
	if ord.Bare && o.who.uid == 0 {
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS // what it mounts is gone with it
	}
	if ord.Terminal {
		master, slave, err := pty.Open()
		must(t, err)
		defer master.Close()
		defer slave.Close()
		must(t, slave.Chmod(0o666))
		cmd.Stdin = slave
	}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	timer := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
	b, err := io.ReadAll(out)
	must(t, err)
	_ = cmd.Wait() // its exit code is asked for below
	if !timer.Stop() {
		t.Fatalf("the run did not end within %v", giveUp)
	}
	text, err := os.ReadFile(logFile.Name())
	must(t, err)
	return string(b), strings.TrimPrefix(string(text), o.Log+"\n"), cmd.ProcessState.ExitCode()
}
