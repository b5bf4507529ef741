// Package testkit holds functions that tests of all packages need: Must ends a test on an error,
// Until and Eventually wait for a state, Build builds programs, and IsRaced tells how the test was
// built. The package imports nothing of this module, so that every test can import it.
//
// A test that waits for something that another goroutine or process does calls Until. Such a test
// neither sleeps for a fixed time nor judges how long the state takes to come.
package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// Patience is how long Until and Eventually wait. It only ends a test that has failed: no
// test passes because of it.
const Patience = 2 * time.Minute

// The pause between two looks at a state grows from minPause to maxPause: most states come
// soon, and a look may start a program.
const (
	minPause = time.Millisecond
	maxPause = 32 * time.Millisecond
)

// Must ends the test if one of errs is not nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Build builds programs of this module. to is a file or, with a slash at its end, a directory.
// The programs are as in a release: linked statically, without symbols and the paths of their sources.
// All tests build in this way, and so compile each package once between them.
func Build(to string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", to}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(packages, " and "), err, out)
	}
	return nil
}

// IsRaced reports whether this test binary has the race detector.
func IsRaced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Until returns when reached returns true. It ends the test if reached does not return true within
// Patience. state names what the test waits for.
func Until(t testing.TB, state string, reached func() bool) {
	t.Helper()
	if !Eventually(reached) {
		t.Fatalf("never reached within %v: %s", Patience, state)
	}
}

// Eventually reports whether reached returns true within Patience. It is for a test that
// says more about a failure than Until can.
func Eventually(reached func() bool) bool { return within(Patience, reached) }

// within reports whether reached returns true before the limit has passed. It calls reached once
// more after the limit, so that the test does not fail only because its process was stopped
// meanwhile.
func within(limit time.Duration, reached func() bool) bool {
	end := time.Now().Add(limit)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		late := time.Now().After(end)
		if reached() {
			return true
		}
		if late {
			return false
		}
		time.Sleep(pause)
	}
}
