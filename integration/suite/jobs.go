package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// job is one run of go test. It tests the packages in their order, atOnce of them at a time.
type job struct {
	name     string
	packages []string
	race     bool
	atOnce   int
}

// atOnce is how many packages are tested at a time; with racedLeast it is one more (see jobs). The
// tests wait for processes and deadlines: four packages at a time keep two processors busy, and
// three do not.
const atOnce = 4

// longest are the directories whose tests take longest. They are tested first: a long package that
// began last would run alone at the end, with one processor idle.
var longest = []string{"cmd/rootsfs", "integration/sandbox", "broker/tools", "integration/revoke", "vfs", "integration/serve", "integration/proxy",
	"integration/programs", "mount", "integration/files", "broker", "integration/console", "integration/dist", "cmd/rootsfs/internal/fleet",
	"integration/policy", "cmd/rootsfs/internal/console", "integration/posix", "cmd/rootsfs/internal/network", "integration/bench"}

// jobs divides packages into those that are tested with the race detector, and the others.
func jobs(packages []string, r raced) []job {
	withRace, plain := job{name: "raced", race: true}, job{name: "plain"}
	for _, pkg := range packages {
		if r.includes(pathInModule(pkg)) {
			withRace.packages = append(withRace.packages, pkg)
		} else {
			plain.packages = append(plain.packages, pkg)
		}
	}
	switch r {
	case racedMost:
		withRace.atOnce = atOnce - 1
	case racedLeast:
		withRace.atOnce = atOnce / 2
		plain.atOnce++ // they outnumber the raced packages, and keep both processors busy after these
	}
	plain.atOnce += atOnce - withRace.atOnce
	return slices.DeleteFunc([]job{withRace, plain}, func(j job) bool { return len(j.packages) == 0 })
}

// pathInModule returns a package's path within the module. The module's path has three elements.
func pathInModule(pkg string) string {
	return strings.Join(strings.Split(pkg, "/")[min(3, strings.Count(pkg, "/")+1):], "/")
}

// part is a named choice of packages.
type part struct {
	name string
	dirs []string
}

// parts are the parts that `make test-NAME` can choose. A package that no part lists is in the last
// part, so that no package can be forgotten.
var parts = []part{
	{"core", []string{"guard", "vfs", "broker", "integration/model", "integration/suite", "mount/sandbox"}},
	{"peers", []string{"integration/programs", "integration/proxy", "integration/files", "integration/race", "integration/revoke",
		"integration/dist"}},
	{"confined", []string{"integration/sandbox", "integration/serve", "integration/console", "integration/policy", "integration/reports",
		"integration/deps"}},
	{"rest", nil},
}

// findPackages returns the packages of the named parts, or all if names is empty, the longest first.
func findPackages(goCommand string, names []string) ([]string, error) {
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			return nil, fmt.Errorf("there is no part %q: write core, peers, confined or rest", n)
		}
	}
	cmd := exec.Command(goCommand, "list", "./...")
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return choose(strings.Fields(string(list)), names), nil
}

// choose returns the packages of the named parts, or all if names is empty, the longest first.
func choose(packages, names []string) []string {
	chosen := slices.DeleteFunc(slices.Clone(packages), func(pkg string) bool {
		return len(names) > 0 && !slices.Contains(names, partOf(pathInModule(pkg)))
	})
	order := func(pkg string) int {
		if i := slices.Index(longest, pathInModule(pkg)); i >= 0 {
			return i
		}
		return len(longest)
	}
	slices.SortStableFunc(chosen, func(a, b string) int { return cmp.Compare(order(a), order(b)) })
	return chosen
}

// partOf returns the name of a directory's part.
func partOf(dir string) string {
	for _, p := range parts {
		if isIn(p.dirs, dir) {
			return p.name
		}
	}
	return parts[len(parts)-1].name
}

// isIn reports whether a directory is one of dirs or below one.
func isIn(dirs []string, dir string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") })
}

// test runs the job, with further flags for go test. It returns a problem other than failed tests,
// or "".
func (j *job) test(o options, temp string, out *report, dog *watchdog, flags ...string) string {
	args := []string{"test", "-json", "-p", fmt.Sprint(j.atOnce), "-vet=off", "-timeout", o.timeout.String()} // `make check` vets
	env := os.Environ()
	if j.race {
		args = append(args, "-race")
	} else if o.raced != racedNone {
		// testkit.Build has the same settings, so that shared packages are compiled once.
		args, env = append(args, "-trimpath"), append(env, "CGO_ENABLED=0")
	}
	cmd := exec.Command(o.goCommand, slices.Concat(args, flags, j.packages)...)
	// GORACE: a process with the race detector would sleep for a second before it exits, and
	// tests start thousands. NODE_DISABLE_COMPILE_CACHE: npm lets Node cache compiled code in
	// TMPDIR, and tests must leave no files there.
	cmd.Env = append(env, "PATH="+cmp.Or(o.path, os.Getenv("PATH")), "TMPDIR="+temp, "NODE_DISABLE_COMPILE_CACHE=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err.Error()
	}
	if err := dog.procs.start(cmd); err != nil {
		return err.Error()
	}
	overdue := time.AfterFunc(o.limit, func() { dog.kill(j.name, cmd.Process.Pid, o.limit) })
	defer overdue.Stop()
	readErr := out.read(stdout)
	if err := cmd.Wait(); err != nil && !out.failed(j.packages) {
		return fmt.Sprintf("go test of the %s packages: %v", j.name, err)
	}
	if readErr != nil {
		return fmt.Sprintf("the output of the %s packages: %v", j.name, readErr)
	}
	return ""
}
