// Package lab serves a mount from a process of its own, so that a test may
// touch the mount as any other program does: with its own system calls, and by
// starting programs inside it. (A process must not touch a mount that it serves
// itself: a page fault or the fork of a child would wait for this process's own Go
// runtime, which has to answer the request.)
//
// A test package that uses package lab calls Main in its TestMain: the test binary
// runs itself again to be the daemon. Every mount is gone when its test has ended,
// also when the test failed or was killed: the daemon lives as long as its
// standard input is open.
//
// The package is for tests only.
package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// daemonVar holds the daemon's configuration in a re-run of the test binary.
const daemonVar = "ROOTSFS_LAB_DAEMON"

// Root is a directory to be granted under a name.
type Root struct {
	Name, Dir string
	ReadOnly  bool
}

// config is the configuration of the daemon.
type config struct {
	Point     string
	Level     string
	ReadOnly  bool // the mount itself (MS_RDONLY)
	PosixFull bool
	Stages    string // the directory for the changes of staged roots; "" if the roots are not staged
	Roots     []Root
}

// Main is the TestMain of a package that uses the lab. Each key of modes is the name of an
// environment variable. If the variable is set, Main calls the key's function with the value of the
// variable instead of running the tests.
func Main(m *testing.M, modes map[string]func(arg string) error) {
	if raw, ok := os.LookupEnv(daemonVar); ok {
		exitWith(serve(raw, os.Stdin, os.Stdout))
	}
	for name, f := range modes {
		if arg, ok := os.LookupEnv(name); ok {
			exitWith(f(arg))
		}
	}
	code := childfs.Main(m)
	for _, f := range afterTests {
		f()
	}
	os.Exit(code)
}

var afterTests []func()

// After registers a function to call when all tests have ended, for resources that the
// tests share.
func After(f func()) { afterTests = append(afterTests, f) }

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve mounts, writes "ready" to out, and unmounts when in ends.
func serve(raw string, in io.Reader, out io.Writer) error {
	var c config
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	level, err := mount.ParseLevel(c.Level)
	if err != nil {
		return err
	}
	ctx := context.Background()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(c.Stages, "lab")})
	for _, r := range c.Roots {
		rights := guard.ReadWrite
		if r.ReadOnly {
			rights = guard.ReadOnly
		}
		if c.Stages != "" {
			rights |= guard.Stage
		}
		g := guard.Grant{Root: guard.RootName(r.Name), Dir: names.Foreign(r.Dir), Origin: "test",
			Policy: guard.Policy{Rights: rights, PosixFull: c.PosixFull}}
		if _, err := reg.Grant(ctx, g); err != nil {
			return err
		}
	}
	m, err := mount.New(reg, mount.Options{Point: c.Point, Level: level, ReadOnly: c.ReadOnly, AllowOther: os.Getuid() == 0})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	_, _ = io.Copy(io.Discard, in)
	if _, err := reg.RevokeAll(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "revoke:", err)
	}
	if err := m.Close(); err != nil {
		return err
	}
	<-m.Served()
	return nil
}

// Mount is a mount served by a child.
type Mount struct {
	Point string
	Level string
	info  mountpoint.Info
	cmd   *exec.Cmd
	stdin io.Closer
}

// Path returns a path in the mount.
func (m *Mount) Path(elem ...string) string {
	return filepath.Join(append([]string{m.Point}, elem...)...)
}

// NeedFUSE skips the test where there is no FUSE and for users other than root. In CI it fails the
// test instead.
func NeedFUSE(t testing.TB) {
	t.Helper()
	err := mountpoint.CheckFUSE()
	if err == nil && os.Geteuid() != 0 {
		err = fmt.Errorf("cannot mount: this suite works as root, who may act as other users")
	}
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("CI must be able to mount: %v", err)
	default:
		t.Skip(err)
	}
}

// Option changes how a mount is made.
type Option func(*config)

