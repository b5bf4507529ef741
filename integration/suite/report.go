package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// skip is a skipped test and its output.
type skip struct{ Package, Test, Output string }

// report collects the output of go test of all jobs and writes a summary.
type report struct {
	mu       sync.Mutex // guards the fields below and writes to w
	w        io.Writer
	packages map[string]*testedPackage
	skips    []skip
	problems []string
	flaky    []string // failed tests that passed when they were run again
	times    []timed
}

// timed is the duration of a test that is not a sub-test.
type timed struct {
	seconds float64
	name    string
}

// testedPackage holds the output and the outcomes of a package's tests.
type testedPackage struct {
	order   []string // the tests in the order in which they began; "" is the package itself
	output  map[string]*strings.Builder
	outcome map[string]string // of tests and of the package: pass, fail, skip; "" before the end
	crashed bool              // see isCrash
}

func (p *testedPackage) add(test, text string) {
	b := p.output[test]
	if b == nil {
		b = &strings.Builder{}
		p.output[test], p.order = b, append(p.order, test)
	}
	b.WriteString(text)
}

// problem adds text to the problems, unless it is "".
func (r *report) problem(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text != "" {
		r.problems = append(r.problems, text)
	}
}

// read handles the events of one go test until its output ends. It prints a line that is
// not an event, because go test prints some of its own errors that way.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				e = event{Action: "build-output", Output: line}
			}
			r.handle(e)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// handle records an event. It prints the output of builds, and of a package that has ended.
func (r *report) handle(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Action == "build-output" {
		fmt.Fprint(r.w, e.Output)
		return
	}
	if e.Package == "" {
		return // build-fail, which the package's own failure repeats
	}
	if r.packages == nil {
		r.packages = map[string]*testedPackage{}
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &testedPackage{output: map[string]*strings.Builder{}, outcome: map[string]string{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.add(e.Test, e.Output)
		p.crashed = p.crashed || isCrash(e.Output)
	case "run":
		p.add(e.Test, "")
		p.outcome[e.Test] = "" // the test has not ended
	case "pass", "fail", "skip":
		p.outcome[e.Test] = e.Action
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			r.times = append(r.times, timed{e.Elapsed, pathInModule(e.Package) + " " + e.Test})
		}
		if e.Test == "" {
			r.printPackage(e.Package, p)
		} else if e.Action == "skip" {
			r.skips = append(r.skips, skip{e.Package, e.Test, p.output[e.Test].String()})
		} else if e.Action == "pass" {
			p.output[e.Test].Reset()
		}
	}
}

// printPackage prints a package's line, after the output of its tests that failed or did not
// end.
func (r *report) printPackage(name string, p *testedPackage) {
	if p.outcome[""] == "fail" {
		for _, test := range p.order {
			if test != "" && p.outcome[test] != "pass" && p.outcome[test] != "skip" {
				fmt.Fprint(r.w, p.output[test])
			}
		}
	}
	isNamed := false // whether a printed line names the package
	if own := p.output[""]; own != nil {
		for line := range strings.Lines(own.String()) {
			if p.outcome[""] != "fail" && !strings.HasPrefix(line, "ok ") && !strings.HasPrefix(line, "?") || line == "PASS\n" {
				continue
			}
			fmt.Fprint(r.w, line)
			isNamed = isNamed || strings.Contains(line, name)
		}
	}
	if p.outcome[""] == "fail" && !isNamed {
		fmt.Fprintf(r.w, "FAIL\t%s\n", name)
	}
	clear(p.output)
	p.order = nil
}

// failed reports whether one of the packages has failed. Then its failure is printed
// already, and go test's own exit code says nothing new. If a package has no result,
// failed returns false, because go test itself has failed.
func (r *report) failed(packages []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := false
	for _, name := range packages {
		p := r.packages[name]
		if p == nil || p.outcome[""] == "" {
			return false
		}
		failed = failed || p.outcome[""] == "fail"
	}
	return failed
}

// failures returns the packages that failed or have no result.
func (r *report) failures() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		if r.packages[name].outcome[""] != "pass" && r.packages[name].outcome[""] != "skip" {
			names = append(names, name)
		}
	}
	return names
}

// The summary names the slowest tests: at most maxSlow, and only tests that took slowSeconds or
// more.
const (
	maxSlow     = 12
	slowSeconds = 10
)

// summary prints the slowest tests, the flaky tests, and how many packages and tests passed, failed
// or were skipped.
func (r *report) summary(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tests, packages := map[string]int{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		for test, outcome := range r.packages[name].outcome {
			if test == "" {
				packages[outcome]++
			} else {
				tests[outcome]++
			}
		}
	}
	slices.SortStableFunc(r.times, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, one := range r.times[:min(len(r.times), maxSlow)] {
		if one.seconds >= slowSeconds {
			fmt.Fprintf(r.w, "suite: slow: %s took %.0f s\n", one.name, one.seconds)
		}
	}
	for _, test := range r.flaky {
		fmt.Fprintf(r.w, "suite: FLAKY: %s failed, and passed when it was run again\n", test)
	}
	fmt.Fprintf(r.w, "suite: %d packages passed, %d failed, %d without tests; %d tests passed, %d failed, %d skipped, %d flaky; %v\n",
		packages["pass"], packages["fail"], packages["skip"], tests["pass"], tests["fail"]+tests[""], tests["skip"], len(r.flaky), took.Round(time.Second))
}
