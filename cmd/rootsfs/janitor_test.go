package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount"
)

// A janitor that is told Done has initialised nothing that only the rest of the
// program needs; one that is not goes on to clean up.
func TestJanitorWaitsEarly(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, said string
		code       int
		early      bool
	}{
		{"done", janitor.Done, 0, true},
		{"done and more", janitor.Done + "x", 0, true},
		{"killed", "", exitUsage, false}, // the directory is none of a run
		{"killed while it spoke", "do", exitUsage, false},
		{"something else", "stop\n", exitUsage, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trace strings.Builder
			cmd := &exec.Cmd{
				Path: exe, Args: []string{"rootsfs", janitor.Name, filepath.Join(t.TempDir(), "none")},
				Env: append(os.Environ(), "GODEBUG=inittrace=1"), Stdin: strings.NewReader(c.said), Stderr: &trace,
			}
			code := 0
			if err := cmd.Run(); err != nil {
				code = cmd.ProcessState.ExitCode()
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, trace.String())
			}
			if !strings.Contains(trace.String(), "init os ") {
				t.Fatalf("no trace of what was initialised:\n%s", trace.String())
			}
			for _, late := range []string{"init net/http ", "init encoding/json ", "init github.com/spf13/cobra "} {
				if strings.Contains(trace.String(), late) == c.early {
					t.Errorf("%q in the trace: %v", late, c.early)
				}
			}
		})
	}
}

// What a killed run left goes also when somebody holds the connection of its mount,
// which then answers nothing and is not stale, and when something keeps a directory
// of it for a while. R070.
func TestCleanAfter(t *testing.T) {
	if err := mount.CheckFUSE(); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to run this: root, and %v", err)
		}
		t.Skip("needs root, and ", err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for name, keep := range map[string]func(t *testing.T, p *private){
		"nothing": func(*testing.T, *private) {},
		"a held connection": func(t *testing.T, p *private) {
			fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { fuse.Close() })
			data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
			if err := unix.Mount("rootsfs", p.point, mount.FSType, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
				t.Fatal(err)
			}
		},
		"a directory in use": func(t *testing.T, p *private) {
			if err := unix.Mount("none", p.scratch, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = unix.Unmount(p.scratch, 0) })
		},
		"a directory that is gone": func(t *testing.T, p *private) {
			if err := os.RemoveAll(filepath.Dir(p.point)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := makePrivate(guard.User{UID: 65600, GID: 65600})
			if err != nil {
				t.Fatal(err)
			}
			keep(t, p)
			t.Cleanup(func() { // of a test that has failed
				_ = unix.Unmount(p.point, unix.MNT_DETACH)
				_ = unix.Unmount(p.scratch, unix.MNT_DETACH)
				p.remove()
			})
			if err := cleanAfter(context.Background(), p.dir); err != nil || !p.gone() {
				t.Errorf("%v; gone: %v", err, p.gone())
			}
		})
	}
}

// The pipe of a killed run ends while the kernel still closes what else it had, its
// session's lock too: the janitor waits for its end, or the session would pass for a
// live one and stay. R070.
func TestJanitorAwaitsTheEnd(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	base, err := control.EnsureRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	session, begun := filepath.Join(base, "victim"), filepath.Join(t.TempDir(), "begun")
	program := filepath.Join(t.TempDir(), "rootsfs") // whose name says that it is to be rootsfs
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(session, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := makePrivate(guard.User{UID: 65600, GID: 65600})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.remove) // of a test that has failed
	p.lock.Close()
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// The shell is the run: it has the lock, and ends when the place has gone.
	run := exec.Command("sh", "-c", `exec 9<"$1" 3<&0 0<&-; flock 9; `+janitor.OfVar+`=$$ "$0" `+janitor.Name+` "$2" <&3 3<&- 9<&- & exec 3<&-; echo >"$3"; while [ -e "$2" ]; do sleep 0.01; done; sleep 0.3`,
		program, session, p.dir, begun)
	run.Stdin, run.Stderr = pipe, os.Stderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	pipe.Close()
	await(t, "the shell", func() bool { _, err := os.Stat(begun); return err == nil })
	await(t, "the janitor", func() bool { return len(janitorsOf(t, p.dir)) == 1 })
	w.Close()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the session", func() bool { _, err := os.Stat(session); return os.IsNotExist(err) })
	await(t, "the janitor's end", func() bool { return len(janitorsOf(t, p.dir)) == 0 })
}

// janitorsOf are the processes that watch over a place and wait for their pipe, or
// clean up.
func janitorsOf(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "\x00"+janitor.Name+"\x00"+dir+"\x00") {
			pids = append(pids, f)
		}
	}
	return pids
}
