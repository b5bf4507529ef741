package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// raced are the scripts whose daemons answer several programs at once. If this test binary has the
// race detector, these scripts run it as rootsfs, so that rootsfs has the race detector as well.
var raced = []string{"lifecycle", "mounttwo", "pause", "reload", "renew", "serve", "sessions", "stage-live", "stopped", "held"}

// releasedDir returns a directory with rootsfs as it is released. In make soak it returns "":
// scripts then run this test binary as rootsfs. The scripts start rootsfs over a thousand times, and
// a test binary needs a tenth more processor time to start; with the race detector, several times
// as much.
var releasedDir = sync.OnceValues(func() (dir string, err error) {
	if lab.Soak() {
		return "", nil
	}
	temp, err := os.MkdirTemp("", "rootsfs-released-")
	if err != nil {
		return "", err
	}
	removeReleased = func() { _ = os.RemoveAll(temp) }
	dir = filepath.Join(temp, "bin") // a directory of that name, as testscript.Main has one
	return dir, testkit.Build(dir+"/", ".")
})

// removeReleased removes the directory of releasedDir, if there is one.
var removeReleased = func() {}

// useReleased lets the test's commands run rootsfs as releasedDir has it, if it has one. It is for a
// test whose session is in the test's own process.
func useReleased(t *testing.T) {
	t.Helper()
	dir, err := releasedDir()
	testkit.Must(t, err)
	if dir != "" {
		t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
}

// programDir returns the directory of the program rootsfs for a script, or "" for this test binary.
func programDir(script string) (string, error) {
	if testkit.IsRaced() && slices.Contains(raced, strings.TrimPrefix(script, "script-")) {
		return "", nil
	}
	return releasedDir()
}
