package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// checkPath says which kind of file a path is, and whether the path may be a root. The check has a
// remedy exactly if its status is not ok.
func TestCheckPath(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"dir", "keep/inner"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(base+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dir", base+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(base+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	rules := rules.RootRules{ReservedPaths: []rules.ReservedPath{{Path: base + "/keep/inner", What: "the mountpoint"}}}
	for _, tc := range []struct {
		path   string
		status checkVerdict
		want   []string
	}{
		{base + "/dir", checkOK, []string{"directory on ", ":ro or :rw", "changes are noticed"}},
		{base + "/link", checkOK, []string{"really " + base + "/dir"}},
		{base + "/file", checkOK, []string{"single file on "}},
		{base + "/fifo", checkFail, []string{"special file"}},
		{base + "/none", checkFail, []string{"does not exist"}},
		{base + "/file/x", checkFail, []string{"not a directory"}},
		{base + "/keep", checkFail, []string{"contains the mountpoint"}},
		{base + "/keep/inner", checkFail, []string{"contains the mountpoint"}},
		{"/proc", checkFail, []string{"kernel interfaces"}},
		{"/", checkFail, []string{"contains the mountpoint"}}, // no flag permits this
		{"/etc", checkOK, []string{":ro only (a system directory)"}},
	} {
		c := checkPath(rules, tc.path, openRoot(tc.path))
		if c.Status != tc.status || (c.Remedy == "") != (tc.status == checkOK) || c.Path != tc.path || strings.Contains(c.Detail, "\n") {
			t.Errorf("%s: %+v", tc.path, c)
		}
		for _, w := range tc.want {
			if !strings.Contains(c.Detail, w) {
				t.Errorf("%s: %q lacks %q", tc.path, c.Detail, w)
			}
		}
	}
}

// If / contains no directory of rootsfs, the check names the flag that permits / as a root.
func TestCheckTop(t *testing.T) {
	if c := checkPath(rules.RootRules{}, "/", openRoot("/")); c.Status != checkFail || !strings.Contains(c.Detail, "--allow-root-dir") {
		t.Errorf("%+v", c)
	}
}

// The check reports mounts without a daemon, and their number.
func TestMountsWithoutADaemonAreReported(t *testing.T) {
	listMounts := func() ([]mountpoint.Info, error) {
		return []mountpoint.Info{{Point: "/a"}, {Point: "/b"}, {Point: "/c"}}, nil
	}
	got := checkMounts(listMounts, func(func(mountpoint.Info) bool) ([]string, error) { return []string{"/a", "/c"}, nil })
	if len(got) != 3 || got[0].Path != "/a" || got[1].Path != "/c" || got[2].Detail != "3 of rootsfs, 2 without a daemon" {
		t.Errorf("%+v", got)
	}
}

// diagnosis prints the checks as text or as JSON. In both cases the exit code is ExitSystem if a
// check failed, and otherwise ExitOK.
func TestDiagnosis(t *testing.T) {
	ok, warn, fail := check{"a", "", checkOK, "fine", ""}, check{"b", "/x y", checkWarn, "so so", "mend"}, check{"c", "", checkFail, "bad", "repair"}
	for _, tc := range []struct {
		checks []check
		code   int
		want   string
	}{
		{[]check{ok}, ExitOK, "ok    a: fine\n1 check, 0 warnings, 0 failures\nok\n"},
		{[]check{ok, warn}, ExitOK, "warn  b \"/x y\": so so\n      do: mend\n2 checks, 1 warning, 0 failures\n1 warning: b \"/x y\"\n"},
		{[]check{fail, warn, ok}, ExitSystem, "fail  c: bad\n      do: repair\n"},
	} {
		var out bytes.Buffer
		a := &app{Stdout: &out}
		if got := exitCode(a.diagnosis(tc.checks)); got != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("exit code %d, want %d:\n%s", got, tc.code, out.String())
		}
		out.Reset()
		a.JSON = true
		if got := exitCode(a.diagnosis(tc.checks)); got != tc.code {
			t.Errorf("with --json exit code %d, want %d", got, tc.code)
		}
		var d diagnosis
		if err := json.Unmarshal(out.Bytes(), &d); err != nil || len(d.Checks) != len(tc.checks) || d.OK != (tc.code == ExitOK) {
			t.Errorf("%s: %v", out.String(), err)
		}
	}
}

// checkState accepts a state directory that does not exist yet. It refuses a directory that others
// can write to, and a file in place of the directory.
func TestCheckState(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", base)
	if c := checkState(); c.Status != checkOK {
		t.Errorf("not there yet: %+v", c)
	}
	dir := filepath.Join(base, "rootsfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if c := checkState(); c.Status != checkOK {
		t.Errorf("there: %+v", c)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if c := checkState(); c.Status != checkFail || !strings.Contains(c.Remedy, "chmod go-w") {
		t.Errorf("open to others: %+v", c)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := checkState(); c.Status != checkFail || !strings.Contains(c.Detail, "is not a directory") {
		t.Errorf("a file: %+v", c)
	}
}
