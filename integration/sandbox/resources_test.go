package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// exhaustedResources lists resources that can be used up. For each of them, weak has the system
// calls that then fail in a run, with their errors (see faultOf), and want is a text that the run's
// error must contain.
var exhaustedResources = []struct {
	what     string
	weak     []string
	terminal bool
	want     string
}{
	{"ptys", []string{"ioctl TIOCGPTN=ENOSPC"}, true, "open a terminal: no space left on device"},
	{"namespaces", []string{"clone3=ENOSYS", "clone=ENOSPC"}, false, "no space left on device"},
	{"namespaces, counted by user", []string{"clone3=ENOSYS", "clone=EUSERS"}, false, "too many users"},
	{"processes", []string{"clone3=ENOSYS", "clone=EAGAIN"}, false, "resource temporarily unavailable"},
	{"cgroup namespaces", []string{"unshare=ENOSPC"}, false, "no space left on device"},
	{"open files of the machine", []string{"move_mount=ENFILE"}, false, "too many open files in system"},
	{"descriptors", []string{"open_tree=EMFILE"}, false, "too many open files"},
	{"memory", []string{"pivot_root=ENOMEM"}, false, "cannot allocate memory"},
	{"memory for Landlock's rules", []string{"landlock_create_ruleset=ENOMEM"}, false, "cannot allocate memory"},
	{"quota", []string{"pivot_root=EDQUOT"}, false, "disk quota exceeded"},
	{"buffers", []string{"pivot_root=ENOBUFS"}, false, "no buffer space available"},
	{"memory, of bwrap", []string{"unshare=EPERM", "fsconfig=EPERM", "pivot_root=ENOMEM"}, false, "bubblewrap: bwrap: pivot_root: Cannot allocate memory"},
}

// If a resource is used up, the run fails and does not use a weaker confinement: nothing is
// started, and the error contains the reason that the failed system call gave.
func TestUsedUp(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		for _, c := range exhaustedResources {
			ord := o.weakOrder(c.weak, nil)
			ord.Terminal = c.terminal
			stdout, log, code := o.run(ord)
			if stdout != "" || code != 5 {
				t.Errorf("%s used up: exit code %d, the command said %q", c.what, code, stdout)
			}
			if !strings.Contains(log, c.want) || !strings.Contains(log, "nothing was started") && !strings.Contains(log, "cannot mount") {
				t.Errorf("%s used up: %q is missing in: %s", c.what, c.want, log)
			}
			o.checkNothingLeft()
		}
	})
}

// A machine whose limit of user namespaces is 0 counts as one without namespaces, although the
// kernel's error is the same as for namespaces that are used up.
func TestNoNamespacesAllowed(t *testing.T) {
	o := newOutside(t, callers[1])
	zero := filepath.Join(o.base, "zero")
	testkit.Must(t, os.WriteFile(zero, []byte("0\n"), 0o644))
	o.mounts["/proc/sys/user/max_user_namespaces"] = zero
	stdout, log, code := o.weakRun([]string{"clone3=ENOSYS", "clone=ENOSPC"}, nil)
	if stdout != "ran\n1001\n" || code != 0 || !strings.Contains(log, "confined by landlock only") {
		t.Errorf("exit code %d, the command said %q: %s", code, stdout, log)
	}
}

// inFlight is the number of descriptors that fill keeps in flight.
const inFlight = 400

// fill keeps descriptors in flight (sent, but not received) until standard input ends. The kernel
// counts the descriptors in flight of each user.
func fill() int {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 1
	}
	fds := make([]int, 100)
	for i := range fds {
		fds[i] = pair[0]
	}
	for range inFlight / len(fds) {
		if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fds...), nil, 0); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// If another process of the command's user has more descriptors in flight than the run's limit of
// open files, a run with a terminal is refused, because the run's init has to pass a descriptor.
func TestDescriptorsInFlight(t *testing.T) {
	for _, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			cmd := exec.Command(filepath.Join(programsDir(t), "driver"))
			cmd.Env = []string{fillVar + "=1", "GORACE=" + os.Getenv("GORACE")}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.commandUID()), Gid: uint32(w.commandUID())}}
			in, err := cmd.StdinPipe()
			testkit.Must(t, err)
			out, err := cmd.StdoutPipe()
			testkit.Must(t, err)
			testkit.Must(t, cmd.Start())
			defer func() { testkit.Must(t, in.Close()); testkit.Must(t, cmd.Wait()) }()
			output := make([]byte, 64)
			n, err := out.Read(output)
			testkit.Must(t, err)
			if string(output[:n]) != "ready\n" {
				t.Fatalf("the descriptors: %s", output[:n])
			}
			ord := o.weakOrder(nil, []string{"/usr/bin/prlimit", "--nofile=256:256"})
			ord.Terminal = true
			stdout, log, code := o.run(ord)
			if stdout != "" || code != 5 || !strings.Contains(log, "too many references") {
				t.Errorf("exit code %d, the command said %q: %s", code, stdout, log)
			}
		})
	}
}

// If the configuration pins the level, a run has this level or fails. The flags --level landlock and
// --unconfined, which ask for less, are refused.
func TestPinnedLevel(t *testing.T) {
	o := newOutside(t, callers[0])
	conf := filepath.Join(o.base, "pinned.toml")
	testkit.Must(t, os.WriteFile(conf, []byte("[run]\nlevel = \"namespaces\"\n"), 0o600))
	lacks := []string{"namespaces"}
	stdout, log, code := o.weakRun(lacks, nil, "--config", conf)
	if stdout != "" || code != 5 || !strings.Contains(log, "namespaces are refused") || !strings.Contains(log, "pinned.toml") {
		t.Errorf("pinned, and not available: exit code %d, the command said %q: %s", code, stdout, log)
	}
	for _, weaker := range [][]string{{"--level", "landlock"}, {"--unconfined"}} {
		stdout, log, code = o.weakRun(nil, nil, append([]string{"--config", conf}, weaker...)...)
		if stdout != "" || code != 3 || !strings.Contains(log, "pinned.toml") {
			t.Errorf("pinned, and %q: exit code %d, the command said %q: %s", weaker, code, stdout, log)
		}
	}
	stdout, log, code = o.weakRun(nil, nil, "--config", conf)
	if code != 0 || !strings.HasPrefix(stdout, "ran\n") {
		t.Errorf("pinned, and available: exit code %d, the command said %q: %s", code, stdout, log)
	}
}
