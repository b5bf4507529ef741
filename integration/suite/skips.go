package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// machine holds the properties that a skip may depend on.
type machine struct {
	ci   bool
	root bool
}

// allowedSkip is a skip that does not count as a failure.
type allowedSkip struct {
	pkg     string // the package's path in the module; a pattern for path.Match
	test    string // the test's full name, with its parents if it is a subtest; a pattern likewise
	message string // a part of the output of the test when it skips
	where   func(machine) bool
	reason  string
}

// Values of allowedSkip.where.
func everywhere(machine) bool   { return true }
func notInCI(m machine) bool    { return !m.ci }
func notForRoot(m machine) bool { return !m.root }

// allowedSkips are all allowed skips. CI can mount, and has every program that setup.sh installs: a
// test that skips because FUSE or such a program is missing is allowed only outside CI.
var allowedSkips = []allowedSkip{
	{"*", "*", "/dev/fuse", notInCI, "a laptop or a container without FUSE still runs the other tests"},
	{"*", "*", "npm registry cannot be reached", notInCI, "a laptop without a network still runs the other tests"},

	{"integration/dist", "TestCompanion", "make soak does", everywhere, "the second program links a large library, once for each architecture"},
	{"integration/sandbox", "TestSecretPrograms/*/*/*", "the other user runs it", everywhere, "make soak runs the slow programs as both users"},
	{"integration/sandbox", "TestSecretPrograms/*/*/*", "this machine has no cargo", everywhere, "cargo is many packages, and rootsfs treats the requests of all programs alike"},
	{"integration/sandbox", "TestSecretPrograms/*/*/*", "this machine has no java", everywhere, "the same"},
	{"cmd/rootsfs/internal/fleet", "TestSchedules", "ROOTSFS_SOAK=1 runs it", everywhere, "200 schedules of faults take a quarter of an hour; make soak runs them"},
	{"integration/sandbox", "TestKeysAtRealServers", "ROOTSFS_SOAK=1 runs it", everywhere, "it installs two servers; TestKeysOfOwnersFiles has servers of its own"},

	{"integration/posix", "TestDir", "ROOTSFS_POSIX_DIR", everywhere, "it tests a directory that somebody names by hand"},
	{"integration/posix", "*", "needs special files or set-id bits", everywhere, "TestSafe runs the rest of the suite without them"},
	{"integration/posix", "*", "needs root", everywhere, "TestSafe runs the rest of the suite without root"},
	{"integration/posix", "*", "makes 65000 links", everywhere, "make soak does this"},
	{"integration/posix", "*", "no limit below", everywhere, "a file system without a limit of links has no error to compare"},
	{"integration/posix", "*", "has no fallocate mode", everywhere, "a file system without the mode has no effect to compare"},
	{"integration/posix", "*", "has no access control lists", everywhere, "a file system without them has no effect to compare"},
	{"integration/model", "TestSmallest", "spin is missing", notInCI, "a laptop without Spin still runs the other tests"},
	{"integration/console", "TestScreenshots", "make screenshots", everywhere, "it writes the README's pictures, which a person must look at"},
	{"mount", "*", "wrong by POSIX", everywhere, "go-fuse's own run leaves the test out: it fails on ext4, too"},
	{"mount", "*", "does not support large xattrs", everywhere, "ext4 keeps an attribute in one block; only file systems such as xfs keep larger ones"},
	{"mount", "*", "--cache max takes read-only roots only", everywhere, "such a mount refuses the case's grant, which another test shows"},
	{"guard/audit", "*", "--- SKIP: FuzzLine", everywhere, "a seed of the fuzzer that is no path has no record"},
	{"vfs", "TestAllocateIsLimited", "has no fallocate mode", everywhere, "tmpfs lacks the mode"},
	{"vfs", "*", "the file system knows no holes", everywhere, "a copy keeps holes only where there are any"},
	{"vfs", "*", "a file system without holes", everywhere, "the same"},
	{"integration/revoke", "*", "no userfaultfd", everywhere, "without it no program can be made to stop in the middle of a listing"},
	{"mount/sandbox", "*", "the kernel has no Landlock", everywhere, "without Landlock the level is refused, which another test shows"},
	{"mount/transport", "TestServerInACpuset", "no control group with a cpuset", everywhere, "a bare container mounts no cpuset controller; TestServerOnOneProcessor shows the same with a system call that is refused"},
	{"mount/sandbox", "*", "this machine gives no control group", everywhere, "a bare container mounts no memory controller; TestMemoryMax shows what is said then"},
	{"mount/sandbox", "TestCopies", "this host has only", everywhere, "a bare container has too few files in /etc to copy"},

	{"*", "*", "root", notForRoot, "an ordinary user cannot mount other file systems, nor become somebody else"},
	{"*", "*", "bind", notForRoot, "the same"},
	{"*", "*", "operation not permitted", notForRoot, "the same"},
}

// judgeSkips returns a problem for each skip that is not allowed on the machine. Without the
// problem, nobody would notice that the test is left out.
func (r *report) judgeSkips(m machine) (problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.skips {
		if allowed(s, m) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s skipped %s, which is not in the list of allowed skips (integration/suite/skips.go): %s", s.Package, s.Test, reasonOf(s.Output)))
	}
	return problems
}

func allowed(s skip, m machine) bool {
	rel := s.Package
	if parts := strings.SplitN(s.Package, "/", 4); len(parts) == 4 {
		rel = parts[3]
	}
	return slices.ContainsFunc(allowedSkips, func(a allowedSkip) bool {
		return a.where(m) && matches(a.pkg, rel) && matches(a.test, s.Test) && strings.Contains(s.Output, a.message)
	})
}

// matches is path.Match, except that "*" alone matches anything.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "*" || ok && err == nil
}

// reasonOf returns the output of a test without the lines that go test adds.
func reasonOf(output string) string {
	var reasons []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			reasons = append(reasons, line)
		}
	}
	if len(reasons) == 0 {
		return "it says no reason"
	}
	return strings.Join(reasons, "; ")
}
