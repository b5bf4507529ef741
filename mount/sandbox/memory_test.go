package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// hungryScript takes some 300 MB in one process: tail keeps a line that does not end.
const hungryScript = `exec 2>/dev/null; echo begun; head -c 300000000 /dev/zero | tail | wc -c`

// The memory of the command and everything that it starts is bounded together, if the machine
// has control groups for memory. If not, the report says so, as a missing layer and as a hole.
// No group is left.
func TestMemoryMax(t *testing.T) {
	const limit = 128 << 20
	run := func(t *testing.T, level Level, want State) {
		o := Options{Level: level, Private: private(t), MemoryMax: limit, Group: fmt.Sprintf("rootsfs-test-%d-%s", os.Getpid(), filepath.Base(t.TempDir()))}
		layer, holes, out, kills := runHungry(t, o)
		if (kills > 0) != (want == On) {
			t.Errorf("the kernel ended %d processes", kills)
		}
		if had := strings.Contains(out, "300000000"); !strings.HasPrefix(out, "begun") || had != (want == NotAvailable) {
			t.Errorf("inside: %q", out)
		}
		hole := slices.ContainsFunc(holes, func(h string) bool { return strings.Contains(h, "all the memory") })
		if layer.State != want || hole != (want == NotAvailable) {
			t.Errorf("the layer is %+v, want %s; holes %q", layer, want, holes)
		}
		for _, p := range groupParents("/proc/self") {
			if _, err := os.Stat(filepath.Join(p.dir, o.Group)); err == nil {
				t.Errorf("%s is left in %s", o.Group, p.dir)
			}
		}
	}
	g, err := newMemGroup(fmt.Sprint("rootsfs-test-possible-", os.Getpid()), limit)
	if err == nil {
		g.remove()
		atLevels(t, confining, func(t *testing.T, level Level) { run(t, level, On) })
	} else {
		t.Logf("this machine gives no control group: %v", err)
	}
	ownProc = t.TempDir() // where no control group can be found
	defer func() { ownProc = "/proc/self" }()
	run(t, Namespaces, NotAvailable)
}

// runHungry runs hungryScript. It returns the report's layer of the memory limit and its holes, the
// output, and how many processes the kernel has killed.
func runHungry(t *testing.T, o Options) (limit Layer, holes []string, out string, kills int) {
	t.Helper()
	o.Tree = tree(t)
	p, out, exit := runScript(t, o, hungryScript)
	for _, l := range p.Report().Layers {
		if l.Name == MemoryLimit {
			limit = l
		}
	}
	return limit, p.Report().Holes, out, exit.Kills
}

// A command that fills the private directories gets an error before its memory limit is reached. If
// files alone reached the limit, the kernel could end only the init.
func TestMemoryMaxOfFiles(t *testing.T) {
	for _, level := range []Level{Namespaces, Bubblewrap} {
		o := Options{Level: level, MemoryMax: 128 << 20, Group: fmt.Sprintf("rootsfs-test-%d-files-%s", os.Getpid(), level)}
		out, exit := output(t, o, `head -c 200000000 /dev/zero 2>/dev/null >$TMPDIR/full; echo $?; stat -c %s $TMPDIR/full`)
		if out != "1\n67108864" || exit != (Exit{IsFull: true}) {
			t.Errorf("%s: %q, %+v", level, out, exit)
		}
	}
}

// RemoveOldControlGroups removes a group that is older than age, such as that of a killed run,
// unless there are processes in the group.
func TestRemoveOldControlGroups(t *testing.T) {
	prefix := fmt.Sprintf("rootsfs-test-old-%d-", os.Getpid())
	var groups []*memGroup
	for _, name := range []string{"used", "left"} {
		g, err := newMemGroup(prefix+name, MinMemory)
		if err != nil {
			t.Skipf("this machine gives no control group: %v", err)
		}
		t.Cleanup(g.remove)
		groups = append(groups, g)
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	if err := initproc.PutFile(unix.AT_FDCWD, filepath.Join(groups[0].dir, "cgroup.procs"), strconv.Itoa(sleep.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age  time.Duration
		left []bool
	}{{time.Hour, []bool{true, true}}, {0, []bool{true, false}}} {
		RemoveOldControlGroups(prefix, c.age)
		for i, g := range groups {
			if _, err := os.Stat(g.dir); (err == nil) != c.left[i] {
				t.Errorf("age %v: %s: %v, want that it exists: %v", c.age, g.dir, err, c.left[i])
			}
		}
	}
}

func TestGroupParents(t *testing.T) {
	const (
		mountsV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		mountsV1 = "31 23 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n32 23 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	)
	for _, c := range []struct {
		name, groups, mounts string
		want                 []groupParent
	}{
		{"a scope of a user", "0::/user.slice/app.slice/x.scope\n", mountsV2, []groupParent{
			{"/sys/fs/cgroup/user.slice/app.slice/x.scope", true},
			{"/sys/fs/cgroup/user.slice/app.slice", true},
		}},
		{"the root group", "0::/\n", mountsV2, []groupParent{{"/sys/fs/cgroup", true}}},
		{"version 1", "8:pids:/\n4:memory:/a:b\n", mountsV1, []groupParent{{"/sys/fs/cgroup/memory/a:b", false}}},
		{"not mounted", "0::/\n4:memory:/\n", "", nil},
		{"no groups", "", mountsV2 + mountsV1, nil},
	} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "cgroup"), c.groups)
		put(t, filepath.Join(dir, "mountinfo"), c.mounts)
		if got := groupParents(dir); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := groupParents(t.TempDir()); got != nil {
		t.Errorf("without a /proc: %+v", got)
	}
	// In a directory outside the control groups no group can be made, and nothing is left.
	dir := t.TempDir()
	if g, err := (groupParent{dir, true}).create("x", MinMemory); err == nil {
		t.Errorf("%s became a group: %+v", dir, g)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

func TestMemoryMaxChecked(t *testing.T) {
	for _, o := range []Options{{MemoryMax: MinMemory - 1, Group: "g"}, {MemoryMax: -1, Group: "g"}, {MemoryMax: MinMemory}, {MemoryMax: MinMemory, Group: "a/b"}} {
		o.Args, o.Tree = []string{"true"}, "/usr"
		if err := o.check(); err == nil || !strings.Contains(err.Error(), "MemoryMax") {
			t.Errorf("%d %q: %v", o.MemoryMax, o.Group, err)
		}
	}
}
