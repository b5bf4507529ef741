package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	proglab "github.com/rootsfs/rootsfs/integration/programs/lab"
)

// TestMain runs a child mode if the arguments name one, as main does, and the tests otherwise.
func TestMain(m *testing.M) {
	if ran, err := child(os.Args[1:]); ran {
		if err != nil {
			println(err.Error())
			os.Exit(exitBroken)
		}
		os.Exit(exitOK)
	}
	os.Exit(runWithOwnHome(m))
}

// runWithOwnHome runs the tests with a home directory of their own. It fails if a test makes a
// file there: such a test has started rootsfs without giving it directories for its files.
func runWithOwnHome(m *testing.M) int {
	home, err := os.MkdirTemp("", "bench-home-")
	if err != nil {
		println(err.Error())
		return exitBroken
	}
	defer os.RemoveAll(home)
	env, err := exec.Command("go", "env", "GOPATH", "GOCACHE", "GOMODCACHE").Output()
	cache, cacheErr := os.UserCacheDir() // where the peers are installed
	if err := errors.Join(err, cacheErr); err != nil {
		println(err.Error())
		return exitBroken
	}
	dirs := strings.Split(string(env), "\n")
	for name, value := range map[string]string{
		"GOPATH": dirs[0], "GOCACHE": dirs[1], "GOMODCACHE": dirs[2], "XDG_CACHE_HOME": cache, "npm_config_cache": npmCache(),
		"XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", "XDG_DATA_HOME": "", "XDG_RUNTIME_DIR": "", "HOME": home,
	} {
		if err := os.Setenv(name, value); err != nil {
			println(err.Error())
			return exitBroken
		}
	}
	code := m.Run()
	_ = filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "go" && filepath.Base(filepath.Dir(path)) == ".config" {
			return filepath.SkipDir // the go command's own
		}
		if err == nil && !d.IsDir() {
			println("FAIL: a test wrote into the user's home directory: " + path)
			code = 1
		}
		return nil
	})
	return code
}

// npmCache returns the directory in which npm keeps the packages that it has fetched.
func npmCache() string {
	if dir := os.Getenv("npm_config_cache"); dir != "" {
		return dir
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".npm")
}

