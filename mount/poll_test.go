package mount

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// readsOwnEnv names the directory of a child process that reads its own mount.
const readsOwnEnv = "ROOTSFS_READS_OWN"

func init() {
	child, dir := childReadsOwn, os.Getenv(readsOwnEnv)
	if dir == "" {
		child, dir = childPolls, os.Getenv(pollsEnv)
	}
	if dir == "" {
		return
	}
	if err := child(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// requireRoot skips a test that mounts as root, if that is not possible. In CI it fails the
// test.
func requireRoot(t *testing.T) {
	t.Helper()
	err := mountpoint.CheckFUSE()
	switch {
	case err == nil && os.Geteuid() == 0:
	case os.Getenv("CI") != "":
		t.Fatalf("CI must be able to mount as root: %v", err)
	default:
		t.Skipf("root is needed: %v", err)
	}
}

// newSourceAndPoint makes a directory with the directories "src" and "mnt" for a child
// process, and unmounts what the child leaves at "mnt".
func newSourceAndPoint(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"src", "mnt"} {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "mnt"), unix.MNT_DETACH) })
	return dir
}

// childReadsOwn reads a file of a mount in the process that serves the mount, with one
// processor. No program should do that, but it must not hang the machine.
func childReadsOwn(dir string) error {
	runtime.GOMAXPROCS(1)
	src, point := filepath.Join(dir, "src"), filepath.Join(dir, "mnt")
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "code", Dir: names.Foreign(src), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})
	if err != nil {
		return err
	}
	m, err := New(reg, Options{Point: point})
	if err != nil {
		return err
	}
	fmt.Println(m.Info().Dev)
	text, err := os.ReadFile(filepath.Join(point, "code/a"))
	if err != nil || string(text) != "hello" {
		return fmt.Errorf("read %q: %w", text, err)
	}
	fmt.Println("read")
	if _, err := reg.RevokeAll(context.Background()); err != nil {
		return err
	}
	return m.Close()
}

// A process with one processor of Go's runtime reads a file of the mount that it serves. For a file
// that the runtime opens, the kernel could send POLL, and the system call that waits for the answer
// would occupy the only processor, so that no goroutine could answer. New prevents this: it has the
// kernel send one POLL, from another thread, and answers ENOSYS (AnswerPoll). Then the kernel sends no
// more.
func TestMountReadByItsServer(t *testing.T) {
	requireRoot(t)
	dir := newSourceAndPoint(t)
	if err := os.WriteFile(filepath.Join(dir, "src/a"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), readsOwnEnv+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	dev, err := in.ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	hung := time.AfterFunc(30*time.Second, func() {
		t.Errorf("the process hangs; aborting its connection: %v", mountpoint.Abort(strings.TrimSpace(dev)))
	})
	rest, _ := io.ReadAll(in)
	err = cmd.Wait()
	hung.Stop()
	if err != nil || string(rest) != "read\n" {
		t.Errorf("%q, %v: %s", rest, err, stderr.String())
	}
}

// When New returns, one POLL was answered with ENOSYS. The POLL came from a thread that is not the
// main thread of this process.
func TestMountAnswersPoll(t *testing.T) {
	requireRoot(t)
	log := &lockedLog{}
	m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) {
		o.Debug, o.Log = true, slog.New(slog.NewTextHandler(log, nil))
	})
	text := log.String()
	if !strings.Contains(text, ": POLL ") || !strings.Contains(text, "function not implemented") {
		t.Errorf("the kernel has not been told that there is no POLL:\n%s", text)
	}
	for line := range strings.Lines(text) {
		if _, who, ok := strings.Cut(line, ": POLL "); ok && strings.Contains(who, fmt.Sprintf(" p%d ", os.Getpid())) {
			t.Errorf("the main thread caused a POLL: %s", line)
		}
	}
	testkit.Must(t, m.Close())
	<-m.Served() // would block if the thread that polled still held a descriptor of the mount
}
