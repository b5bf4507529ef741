package main

import (
	"os"
	"path/filepath"
	"reflect"
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

// A package is tested with the race detector, unless it is in unraced or, on a slow machine, not in
// alwaysRaced.
func TestJobs(t *testing.T) {
	packages := packagesIn("guard", "integration/deps", "integration/dist/x")
	for r, want := range map[raced][]job{
		racedMost:  {{"raced", packagesIn("guard", "integration/dist/x"), true, 3}, {"plain", packagesIn("integration/deps"), false, 1}},
		racedLeast: {{"raced", packagesIn("guard"), true, 2}, {"plain", packagesIn("integration/deps", "integration/dist/x"), false, 3}},
		racedNone:  {{"plain", packages, false, 4}},
	} {
		if got := jobs(packages, r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", r, got, want)
		}
	}
}

// Each directory that a list names exists.
func TestNamedDirectories(t *testing.T) {
	for _, dir := range slices.Concat(alwaysRaced, unraced, longest) {
		if _, err := os.Stat(filepath.Join("../..", dir)); err != nil {
			t.Error(err)
		}
	}
}

// The choice for this machine is one of two, and only the smaller one has a reason. Other words are
// refused.
func TestRacedChoice(t *testing.T) {
	if r, why, err := racedAuto.onThisMachine(); err != nil || (r != racedMost || why != "") && (r != racedLeast || why == "") {
		t.Errorf("%q, %q, %v", r, why, err)
	}
	if r, why, err := raced("yes").onThisMachine(); err == nil {
		t.Errorf("%q, %q", r, why)
	}
}
