package serve

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// An unused session does not wake up: its threads give up a processor at most 20 times in
// ten seconds. A timer of once a second alone would take more.
func TestSessionAtRest(t *testing.T) {
	lab.NeedFUSE(t)
	h := newHome(t)
	dir := undisturbed(t)
	conf, src, point := filepath.Join(dir, "conf.toml"), filepath.Join(dir, "src"), filepath.Join(dir, "point")
	testkit.Must(t, os.WriteFile(conf, []byte("[[root]]\npath = "+strconv.Quote(src)+"\nmode = \"rw\"\n"), 0o600))
	testkit.Must(t, os.Mkdir(src, 0o755))
	testkit.Must(t, os.Mkdir(point, 0o755))
	h.mustRun("mount", "--daemon", "--name", "rest", "--config", conf, point)
	defer h.mustRun("unmount", "rest")
	testkit.Must(t, os.WriteFile(filepath.Join(point, "src", "f"), nil, 0o600))
	text, err := os.ReadFile(filepath.Join(h.dir, "XDG_RUNTIME_DIR/rootsfs/rest/pid"))
	testkit.Must(t, err)
	pid, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	rests(t, pid)
}

// Commands that show events do not poll: while nothing happens, they wake up as rarely as a
// session.
func TestFollowersAtRest(t *testing.T) {
	lab.NeedFUSE(t)
	h := newHome(t)
	dir := undisturbed(t)
	h.env = nil
	for _, v := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, v), 0o700))
		h.env = append(h.env, v+"="+filepath.Join(dir, v))
	}
	src, point := filepath.Join(dir, "src"), filepath.Join(dir, "point")
	testkit.Must(t, os.Mkdir(src, 0o755))
	testkit.Must(t, os.Mkdir(point, 0o755))
	h.mustRun("mount", "--daemon", "--name", "rest", "--root", src, point)
	defer func() { _ = h.command("unmount", "rest").Run() }() // fails if it was unmounted already
	follow := func(args ...string) {
		t.Helper()
		t.Log(args)
		cmd := h.command(args...)
		testkit.Must(t, cmd.Start())
		defer func() {
			testkit.Must(t, cmd.Process.Kill())
			_ = cmd.Wait() // says that it was killed
		}()
		rests(t, strconv.Itoa(cmd.Process.Pid))
	}
	follow("audit", "follow")
	follow("status", "--watch")
	h.mustRun("unmount", "rest")
	follow("console") // a session tells it its figures once a second
}

// undisturbed returns a directory that no other process uses, in a mount namespace of the test's
// own: other mounts, and other files in /tmp, wake a session up.
func undisturbed(t *testing.T) string {
	t.Helper()
	if err := lab.OwnMounts(); errors.Is(err, unix.EPERM) {
		t.Skip("only root can have a mount namespace without the mounts of other tests")
	} else if err != nil {
		t.Fatal(err)
	}
	const dir = "/mnt"
	testkit.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	return dir
}

// rests fails the test if a process wakes up more often than an idle one.
func rests(t *testing.T, pid string) {
	t.Helper()
	const looks, most = 5, 20
	for range looks {
		before := switches(t, pid)
		time.Sleep(10 * time.Second)
		n := switches(t, pid) - before
		if n <= most {
			return
		}
		t.Logf("%d times in ten seconds", n)
	}
	t.Errorf("more than %d times in each of %d looks", most, looks)
}

// switches returns how often the threads of a process have given up their processors.
func switches(t *testing.T, pid string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/" + pid + "/task/*/status")
	testkit.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		testkit.Must(t, err)
		_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		count, _, _ := strings.Cut(after, "\n")
		one, err := strconv.Atoi(strings.TrimSpace(count))
		testkit.Must(t, err)
		n += one
	}
	return n
}
