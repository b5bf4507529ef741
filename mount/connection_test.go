package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/oldkernel"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// A mount is served by the transport that Options asks for, and Transport returns the transport in
// use.
func TestTransports(t *testing.T) {
	for _, want := range []Transport{TransportPlain, TransportIOUring, TransportAuto} {
		t.Run(string(want), func(t *testing.T) {
			if want == TransportIOUring || want == TransportAuto && os.Geteuid() == 0 {
				childfs.HoldRings(t) // auto would leave the kernel's switch on
			}
			m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) { o.Transport = want })
			got, why := m.Transport()
			expected := want
			if want == TransportAuto {
				expected = TransportIOUring
				if why != nil {
					expected = TransportPlain
				}
			}
			if got != expected {
				t.Errorf("served by %s, because %v", got, why)
			}
			if err := os.WriteFile(filepath.Join(m.src, "a"), []byte("hello"), 0o644); err != nil {
				t.Fatal(err)
			}
			if text, err := childfs.ReadFile(filepath.Join(m.root, "a")); err != nil || string(text) != "hello" {
				t.Errorf("read %q, %v", text, err)
			}
		})
	}
	for _, unknown := range []string{"ftp", "go-fuse"} {
		if _, err := ParseTransport(unknown); err == nil || !strings.Contains(err.Error(), "write auto, io_uring or plain") {
			t.Errorf("%s: %v", unknown, err)
		}
	}
}

// If a mount must be served over io_uring and cannot be, New returns an error and nothing is
// mounted.
func TestNoRingsIsAnError(t *testing.T) {
	requireRoot(t)
	childfs.HoldRings(t)
	t.Setenv(transportEnv, "io_uring")
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	point := t.TempDir()
	m, err := New(reg, Options{Point: point, maxWrite: 64 << 10})
	if err == nil {
		_ = m.Close()
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), "--transport io_uring") {
		t.Errorf("%v", err)
	}
	if _, err := mountpoint.Find(point); !errors.Is(err, mountpoint.ErrNotMounted) {
		t.Errorf("something is mounted: %v", err)
	}
}

// The error of a mount that io_uring cannot serve has the kernel's reason and a remedy.
func TestNoRingsSaysWhy(t *testing.T) {
	requireRoot(t)
	childfs.HoldRings(t)
	if !oldkernel.Enter(t, oldkernel.Call{Nr: unix.SYS_IO_URING_SETUP, Errno: unix.EPERM}) {
		return
	}
	m, err := New(guard.NewRegistry(guard.Config{Opener: vfs.Opener()}), Options{Point: t.TempDir(), Transport: TransportIOUring})
	if err == nil {
		_ = m.Close()
		t.Fatal("no error")
	}
	if !errors.Is(err, mountpoint.ErrNoFUSE) {
		t.Errorf("%v: it is no ErrNoFUSE, which decides the exit code", err)
	}
	for _, want := range []string{"--transport io_uring", "io_uring_setup: operation not permitted", "--transport auto"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it does not say %q", err, want)
		}
	}
}

// stopAtPoll is the output of a log. At the line about a POLL request, its Write prints "stopped"
// and blocks.
type stopAtPoll struct{}

func (stopAtPoll) Write(line []byte) (int, error) {
	if !strings.Contains(string(line), ": POLL ") {
		return len(line), nil
	}
	fmt.Println("stopped")
	select {}
}

// pollsEnv is the environment variable with the directory of a child process that never answers
// POLL.
const pollsEnv = "ROOTSFS_POLLS"

// childPolls mounts and never answers the POLL that its New causes.
func childPolls(dir string) error {
	src, point := filepath.Join(dir, "src"), filepath.Join(dir, "mnt")
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "code", Dir: names.Foreign(src), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})
	if err != nil {
		return err
	}
	_, err = New(reg, Options{Point: point, Debug: true, Log: slog.New(slog.NewTextHandler(stopAtPoll{}, nil))})
	return fmt.Errorf("New has returned: %w", err)
}

// A daemon ends if it is killed while its New waits for the answer to POLL, on each transport. The
// thread that waits keeps neither the connection nor a ring alive.
func TestKilledWhileItPolls(t *testing.T) {
	requireRoot(t)
	for _, kind := range []Transport{TransportPlain, TransportIOUring} {
		t.Run(string(kind), func(t *testing.T) {
			if kind == TransportIOUring {
				childfs.HoldRings(t)
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), pollsEnv+"="+newSourceAndPoint(t), transportEnv+"="+string(kind))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			_ = cmd.Process.Kill()
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(ended)
			}()
			if err != nil || line != "stopped\n" {
				t.Errorf("the daemon says %q, %v", line, err)
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatalf("process %d was killed and has not ended: it waits for its own answer", cmd.Process.Pid)
			}
		})
	}
}
