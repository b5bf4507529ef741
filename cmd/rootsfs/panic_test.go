package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// panics is a program of TestMain: rootsfs whose standard error panics at its first line.
// Before that it prints the directory of the run.
func panics() {
	os.Exit(run(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: panicking{}}))
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds { // one of them is the lock
		if dir, _ := os.Readlink(fd); cleanup.IsInPlace(dir) {
			_, _ = os.Stdout.WriteString(dir)
			break
		}
	}
	panic("as the test wants it")
}

// The cleaner of a run that panics removes its mount and its directory, because the run does
// not dismiss the cleaner on its way out. R070.
func TestPanicLeavesNothing(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil {
		t.Skip("real mounts are needed: ", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	// If a command with this name runs without a network, rootsfs prints a line on standard error.
	npx := filepath.Join(root, "npx")
	if err := os.WriteFile(npx, []byte("#!/bin/sh\nsleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd := &exec.Cmd{
		Path: exe, Args: []string{"panics", "run", "--name", "panics-" + strconv.Itoa(os.Getpid()), "--root", root, "--level", "landlock", "--", npx},
		Env: append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "XDG_RUNTIME_DIR="+t.TempDir(), "GOTRACEBACK=single"), Stderr: &stderr,
	}
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), "as the test wants it") {
		t.Fatalf("it did not panic: %v, %q\n%s", err, out, stderr.String())
	}
	place := string(out)
	if !strings.Contains(place, "/.rootsfs-run-") {
		t.Fatalf("no process watched over a place: %q\n%s", out, stderr.String())
	}
	if !testkit.Eventually(func() bool { _, err := os.Lstat(place); return errors.Is(err, fs.ErrNotExist) }) {
		_ = mountpoint.Detach(filepath.Join(place, "tree", "mnt"), true)
		t.Fatalf("%s is left", place)
	}
}
