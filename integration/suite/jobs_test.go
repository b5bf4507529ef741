package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const module = "github.com/rootsfs/rootsfs/"

// inThis returns the packages in directories of this module.
func inThis(dirs ...string) (packages []string) {
	for _, dir := range dirs {
		packages = append(packages, module+dir)
	}
	return packages
}

// Every package is in one part: the last has those that are listed nowhere. Without a name of a
// part every package is chosen, the longest first.
func TestChoose(t *testing.T) {
	all := inThis("guard", "guard/names", "guardian", "integration/files", "integration/sandbox/hostile", "mount", "mount/sandbox", "vfs")
	for _, c := range []struct{ names, want []string }{
		{[]string{"core"}, inThis("vfs", "guard", "guard/names", "mount/sandbox")},
		{[]string{"peers"}, inThis("integration/files")},
		{[]string{"confined"}, inThis("integration/sandbox/hostile")},
		{[]string{"rest"}, inThis("mount", "guardian")},
		{[]string{"peers", "rest"}, inThis("mount", "integration/files", "guardian")},
		{nil, inThis("vfs", "mount", "integration/files", "guard", "guard/names", "guardian", "integration/sandbox/hostile", "mount/sandbox")},
	} {
		if got := choose(all, c.names); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.names, got, c.want)
		}
	}
}

// A package is tested with the race detector, unless it is listed. Each directory in a list exists.
func TestJobs(t *testing.T) {
	packages := inThis("guard", "integration/deps", "integration/dist/x")
	both := jobs(packages, true)
	if len(both) != 2 || !both[0].race || both[1].race || !slices.Equal(both[0].packages, inThis("guard", "integration/dist/x")) || !slices.Equal(both[1].packages, packages[1:2]) {
		t.Errorf("%+v", both)
	}
	if one := jobs(packages, false); len(one) != 1 || one[0].race || len(one[0].packages) != 3 || one[0].atOnce != both[0].atOnce+both[1].atOnce {
		t.Errorf("without the race detector: %+v", one)
	}
	for _, dir := range slices.Concat(unraced, longest) {
		if _, err := os.Stat(filepath.Join("../..", dir)); err != nil {
			t.Error(err)
		}
	}
}
