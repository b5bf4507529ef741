package revoke

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	programs "github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// ownerLimit is the time after which a command of the owner counts as hung. (A command that
// waits for a hung operation waits for sixty seconds or more.)
const ownerLimit = 45 * time.Second

// program is a running `rootsfs mount` with one root. newProgram makes repositories in the root and
// starts the holder.
type program struct {
	t                       *testing.T
	binary, top, src, point string
	env                     []string
	cmd                     *exec.Cmd
	done                    chan struct{}
	holder                  *child // has the file f of the root open
	fd                      int    // the holder's descriptor of f
}

// rootsfsBinary is rootsfs, built once.
var rootsfsBinary = sync.OnceValues(func() (string, error) {
	dir, err := builds()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rootsfs")
	return path, testkit.Build(path, "../../cmd/rootsfs")
})

func newProgram(t *testing.T) *program {
	t.Helper()
	p := newProgramOn(t, func(src string) { testkit.Must(t, os.WriteFile(filepath.Join(src, "f"), []byte("secret"), 0o600)) })
	for _, d := range []string{"repo", "repo/.git", "bare", "bare/objects", "bare/refs"} {
		testkit.Must(t, os.Mkdir(filepath.Join(p.point, "r", d), 0o700))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(p.point, "r", "bare", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	p.holder = start(t, "holder", nil)
	p.holder.call("open", callArg{Path: filepath.Join(p.point, "r", "f"), Flags: unix.O_RDONLY}, &p.fd)
	return p
}

// newProgramOn mounts a source that prepare has filled. prepare must make the file f.
func newProgramOn(t *testing.T, prepare func(src string)) *program {
	t.Helper()
	needFUSE(t)
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(dir, 0o700)) // mounts that this process has made have set its umask to 0
	p := &program{t: t, top: filepath.Join(dir, "top"), point: filepath.Join(dir, "mnt"), done: make(chan struct{})}
	p.src = filepath.Join(p.top, "src")
	for _, d := range []string{p.src, p.point, filepath.Join(dir, "run"), filepath.Join(dir, "home")} {
		testkit.Must(t, os.MkdirAll(d, 0o700))
	}
	prepare(p.src)
	binary, err := rootsfsBinary()
	testkit.Must(t, err)
	p.binary = binary
	p.env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Join(dir, "run"), "HOME="+filepath.Join(dir, "home"),
		"XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "XDG_CACHE_HOME=", "NO_COLOR=1")
	p.cmd = exec.Command(p.binary, "mount", "--root", "r="+p.src+":rw", p.point)
	p.cmd.Env, p.cmd.Stderr = p.env, os.Stderr
	testkit.Must(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = unix.Unmount(p.point, unix.MNT_DETACH)
	})
	testkit.Eventually(func() bool {
		_, err = os.Stat(filepath.Join(p.point, "r", "f"))
		return err == nil
	})
	testkit.Must(t, err)
	return p
}

// run runs a command, which must not hang, and returns its output.
func (p *program) run(name string, args ...string) (string, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ownerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begin := time.Now()
	select {
	case err := <-ended:
		p.t.Logf("%s %s took %v", filepath.Base(name), strings.Join(args, " "), time.Since(begin).Round(time.Millisecond))
		if ctx.Err() != nil {
			p.t.Errorf("%s %s hangs", filepath.Base(name), strings.Join(args, " "))
		}
		return out.String(), err
	case <-time.After(ownerLimit + 5*time.Second): // the command has not ended although it was killed
		p.t.Errorf("%s %s hangs and cannot be killed", filepath.Base(name), strings.Join(args, " "))
		return "", context.DeadlineExceeded
	}
}

// hungPlaces lists the places at which a file system that hangs is mounted.
var hungPlaces = map[string]func(p *program) string{
	"over a repository":      func(p *program) string { return filepath.Join(p.src, "repo") },
	"below a repository":     func(p *program) string { return filepath.Join(p.src, "repo", ".git") },
	"over a bare repository": func(p *program) string { return filepath.Join(p.src, "bare") },
	"over the root":          func(p *program) string { return p.src },
	"over the root's parent": func(p *program) string { return p.top },
}

// hang mounts a file system that hangs, and waits long enough for the daemon to notice it.
func (p *program) hang(at string) {
	p.t.Helper()
	s := newSlow(p.t, at)
	s.releaseAtEnd()
	s.call("block", everything, nil)
	time.Sleep(3 * time.Second) // well above the time between two rechecks of package hostwatch
}

// If a file system hangs below a root, or over it, the owner can still see the roots, list the
// mount and end the roots. Files of the roots that a program holds are then dead.
func TestHungMountDoesNotStopTheOwner(t *testing.T) {
	for name, at := range hungPlaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t)
			p.hang(at(p))
			for _, args := range [][]string{{"roots", "list"}, {"status"}, {"status", "--json"}} {
				out, err := p.run(p.binary, args...)
				if err != nil {
					t.Errorf("%s: %v\n%s", args, err, out)
				}
			}
			if strings.HasPrefix(name, "over the root") {
				// The root's path leads to the hanging file system, so the root is unavailable.
				if out, err := p.run("ls", p.point); err != nil || out != "" {
					t.Errorf("ls of the mount: %v\n%s", err, out)
				}
			} else {
				if out, err := p.run("ls", p.point); err != nil || strings.TrimSpace(out) != "r" {
					t.Errorf("ls of the mount: %v\n%s", err, out)
				}
				if out, _ := p.run("ls", "-l", filepath.Join(p.point, "r")); !strings.Contains(out, " f\n") {
					t.Errorf("ls of the root: %s", out) // ls reports an error for the name that is mounted over
				}
			}
			if out, err := p.run(p.binary, "revoke", "--all"); err != nil {
				t.Errorf("revoke --all: %v\n%s", err, out)
			}
			if err := p.holder.try("read", callArg{FD: p.fd, Len: 6}, nil); err == nil {
				t.Error("the held file can still be read")
			}
			p.mustEnd(unix.SIGTERM)
		})
	}
}

