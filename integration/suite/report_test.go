package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lines is the output of `go test -json` for four packages: one that passes and skips two tests,
// one with a failing test, one whose test does not end, and one that does not build.
const lines = `{"Action":"start","Package":"example.com/a/b/guard"}
{"Action":"run","Package":"example.com/a/b/guard","Test":"TestA"}
{"Action":"output","Package":"example.com/a/b/guard","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"example.com/a/b/guard","Test":"TestA","Output":"    a_test.go:7: no such thing here\n"}
{"Action":"output","Package":"example.com/a/b/guard","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"example.com/a/b/guard","Test":"TestA","Elapsed":0}
{"Action":"run","Package":"example.com/a/b/guard","Test":"TestB"}
{"Action":"output","Package":"example.com/a/b/guard","Test":"TestB","Output":"    b_test.go:7: /dev/fuse is missing\n"}
{"Action":"skip","Package":"example.com/a/b/guard","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"example.com/a/b/guard","Output":"PASS\n"}
{"Action":"output","Package":"example.com/a/b/guard","Output":"ok  \texample.com/a/b/guard\t0.1s\n"}
{"Action":"pass","Package":"example.com/a/b/guard","Elapsed":0.1}
{"Action":"run","Package":"example.com/a/b/vfs","Test":"TestGood"}
{"Action":"output","Package":"example.com/a/b/vfs","Test":"TestGood","Output":"a word of TestGood\n"}
{"Action":"run","Package":"example.com/a/b/vfs","Test":"TestGood/part"}
{"Action":"pass","Package":"example.com/a/b/vfs","Test":"TestGood/part","Elapsed":20}
{"Action":"pass","Package":"example.com/a/b/vfs","Test":"TestGood","Elapsed":20.4}
{"Action":"run","Package":"example.com/a/b/vfs","Test":"TestBad"}
{"Action":"output","Package":"example.com/a/b/vfs","Test":"TestBad","Output":"    x_test.go:1: wrong\n"}
{"Action":"fail","Package":"example.com/a/b/vfs","Test":"TestBad"}
{"Action":"output","Package":"example.com/a/b/vfs","Output":"FAIL\n"}
{"Action":"output","Package":"example.com/a/b/vfs","Output":"FAIL\texample.com/a/b/vfs\t0.2s\n"}
{"Action":"fail","Package":"example.com/a/b/vfs","Elapsed":0.2}
{"Action":"run","Package":"example.com/a/b/mount","Test":"TestHangs"}
{"Action":"output","Package":"example.com/a/b/mount","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"example.com/a/b/mount","Output":"FAIL\texample.com/a/b/mount\t540s\n"}
{"Action":"fail","Package":"example.com/a/b/mount","Elapsed":540}
{"ImportPath":"example.com/a/b/bad","Action":"build-output","Output":"bad.go:1:1: expected package\n"}
{"ImportPath":"example.com/a/b/bad","Action":"build-fail"}
{"Action":"start","Package":"example.com/a/b/bad"}
{"Action":"output","Package":"example.com/a/b/bad","Output":"FAIL\texample.com/a/b/bad [build failed]\n"}
{"Action":"fail","Package":"example.com/a/b/bad","Elapsed":0,"FailedBuild":"example.com/a/b/bad"}
`

// read returns a report that has read text, and the output of the report.
func read(t *testing.T, text string) (*report, *strings.Builder) {
	t.Helper()
	out := &strings.Builder{}
	r := &report{w: out}
	if err := r.read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return r, out
}

