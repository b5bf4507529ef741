package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const module = "github.com/rootsfs/rootsfs/"

// packagesIn returns the import paths of the packages in directories of this module.
func packagesIn(dirs ...string) (packages []string) {
	for _, dir := range dirs {
		packages = append(packages, module+dir)
	}
	return packages
}

// choose chooses the packages of the named parts, the longest first. A package that no part lists
// is in the last part. Without a name of a part every package is chosen.
func TestChoose(t *testing.T) {
	all := packagesIn("guard", "guard/names", "guardian", "integration/files", "integration/sandbox/hostile", "mount", "mount/sandbox", "vfs")
	for _, c := range []struct{ names, want []string }{
		{[]string{"core"}, packagesIn("vfs", "guard", "guard/names", "mount/sandbox")},
		{[]string{"peers"}, packagesIn("integration/files")},
		{[]string{"confined"}, packagesIn("integration/sandbox/hostile")},
		{[]string{"rest"}, packagesIn("mount", "guardian")},
		{[]string{"peers", "rest"}, packagesIn("mount", "integration/files", "guardian")},
		{nil, packagesIn("vfs", "mount", "integration/files", "guard", "guard/names", "guardian", "integration/sandbox/hostile", "mount/sandbox")},
	} {
		if got := choose(all, c.names); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.names, got, c.want)
		}
	}
}

// A package is tested with the race detector, unless it is in unraced. Each directory in unraced
// and longest exists.
func TestJobs(t *testing.T) {
	packages := packagesIn("guard", "integration/deps", "integration/dist/x")
	both := jobs(packages, true)
	if len(both) != 2 || !both[0].race || both[1].race || !slices.Equal(both[0].packages, packagesIn("guard", "integration/dist/x")) || !slices.Equal(both[1].packages, packages[1:2]) {
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
