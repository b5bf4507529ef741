package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
)

// The program of the fleet commands is found beside rootsfs or in libexec. It is never taken
// from PATH, and never from a directory that a confined program can write to.
func TestFleetProgram(t *testing.T) {
	for _, v := range []string{"HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(v, t.TempDir())
	}
	prefix, path := t.TempDir(), t.TempDir()
	put := func(dir string) string {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, fleetProgram)
		if err := os.WriteFile(file, []byte("#!/bin/false\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Setenv("PATH", path)
	put(path)
	self := filepath.Join(prefix, "bin", "rootsfs")
	if got, err := findFleet(self); err == nil || exitCode(err) != ExitSystem {
		t.Errorf("in PATH only: %q, %v", got, err)
	}
	for _, dir := range []string{filepath.Join(prefix, "libexec"), filepath.Join(prefix, "bin")} {
		place := put(dir)
		if got, err := findFleet(self); err != nil || got != place {
			t.Errorf("%s: found %q, %v", place, got, err)
		}
	}
	if got, err := findBeside(filepath.Join(prefix, "libexec", fleetProgram), fleetProgram, "bin"); err != nil || got != filepath.Join(prefix, "libexec", fleetProgram) {
		t.Errorf("from libexec: found %q, %v", got, err)
	}
	d, err := writabledirs.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.NoteWritable(filepath.Join(prefix, "bin")); err != nil {
		t.Fatal(err)
	}
	if got, err := findFleet(self); err == nil {
		t.Errorf("in a writable root: found %q", got)
	}
}
