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

// panics is a program of TestMain: rootsfs whose standard error prints the directory of the run on
// standard output at the first write, and then panics.
func panics() {
	os.Exit(run(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: panicking{}}))
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds { // one of them is the open and locked directory of the run
		if dir, _ := os.Readlink(fd); cleanup.IsInPlace(dir) {
			_, _ = os.Stdout.WriteString(dir)
			break
		}
	}
	panic("as the test wants it")
}

// R070: a run that panics does not dismiss its cleaner (package cleanup), so the cleaner removes
// the run's mount and directory.
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
		t.Fatalf("rootsfs did not panic: %v, %q\n%s", err, out, stderr.String())
	}
	runDir := string(out)
	if !strings.Contains(runDir, "/.rootsfs-run-") {
		t.Fatalf("the run printed no directory: %q\n%s", out, stderr.String())
	}
	if !testkit.Eventually(func() bool { _, err := os.Lstat(runDir); return errors.Is(err, fs.ErrNotExist) }) {
		_ = mountpoint.Detach(filepath.Join(runDir, "tree", "mnt"), true)
		t.Fatalf("%s is left", runDir)
	}
}