// tiny is small enough for every workload on every peer in a test.
var tiny = sizes{
	Name: "tiny", RandBytes: 1 << 20, RandReads: 64, SeqBytes: 2 << 20, SmallBytes: 1 << 20,
	TreeDirs: 2, RepoDirs: 1, Creates: 20, WorkPacks: 1, Programs: 1, RepositoryDirs: 1, Inodes: []int{300, 600}, Handles: 20, MemFiles: 1000,
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l, err := openLab(filepath.Join(t.TempDir(), "lab"), tiny, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	l.settle = time.Millisecond
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func needFUSE(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no FUSE here:", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func loopback(t *testing.T, l *lab) peer {
	t.Helper()
	needFUSE(t)
	for _, p := range l.peers() {
		if p.name == "loopback" {
			return p
		}
	}
	t.Fatal("no peer called loopback")
	return peer{}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args string
		ok   bool
	}{
		{"", true},
		{"-size small -n 1 -only tar|du -peers audit -strict", true},
		{"-memfiles 3000", true},
		{"-memfiles 10", false},
		{"-n 0", false},
		{"-only (", false},
		{"stray", false},
	} {
		_, err := parse(strings.Fields(tt.args), io.Discard)
		if (err == nil) != tt.ok {
			t.Errorf("parse(%q): %v", tt.args, err)
		}
	}
}

func TestChoosePeers(t *testing.T) {
	l := newLab(t)
	l.rootsfsMissing = "not built"
	r := &report{}
	peers := r.choosePeers(l, regexp.MustCompile("rootsfs-audit|loop"))
	if len(peers) != 2 || peers[0].name != native || peers[1].name != "loopback" {
		t.Errorf("chosen: %v", r.Peers)
	}
	if len(r.Skipped) != 1 || r.Skipped[0] != audit+": not built" {
		t.Errorf("skipped: %q", r.Skipped)
	}
}

func TestChooseWorkloads(t *testing.T) {
	r := &report{}
	chosen := r.chooseWorkloads(regexp.MustCompile("^tar|^du"), false)
	if len(chosen) != 2 || len(chosen[1].phases) != 1 || chosen[1].row(chosen[1].phases[0]) != "tar warm" {
		t.Errorf("chosen without root: %+v", chosen)
	}
	if len(r.Skipped) != 1 || !strings.HasSuffix(r.Skipped[0], ": tar cold") {
		t.Errorf("the cold row has to be named: %q", r.Skipped)
	}
	if chosen := r.chooseWorkloads(regexp.MustCompile("tar cold"), true); len(chosen) != 1 || len(chosen[0].phases) != 1 {
		t.Errorf("chosen as root: %+v", chosen)
	}
}

// TestGoalsNameRows checks that the rows and peers of goals exist. A goal whose row was renamed
// would never be judged.
func TestGoalsNameRows(t *testing.T) {
	rows := map[string]bool{}
	for _, w := range workloads() {
		for _, p := range w.phases {
			rows[w.row(p)] = true
		}
	}
	for _, g := range goals {
		if !rows[g.workload] {
			t.Errorf("no row is called %q", g.workload)
		}
	}
	for _, name := range stagedRows {
		if !rows[name] {
			t.Errorf("no row is called %q", name)
		}
	}
	l := newLab(t)
	peers := map[string]bool{}
	for _, p := range l.peers() {
		peers[p.name] = true
	}
	for _, name := range []string{native, audit, maxLvl, tuned, staged, inRun} {
		if !peers[name] || !inGoals(name) {
			t.Errorf("%q is a peer: %v, and in goals: %v", name, peers[name], inGoals(name))
		}
	}
}

func TestLabIsOwnedByOne(t *testing.T) {
	l := newLab(t)
	if second, err := openLab(l.dir, tiny, io.Discard); err == nil {
		t.Error("a second run got the same directory")
		second.lock.Close()
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(l.dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ownDir(link); err == nil {
		t.Error("ownDir accepted a link")
	}
}

// TestRows runs workloads on native and on the loopback, and counts the samples. With
// ROOTSFS_SOAK=1 it runs all workloads. It leaves out cold phases: a test does not drop the
// machine's caches.
func TestRows(t *testing.T) {
	l := newLab(t)
	p := loopback(t, l)
	var err error
	if l.trace, err = newTracer(l.path("tracing")); err != nil {
		t.Log("requests are not counted:", err)
		l.trace = nil
	}
	wanted := "" // all
	if !proglab.Soak() {
		wanted = "^[^w]|^write|^work (git|tar|du|rm|make|sqlite|tests)" // without npm, go and node: npm and go take seconds each time
	}
	r := &report{Repetitions: 2, Peers: []string{native, p.name}}
	chosen := r.chooseWorkloads(regexp.MustCompile(wanted), false)
	if err := l.rows(context.Background(), r, chosen, []peer{{name: native}, p}); err != nil {
		t.Fatal(err)
	}
	for _, problem := range r.broken() {
		t.Error(problem)
	}
	for _, row := range r.Rows {
		for _, name := range r.Peers {
			c := row.Cells[name]
			if len(c.Seconds) != r.Repetitions {
				t.Errorf("%s on %s: %d samples", row.Workload, name, len(c.Seconds))
			}
			if counted := c.Requests != nil && c.Requests.Total > 0; counted != (l.trace != nil && name != native) {
				t.Errorf("%s on %s: requests %+v", row.Workload, name, c.Requests)
			}
		}
	}
	if left, err := os.ReadDir(l.path("mnt")); err != nil || len(left) > 0 {
		t.Errorf("left in mnt: %v, %v", left, err)
	}
}

// TestLimit: a slow peer is not repeated, unless a goal depends on it.
func TestLimit(t *testing.T) {
	l := newLab(t)
	l.limit = 1
	slow := peer{name: "slow"} // sees the source itself, as native does
	r := &report{Repetitions: 3, Peers: []string{native, slow.name}}
	chosen := r.chooseWorkloads(regexp.MustCompile("find.stat warm"), false)
	if err := l.rows(context.Background(), r, chosen, []peer{{name: native}, slow}); err != nil {
		t.Fatal(err)
	}
	if a, b := len(r.Rows[0].Cells[native].Seconds), len(r.Rows[0].Cells[slow.name].Seconds); a != 3 || b != 1 {
		t.Errorf("%d samples of native, %d of the slow peer", a, b)
	}
	if fewer := r.cutShort(); len(fewer) != 1 || fewer[0] != "find+stat warm (slow, 1)" {
		t.Errorf("named as cut short: %q", fewer)
	}
}

// TestRootsfsContract checks the command line with which the benchmarks start rootsfs mount. It
// does not start rootsfs, which has tests of its own.
func TestRootsfsContract(t *testing.T) {
	l := newLab(t)
	l.rootsfs = "rootsfs"
	for _, p := range l.peers() {
		if p.name != audit {
			continue
		}
		got := strings.Join(p.argv("/source", "/mnt"), " ")
		if want := "rootsfs mount --cache audit --root src=/source:rw /mnt"; got != want || p.sub != "src" || !p.line {
			t.Errorf("%s, below %q, line %v; want %s", got, p.sub, p.line, want)
		}
		return
	}
	t.Error("there is no peer with --cache audit")
}
