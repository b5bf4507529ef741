package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxReruns is the number of failed tests above which no test is run again: so many tests do not
// fail by chance.
const maxReruns = 4

// failure is a failed test without failed subtests.
type failure struct{ pkg, test string }

// String returns the package and the test, separated by a space.
func (f failure) String() string { return f.pkg + " " + f.test }

// pattern returns the -run pattern that matches this test alone.
func (f failure) pattern() string {
	var elements []string
	for e := range strings.SplitSeq(f.test, "/") {
		elements = append(elements, "^"+regexp.QuoteMeta(e)+"$")
	}
	return strings.Join(elements, "/")
}

// rerun runs each failed test a second time, by itself, after everything else has ended. It
// marks the tests that now pass as flaky. It runs none if anything but a test failed (see
// rerunnable).
func rerun(o options, temp string, out *report, dog *watchdog) {
	failures := out.rerunnable()
	for _, f := range failures {
		fmt.Fprintf(os.Stdout, "suite: running %v again\n", f)
		again := &report{w: out.w}
		alone := jobs([]string{f.pkg}, o.raced)[0]
		problem := alone.test(o, temp, again, dog, "-count", "1", "-run", f.pattern())
		removeScriptDirs(temp)
		if problem == "" && again.passed(f) {
			out.markFlaky(f)
		}
	}
}

// removeScriptDirs removes the empty directories that testscript leaves. testscript removes its
// directory after the last script of a package, and waits in vain for the scripts that -run did
// not choose. A directory that is not empty stays, and scratch.reportLeft reports it.
func removeScriptDirs(temp string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, "go-test-script*")) // fails only for a malformed pattern
	for _, dir := range dirs {
		_ = os.Remove(dir)
	}
}

// rerunnable returns the failed tests if nothing but tests failed, and if at most maxReruns
// tests failed. It returns none after a data race, a panic or a test that did not end. It also
// returns none if a package failed without a failed test: the package does not build, or its
// TestMain found a leak. Each of these is a fault, even if it does not come a second time.
func (r *report) rerunnable() (failures []failure) {
	for _, name := range r.failures() {
		r.mu.Lock()
		p := r.packages[name]
		var failed []string
		ended := true
		for test, outcome := range p.outcome {
			if test != "" && outcome == "fail" {
				failed = append(failed, test)
			}
			ended = ended && outcome != ""
		}
		crashed := p.crashed
		r.mu.Unlock()
		if crashed || !ended || len(failed) == 0 {
			return nil
		}
		slices.Sort(failed)
		for _, test := range failed {
			if !slices.ContainsFunc(failed, func(s string) bool { return strings.HasPrefix(s, test+"/") }) {
				failures = append(failures, failure{name, test})
			}
		}
	}
	if len(failures) > maxReruns {
		return nil
	}
	return failures
}

// isCrash reports whether a line of a test's output comes from a data race, a panic or a fatal
// error of the Go runtime.
func isCrash(line string) bool {
	return strings.Contains(line, "WARNING: DATA RACE") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// passed reports whether the test was run and passed, and its package with it.
func (r *report) passed(f failure) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.packages[f.pkg]
	return p != nil && p.outcome[""] == "pass" && p.outcome[f.test] == "pass"
}

// markFlaky notes that the failed test passed when it was run again. A parent test passes when the
// last of its failed subtests has passed. The package passes when its last failed test has passed.
func (r *report) markFlaky(f failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flaky = append(r.flaky, f.String())
	outcome := r.packages[f.pkg].outcome
	outcome[f.test] = "pass"
	for name := f.test; name != ""; {
		name = name[:max(strings.LastIndex(name, "/"), 0)]
		for test, o := range outcome {
			if o == "fail" && test != name && (name == "" || strings.HasPrefix(test, name+"/")) {
				return
			}
		}
		outcome[name] = "pass"
	}
}