// PosixFull lifts the restrictions on special files, set-id bits and security
// attributes.
func PosixFull(c *config) { c.PosixFull = true }

// Staged stages all roots: their changes go to the directory stages, not to their sources.
func Staged(stages string) Option { return func(c *config) { c.Stages = stages } }

// MountReadOnly makes the mount itself read-only, which level max needs for
// read-only roots.
func MountReadOnly(c *config) { c.ReadOnly = true }

// Start mounts the roots at a cache level until the test ends.
func Start(t testing.TB, level string, roots []Root, opts ...Option) *Mount {
	t.Helper()
	NeedFUSE(t)
	dir := Dir(t)
	c := config{Point: filepath.Join(dir, "mnt"), Level: level, Roots: roots}
	for _, o := range opts {
		o(&c)
	}
	if err := os.Mkdir(c.Point, 0o755); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), daemonVar+"="+string(raw))
	cmd.Stderr = os.Stderr
	// The daemon has its own process group, so that an interrupt of the test does not end the
	// daemon before the daemon has unmounted.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &Mount{Point: c.Point, Level: level, cmd: cmd, stdin: stdin}
	t.Cleanup(func() { m.stop(t) })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the daemon said %q, %v", line, err)
	}
	if m.info, err = mountpoint.Find(c.Point); err != nil {
		t.Fatal(err)
	}
	return m
}

// stopTimeout is how long a daemon may take to end. After that time the daemon gets SIGQUIT, and
// after the same time again SIGKILL: a hang is a failure, and must not leave a mount behind.
const stopTimeout = 30 * time.Second

// stop ends the daemon. If the mount is still there afterwards, stop unmounts it.
func (m *Mount) stop(t testing.TB) {
	_ = m.stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- m.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("daemon: %v", err)
		}
	case <-time.After(stopTimeout):
		t.Errorf("the daemon did not end within %v (pid %d): killing it; its mount is held by %q", stopTimeout, m.cmd.Process.Pid, m.holders())
		_ = m.cmd.Process.Signal(syscall.SIGQUIT) // the daemon prints where it hangs
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = m.cmd.Process.Kill()
		}
	}
	if Mounted(m.Point) {
		if m.cmd.ProcessState == nil || m.cmd.ProcessState.Success() {
			t.Errorf("%s is still mounted", m.Point)
		}
		_ = unix.Unmount(m.Point, unix.MNT_DETACH)
	}
}

// holders describes the processes that use a part of the mount. It finds them by the mount's ID
// and device number, because a detached mount has no path any more.
func (m *Mount) holders() []string {
	var out []string
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	maps, _ := filepath.Glob("/proc/[0-9]*/maps")
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	major, minor, _ := strings.Cut(m.info.Dev, ":")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	for sign, names := range map[string][]string{
		fmt.Sprintf("mnt_id:\t%d\n", m.info.ID): files,
		fmt.Sprintf(" %02x:%02x ", a, b):        maps,
		" " + m.info.Dev + " ":                  tables,
	} {
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), sign) {
				command, _ := os.ReadFile("/proc/" + strings.Split(name, "/")[2] + "/cmdline")
				out = append(out, fmt.Sprintf("%s of %q", name, command))
			}
		}
	}
	return out
}

// Mounted reports whether a mount is at a path.
func Mounted(point string) bool {
	table, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(table), " "+point+" ")
}

// Dir returns a temporary directory that every user may enter. (With some umasks, other users may
// not enter the directory of t.TempDir.) The directory is removed after the test. If its
// subdirectory mnt is still a mount point, the test fails and the directory stays, because the
// removal would descend into the mount.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rootsfs-lab-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if Mounted(filepath.Join(dir, "mnt")) {
			t.Errorf("left behind: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Soak says whether loops run in full (ROOTSFS_SOAK=1).
func Soak() bool { return os.Getenv("ROOTSFS_SOAK") != "" }