// The report prints go test's line of each package, and the output of tests that failed
// or did not end, and nothing of the others.
func TestReport(t *testing.T) {
	r, out := read(t, lines)
	want := "ok  \texample.com/a/b/guard\t0.1s\n" +
		"    x_test.go:1: wrong\nFAIL\nFAIL\texample.com/a/b/vfs\t0.2s\n" +
		"panic: test timed out\nFAIL\texample.com/a/b/mount\t540s\n" +
		"bad.go:1:1: expected package\nFAIL\texample.com/a/b/bad [build failed]\n"
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out, want)
	}
	if got := r.failures(); !slices.Equal(got, []string{"example.com/a/b/bad", "example.com/a/b/mount", "example.com/a/b/vfs"}) {
		t.Errorf("failed: %q", got)
	}
	all := []string{"example.com/a/b/guard", "example.com/a/b/vfs"}
	if !r.failed(all) || r.failed(all[:1]) || r.failed(append(all, "example.com/a/b/never")) {
		t.Error("failed does not tell a package that failed from one that did not run")
	}
	r.summary(time.Minute)
	if want := "\nsuite: slow: vfs TestGood took 20 s\nsuite: 1 packages passed, 3 failed, 0 without tests; 2 tests passed, 2 failed, 2 skipped, 0 flaky; 1m0s\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("summary: %q", out)
	}
}

// A skip that is not in allowedSkips is a problem everywhere. A skip because FUSE is missing is a
// problem only in CI.
func TestSkips(t *testing.T) {
	for _, c := range []struct {
		name     string
		m        machine
		problems []string // the tests that judgeSkips reports
	}{
		{"CI", machine{ci: true, root: true}, []string{"TestA", "TestB"}},
		{"laptop", machine{}, []string{"TestA"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := read(t, lines)
			problems := r.judgeSkips(c.m)
			if len(problems) != len(c.problems) {
				t.Fatalf("problems: %q", problems)
			}
			for i, test := range c.problems {
				if !strings.Contains(problems[i], "guard skipped "+test+",") {
					t.Errorf("problem %d: %q, want one about %s", i, problems[i], test)
				}
			}
		})
	}
}

// Each entry of allowedSkips is complete: it has a package, a test, a message, a condition and a
// reason.
func TestAllowedSkipsAreExplained(t *testing.T) {
	for _, a := range allowedSkips {
		if a.reason == "" || a.message == "" || a.where == nil || a.pkg == "" || a.test == "" {
			t.Errorf("incomplete: %+v", a)
		}
	}
}

// Files that are created, changed or removed in the user's own directories are reported:
// always in directories of rootsfs, only in CI elsewhere, never in caches.
func TestUserDirs(t *testing.T) {
	home := t.TempDir()
	write := func(rel, text string) {
		t.Helper()
		path := filepath.Join(home, rel)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".config/rootsfs/config.toml", "")
	write(".config/rootsfs/gone", "")
	write(".gitconfig", "")
	d := userDirs(func(name string) string { return map[string]string{"HOME": home}[name] })
	before := d.list()
	if got := d.changed(before, true); got != nil {
		t.Errorf("nothing was done: %q", got)
	}
	write(".local/state/rootsfs/audit/x-1.jsonl", "{}")
	write(".config/rootsfs/config.toml", "[mount]")
	write(".gitconfig", "[user]")
	write(".cache/go-build/00/x", "")
	write(".cache/rootsfs-test/x", "")
	write("go/pkg/mod/x", "")
	if err := os.Remove(filepath.Join(home, ".config/rootsfs/gone")); err != nil {
		t.Fatal(err)
	}
	ours := []string{"changed .config/rootsfs/config.toml", "made .local/state/rootsfs/audit/x-1.jsonl", "removed .config/rootsfs/gone"}
	for name, ci := range map[string]bool{"CI": true, "laptop": false} {
		got := strings.Join(d.changed(before, ci), "\n")
		for _, want := range ours {
			what, rel, _ := strings.Cut(want, " ")
			if !strings.Contains(got, "a test "+what+" "+filepath.Join(home, rel)+",") {
				t.Errorf("%s: nothing about %q in:\n%s", name, want, got)
			}
		}
		if strings.Contains(got, ".gitconfig") != ci || strings.Contains(got, "go-build") || strings.Contains(got, "rootsfs-test") || strings.Contains(got, "pkg/mod") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}