// mustEnd fails the test if a signal does not end the daemon.
func (p *program) mustEnd(sig unix.Signal) {
	p.t.Helper()
	testkit.Must(p.t, p.holder.try("close", callArg{FD: p.fd}, nil))
	begin := time.Now()
	testkit.Must(p.t, p.cmd.Process.Signal(sig))
	select {
	case <-p.done:
		p.t.Logf("the daemon ended %v after %v", time.Since(begin).Round(time.Millisecond), sig)
	case <-time.After(ownerLimit):
		p.t.Errorf("the daemon has not ended %v after %v", ownerLimit, sig)
	}
}

// SIGTERM ends a daemon that waits for a hanging file system, and unmount ends such a session.
func TestHungMountDoesNotStopTheEnd(t *testing.T) {
	for name, at := range hungPlaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t)
			p.hang(at(p))
			p.mustEnd(unix.SIGTERM)
		})
	}
	t.Run("unmount", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t)
		p.hang(hungPlaces["over a repository"](p))
		if out, err := p.run(p.binary, "unmount", p.point); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// otherMounts lists mounts that no command line names.
var otherMounts = map[string]func(t *testing.T, dir string) *slow{
	"of another type": func(t *testing.T, dir string) *slow {
		return newSlow(t, dir)
	},
	"of another user": func(t *testing.T, dir string) *slow {
		return newSlowAs(t, slowMount{Point: dir, Type: "rootsfs", User: 12345})
	},
	"with a rootsfs mount inside": func(t *testing.T, dir string) *slow {
		s := newSlow(t, dir)
		newSlowAs(t, slowMount{Point: filepath.Join(dir, "in"), Type: "rootsfs"})
		return s
	},
}

// Commands send no request to a mount that their command line does not name.
func TestCommandsAskNoOtherMount(t *testing.T) {
	p := newProgram(t)
	for name, mount := range otherMounts {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() == 0 {
				testkit.Must(t, programs.OwnMounts()) // commands of other tests send requests to all mounts
			}
			s := mount(t, t.TempDir())
			s.releaseAtEnd()
			s.call("block", everything, nil)
			for _, args := range [][]string{
				{"status"}, {"status", "--json"}, {"roots", "list"}, {"doctor"}, {"revoke", "none"},
				{"__complete", "unmount", ""}, {"__complete", "revoke", ""}, {"unmount", filepath.Join(p.top, "nothing")},
			} {
				_, _ = p.run(p.binary, args...)
				var asked int
				if s.call("waiting", everything, &asked); asked != 0 {
					t.Fatalf("%v sent a request to the mount", args)
				}
			}
		})
	}
}

// The user's own daemon counts as alive while it is stopped, and a command that does not name
// its mount does not wait for it. A dead daemon is reported.
func TestStatusOfOnesOwnMounts(t *testing.T) {
	p := newProgram(t)
	stopped := newSlowAs(t, slowMount{Point: t.TempDir(), Type: "rootsfs"})
	testkit.Must(t, stopped.cmd.Process.Signal(unix.SIGSTOP))
	dead := newSlowAs(t, slowMount{Point: t.TempDir(), Type: "rootsfs"})
	dead.stop()
	begin := time.Now()
	out, err := p.run(p.binary, "status")
	if err != nil || !strings.Contains(out, dead.dir+": its daemon is gone") || strings.Contains(out, stopped.dir) {
		t.Errorf("%v\n%s", err, out)
	}
	if took := time.Since(begin); took > 4*time.Second { // waiting for the stopped daemon would take five
		t.Errorf("status took %v", took)
	}
}

// Doctor waits at the same time for all file systems that do not answer, and ends with its
// verdict.
func TestDoctorWaitsSideBySide(t *testing.T) {
	needFUSE(t)
	testkit.Must(t, programs.OwnMounts()) // doctor counts the dead mounts of all tests
	p := newProgram(t)
	const each = 3
	var conf bytes.Buffer
	args := []string{"doctor", "--config", filepath.Join(filepath.Dir(p.point), "doctor.toml")}
	for i := range 2 * each {
		s := newSlowAs(t, slowMount{Point: t.TempDir(), Type: "rootsfs"})
		testkit.Must(t, s.cmd.Process.Signal(unix.SIGSTOP))
		if i < each {
			args = append(args, s.dir)
		} else {
			fmt.Fprintf(&conf, "[[root]]\npath = %q\nname = \"r%d\"\n", s.dir, i)
		}
	}
	testkit.Must(t, os.WriteFile(args[2], conf.Bytes(), 0o600))
	begin := time.Now()
	out, err := p.run(p.binary, args...)
	if took := time.Since(begin); took > 3*5*time.Second { // one after the other, each of the six would take twice five seconds
		t.Errorf("doctor took %v", took)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if got := strings.Count(out, "does not answer"); err == nil || got != 2*each || !strings.Contains(out, "6 problems: ") {
		t.Errorf("%d of %d are said not to answer, the last line is %q (%v)", got, 2*each, lines[len(lines)-1], err)
	}
}
