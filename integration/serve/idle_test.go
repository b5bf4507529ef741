package serve

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// An unused session hardly ever wakes up, and commands that show events do not poll. While nothing
// happens, the threads of such a process give up a processor at most 20 times in ten seconds. A
// timer that fires once a second would alone cause more.
func TestAtRest(t *testing.T) {
	lab.NeedFUSE(t)
	dir := privateDir(t)
	unused := homeIn(t, filepath.Join(dir, "unused"))
	src, point, conf := filepath.Join(unused.dir, "src"), filepath.Join(unused.dir, "point"), filepath.Join(unused.dir, "conf.toml")
	testkit.Must(t, os.WriteFile(conf, []byte("[[root]]\npath = "+strconv.Quote(src)+"\nmode = \"rw\"\n"), 0o600))
	unused.mustRun("mount", "--daemon", "--name", "rest", "--config", conf, point)
	defer unused.mustRun("unmount", "rest")
	testkit.Must(t, os.WriteFile(filepath.Join(point, "src", "f"), nil, 0o600))
	text, err := os.ReadFile(filepath.Join(unused.dir, "XDG_RUNTIME_DIR/rootsfs/rest/pid"))
	testkit.Must(t, err)
	pid, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	pids := map[string]string{"session": pid}

	followed := homeIn(t, filepath.Join(dir, "followed"))
	followed.mustRun("mount", "--daemon", "--name", "rest", "--root", filepath.Join(followed.dir, "src"), filepath.Join(followed.dir, "point"))
	defer followed.mustRun("unmount", "rest")
	for _, f := range []struct {
		home *home
		args []string
	}{
		{followed, []string{"audit", "follow"}},
		{followed, []string{"status", "--watch"}},
		{homeIn(t, filepath.Join(dir, "none")), []string{"console"}}, // without a session, which would send figures every second
	} {
		cmd := f.home.command(f.args...)
		testkit.Must(t, cmd.Start())
		defer func() {
			testkit.Must(t, cmd.Process.Kill())
			_ = cmd.Wait() // the error is that the command was killed
		}()
		pids[strings.Join(f.args, " ")] = strconv.Itoa(cmd.Process.Pid)
	}
	checkIdle(t, pids)
}

// homeIn returns a home whose sessions have their files in dir. It makes dir, with the directories
// src for a root and point for a mount.
func homeIn(t *testing.T, dir string) *home {
	t.Helper()
	h := newHome(t)
	h.dir, h.env = dir, nil
	for _, v := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, v), 0o700))
		h.env = append(h.env, v+"="+filepath.Join(dir, v))
	}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "src"), 0o755), os.Mkdir(filepath.Join(dir, "point"), 0o755))
	return h
}

// privateDir returns a directory that no other process uses, in a mount namespace of the test's
// own: other mounts, and other files in /tmp, wake a session up.
func privateDir(t *testing.T) string {
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

// checkIdle fails the test for each process whose threads give up a processor more than 20 times in
// each of five periods of ten seconds. pids has the pids by the names of the processes. checkIdle
// deletes idle processes from pids.
func checkIdle(t *testing.T, pids map[string]string) {
	t.Helper()
	countFor := func(d time.Duration) map[string]int {
		n := map[string]int{}
		for name, pid := range pids {
			n[name] = -switches(t, pid)
		}
		time.Sleep(d)
		for name, pid := range pids {
			n[name] += switches(t, pid)
		}
		return n
	}
	const startLooks = 40 // wait until the processes have started: a starting process is not idle
	for range startLooks {
		if n := countFor(500 * time.Millisecond); slices.Max(slices.Collect(maps.Values(n))) <= 1 {
			break
		}
	}
	const looks, most = 5, 20
	for look := 0; look < looks && len(pids) > 0; look++ {
		for name, n := range countFor(10 * time.Second) {
			if n > most {
				t.Logf("%s gave up a processor %d times in ten seconds", name, n)
			} else {
				delete(pids, name)
			}
		}
	}
	for name := range pids {
		t.Errorf("%s gave up a processor more than %d times in each of %d periods", name, most, looks)
	}
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
