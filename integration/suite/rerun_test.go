package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// end returns the event of a test's start and the event of its end, which has the given action. If
// test is "", it returns only the event of the package's end.
func end(pkg, test, action string) string {
	line := func(action string) string {
		return `{"Action":"` + action + `","Package":"` + pkg + `","Test":"` + test + `"}` + "\n"
	}
	if test == "" {
		return line(action)
	}
	return line("run") + line(action)
}

func output(pkg, test, text string) string {
	return `{"Action":"output","Package":"` + pkg + `","Test":"` + test + `","Output":"` + text + `\n"}` + "\n"
}

// Tests are run again only if few tests failed and nothing else did: any other problem is a
// fault even if it happens only once.
func TestRerunnable(t *testing.T) {
	scripts := end("p", "TestScripts/doctor", "fail") + end("p", "TestScripts/run", "pass") + end("p", "TestScripts", "fail") + end("p", "", "fail")
	var five string
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		five += end("p", name, "fail")
	}
	for name, c := range map[string]struct {
		events string
		want   []failure
	}{
		"everything passed":    {end("p", "A", "pass") + end("p", "", "pass"), nil},
		"one subtest":          {scripts, []failure{{"p", "TestScripts/doctor"}}},
		"two packages":         {end("p", "A", "fail") + end("p", "", "fail") + end("q", "B", "fail") + end("q", "", "fail"), []failure{{"p", "A"}, {"q", "B"}}},
		"a data race":          {output("p", "A", "WARNING: DATA RACE") + scripts, nil},
		"a panic":              {output("p", "A", "panic: test timed out after 9m0s") + scripts, nil},
		"a test without end":   {`{"Action":"run","Package":"p","Test":"B"}` + "\n" + scripts, nil},
		"a leak in TestMain":   {end("p", "A", "pass") + end("p", "", "fail"), nil},
		"a leak beside a test": {scripts + end("q", "", "fail"), nil},
		"five tests":           {five + end("p", "", "fail"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := read(t, c.events)
			if got := r.rerunnable(); !slices.Equal(got, c.want) {
				t.Errorf("%v are run again, want %v", got, c.want)
			}
		})
	}
}

// A test that passes when it is run again is counted as flaky, and the summary names it. Its parent
// and its package pass when their last failed test has passed.
func TestMarkFlaky(t *testing.T) {
	r, out := read(t, end("p", "T/a", "fail")+end("p", "T/b", "fail")+end("p", "T", "fail")+end("p", "", "fail"))
	r.markFlaky(failure{"p", "T/a"})
	if got := r.failures(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("%v failed while T/b has not passed, want p", got)
	}
	r.markFlaky(failure{"p", "T/b"})
	if got := r.failures(); len(got) != 0 {
		t.Errorf("%v failed, want nothing", got)
	}
	r.summary(time.Minute)
	for _, want := range []string{"suite: FLAKY: p T/a failed, and passed when it was run again\n",
		"1 packages passed, 0 failed, 0 without tests; 3 tests passed, 0 failed, 0 skipped, 2 flaky; 1m0s\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary is %q, want %q in it", out, want)
		}
	}
}

// go test is run for the failed test only. A test that fails only the first time passes, and
// one that always fails does not.
func TestRerun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/chance\ngo 1.26\n")
	write("a_test.go", `package chance
import ("os"; "testing")
func TestFirst(t *testing.T) {
	t.Run("time (only)", func(t *testing.T) {
		if _, err := os.Stat("once"); err != nil {
			os.WriteFile("once", nil, 0o600)
			t.Fatal("the first time")
		}
	})
}
func TestAlways(t *testing.T) { if os.Getenv("ALWAYS") != "" { t.Fatal("always") } }
`)
	t.Chdir(dir)
	for _, always := range []string{"", "1"} {
		t.Setenv("ALWAYS", always)
		os.Remove("once")
		dog := &watchdog{procs: &processes{started: map[int]bool{}}}
		o := options{goCommand: "go", timeout: time.Minute, limit: time.Minute}
		out := &report{w: io.Discard}
		p := job{name: "all", packages: []string{"example.com/chance"}, atOnce: 1}
		if problem := p.test(o, t.TempDir(), out, dog); problem != "" {
			t.Fatal(problem)
		}
		rerun(o, t.TempDir(), out, dog)
		if want := []string{"example.com/chance TestFirst/time_(only)"}; !slices.Equal(out.flaky, want) {
			t.Errorf("ALWAYS=%q: %q are flaky, want %q", always, out.flaky, want)
		}
		if failed := len(out.failures()) > 0; failed != (always != "") {
			t.Errorf("ALWAYS=%q: failed is %v", always, failed)
		}
	}
}

// removeScriptDirs removes an empty directory of testscript, and keeps a directory that is not
// empty.
func TestScriptDirsOfReruns(t *testing.T) {
	temp := t.TempDir()
	empty, full := filepath.Join(temp, "go-test-script1"), filepath.Join(temp, "go-test-script2", "left")
	for _, dir := range []string{empty, full} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removeScriptDirs(temp)
	if _, err := os.Stat(empty); !os.IsNotExist(err) {
		t.Errorf("the empty directory is there: %v", err)
	}
	if _, err := os.Stat(full); err != nil {
		t.Errorf("the directory that was not empty is gone: %v", err)
	}
}
