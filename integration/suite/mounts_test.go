package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// leaveVar is an environment variable with a path. It makes the test binary call leave for the
// path.
const leaveVar = "ROOTSFS_SUITE_LEAVE"

// leave acts as a suite whose test leaves a mount at point. It makes the mount and prints
// "mounted". When its standard input ends, it prints the suite's report about mounts. In between,
// TestMountsOfOthers makes another mount.
func leave(point string) error {
	if err := lab.StartWithOwnMounts(); err != nil {
		return err
	}
	before, err := mountPoints()
	if err != nil {
		return err
	}
	if err := mountDead(point); err != nil {
		return err
	}
	fmt.Println("mounted")
	_, _ = os.Stdin.Read(make([]byte, 1))
	problems, err := mountsLeft(before, filepath.Dir(point))
	fmt.Println(strings.Join(problems, ", "))
	return err
}

// mountDead mounts a FUSE file system of rootsfs's type that no process serves.
func mountDead(point string) error {
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer fuse.Close()
	return unix.Mount("rootsfs", point, mountpoint.FSType, 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd()))
}

// A mount that a test leaves is reported. A mount that a process outside of the suite makes
// meanwhile is neither reported nor detached.
func TestMountsOfOthers(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root, and ", err)
	}
	left, others := t.TempDir(), t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), leaveVar+"="+left), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "mounted" {
		t.Errorf("the child process said %q", lines.Text())
	}
	if err := mountDead(others); err != nil {
		t.Error(err)
	}
	in.Close()
	lines.Scan()
	if got, want := lines.Text(), "a test left a mount of fuse.rootsfs on "+left; got != want {
		t.Errorf("the child process reported %q, want %q", got, want)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(others, unix.MNT_DETACH); err != nil {
		t.Errorf("the mount of another process was detached: %v", err)
	}
}
