package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// These tests imitate machines that cannot confine a command, or not fully. A seccomp filter
// refuses system calls to rootsfs and to all processes that rootsfs starts, as a container's
// profile or an old kernel does.

// weaken makes system calls of this thread fail, as on a machine without the features in what.
// Each feature is "namespaces", "landlock", "mounts", or a fault in the syntax of faultOf.
func weaken(what []string) error {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		has   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K

		seccompErrno, seccompAllow = 0x00050000, 0x7fff0000 // linux/seccomp.h
		number, firstArg           = 0, 16                  // struct seccomp_data
		newNamespace               = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	)
	p := []unix.SockFilter{{Code: load, K: number}}
	refuse := func(errno unix.Errno, calls ...uint32) {
		for _, nr := range calls {
			p = append(p, unix.SockFilter{Code: equal, Jf: 1, K: nr}, unix.SockFilter{Code: ret, K: seccompErrno | uint32(errno)})
		}
	}
	for _, w := range what {
		switch w {
		case "namespaces":
			refuse(unix.EPERM, unix.SYS_UNSHARE)
			refuse(unix.ENOSYS, unix.SYS_CLONE3)
			p = append(p, unix.SockFilter{Code: equal, Jf: 4, K: unix.SYS_CLONE}, unix.SockFilter{Code: load, K: firstArg},
				unix.SockFilter{Code: has, Jf: 1, K: newNamespace}, unix.SockFilter{Code: ret, K: seccompErrno | uint32(unix.EPERM)},
				unix.SockFilter{Code: load, K: number})
		case "landlock":
			refuse(unix.ENOSYS, unix.SYS_LANDLOCK_CREATE_RULESET)
		case "mounts":
			refuse(unix.EPERM, unix.SYS_MOUNT, unix.SYS_FSOPEN)
		default:
			f, err := faultOf(w)
			if err != nil {
				return err
			}
			if f.arg < 0 {
				refuse(f.errno, f.nr)
				continue
			}
			p = append(p, unix.SockFilter{Code: equal, Jf: 4, K: f.nr}, unix.SockFilter{Code: load, K: firstArg + 8*uint32(f.arg)},
				unix.SockFilter{Code: f.cond, Jf: 1, K: f.value}, unix.SockFilter{Code: ret, K: seccompErrno | uint32(f.errno)},
				unix.SockFilter{Code: load, K: number})
		}
	}
	p = append(p, unix.SockFilter{Code: ret, K: seccompAllow})
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// fault is an error with which a system call fails: always, or only if the argument number arg
// meets the condition cond for value.
type fault struct {
	nr, value uint32
	errno     unix.Errno
	arg       int // -1: always
	cond      uint16
}

// faultOf parses a fault, such as "pivot_root=ENOMEM". A fault of clone affects only calls that
// make a user, mount or PID namespace.
func faultOf(s string) (fault, error) {
	const equal, has = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	calls := map[string]fault{
		"ioctl TIOCGPTN": {nr: unix.SYS_IOCTL, arg: 1, cond: equal, value: unix.TIOCGPTN},
		"clone":          {nr: unix.SYS_CLONE, arg: 0, cond: has, value: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID},
		"clone3":         {nr: unix.SYS_CLONE3, arg: -1},
		"unshare":        {nr: unix.SYS_UNSHARE, arg: -1}, "fsconfig": {nr: unix.SYS_FSCONFIG, arg: -1}, "move_mount": {nr: unix.SYS_MOVE_MOUNT, arg: -1},
		"open_tree": {nr: unix.SYS_OPEN_TREE, arg: -1}, "pivot_root": {nr: unix.SYS_PIVOT_ROOT, arg: -1},
		"landlock_create_ruleset": {nr: unix.SYS_LANDLOCK_CREATE_RULESET, arg: -1},
	}
	errnos := map[string]unix.Errno{
		"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS, "ENOSPC": unix.ENOSPC, "EUSERS": unix.EUSERS, "EAGAIN": unix.EAGAIN, "ENFILE": unix.ENFILE, "EMFILE": unix.EMFILE,
		"ENOMEM": unix.ENOMEM, "EDQUOT": unix.EDQUOT, "ENOBUFS": unix.ENOBUFS,
	}
	name, errno, _ := strings.Cut(s, "=")
	f, known := calls[name]
	f.errno = errnos[errno]
	if !known || f.errno == 0 {
		return f, fmt.Errorf("there is no fault %q", s)
	}
	return f, nil
}

// weakOrder returns the order of a run on a machine without the features in weak. wrapper is the
// beginning of the command line, before rootsfs.
func (o *outside) weakOrder(weak []string, wrapper []string, flags ...string) order {
	args := append([]string{"run", "--name", sessionName, "--root", "root=" + o.root + ":rw"}, flags...)
	args = append(slices.Clone(wrapper), o.rootsfs(append(args, "--", "sh", "-c", "echo ran; id -u")...)...)
	return order{Args: args, Weak: weak}
}

// weakRun carries out a weakOrder and returns the output. The command prints that it ran,
// and as which user.
func (o *outside) weakRun(weak []string, wrapper []string, flags ...string) (stdout, log string, code int) {
	return o.run(o.weakOrder(weak, wrapper, flags...))
}

// runDirName matches the path of the private directory of a run, as the audit log names it.
var runDirName = regexp.MustCompile(`/[^ "]*/\.rootsfs-run-[a-z0-9]+`)

// checkNothingLeft checks that the session and the directories of all runs so far are gone. It
// returns the number of these directories, which it finds in the audit logs.
func (o *outside) checkNothingLeft() int {
	t := o.t
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(o.base, "xdg_state_home/rootsfs/audit", sessionName+"-*.jsonl"))
	testkit.Must(t, err)
	dirs := map[string]bool{}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		testkit.Must(t, err)
		for _, dir := range runDirName.FindAllString(string(text), -1) {
			dirs[dir] = true
			if !absent(dir) || strings.Contains(hostMounts(t), dir+"/") {
				t.Errorf("%s is left", dir)
			}
		}
	}
	if !absent(o.Session) {
		t.Error("the session is left")
	}
	return len(dirs)
}

// If no level can be reached, nothing is started and nothing is left. The error says for each
// level what is missing, and what to do. --unconfined starts the command, and prints the
// consequences. R063.
func TestRefused(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		none := []string{"namespaces", "landlock"}
		for _, c := range []struct {
			what  string
			weak  []string
			flags []string
			want  []string
		}{
			{"no level", none, nil, []string{
				"nothing was started", "namespaces: namespaces are refused", "bubblewrap: bwrap: ", "landlock: the kernel has no Landlock", "--unconfined", "rootsfs doctor"}},
			{"namespaces asked for", none, []string{"--level", "namespaces"}, []string{"nothing was started", "namespaces are refused", "leave --level out"}},
			{"landlock asked for", none, []string{"--level", "landlock", "--unconfined"}, []string{"nothing was started", "no Landlock", "leave --level out"}},
			{"no mounts", []string{"mounts"}, nil, []string{"cannot mount at "}},
		} {
			stdout, log, code := o.weakRun(c.weak, nil, c.flags...)
			if stdout != "" || code != 5 {
				t.Errorf("%s: exit code %d, the command said %q", c.what, code, stdout)
			}
			for _, want := range c.want {
				if !strings.Contains(log, want) {
					t.Errorf("%s: %q is missing in: %s", c.what, want, log)
				}
			}
			o.checkNothingLeft()
		}
		stdout, log, code := o.weakRun(none, nil, "--unconfined")
		if want := fmt.Sprintf("ran\n%d\n", o.caller.uid); stdout != want || code != 0 || !strings.Contains(log, "NOT CONFINED") || !strings.Contains(log, "can do whatever you can") || strings.Contains(log, "would confine it here") {
			t.Errorf("unconfined: exit code %d, the command said %q, rootsfs: %s", code, stdout, log)
		}
		if n := o.checkNothingLeft(); n < 3 { // the run with --level namespaces has no directory
			t.Errorf("the audit logs name %d directories of runs, want at least 3", n)
		}
		_, _, _ = o.weakRun(none[:1], nil)
		var recorded []string
		for line := range strings.Lines(o.owner("audit", "show", "--session", sessionName)) {
			if f := strings.Fields(line); len(f) > 4 && f[3] == "run" {
				recorded = append(recorded, f[2]+": "+strings.Trim(strings.Join(f[5:], " "), "()"))
			}
		}
		refused := "refused: Other, control, no confinement that was asked for can be had here"
		want := []string{refused, refused, refused, fmt.Sprintf("allowed: control, not confined, uid %d", o.caller.uid), fmt.Sprintf("allowed: control, confined by landlock, uid %d", o.caller.commandUID())}
		if !slices.Equal(recorded, want) {
			t.Errorf("the audit records are %q, want %q", recorded, want)
		}
	})
}

// If namespaces are refused, a run without --level still runs the command, at another level, and
// leaves nothing behind. If the audit log cannot be opened, the run fails, and leaves nothing
// behind either.
func TestNextLevel(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		stdout, log, code := o.weakRun([]string{"namespaces"}, nil)
		if want := fmt.Sprintf("ran\n%d\n", o.caller.commandUID()); stdout != want || code != 0 {
			t.Errorf("exit code %d, the command said %q, rootsfs: %s", code, stdout, log)
		}
		if n := o.checkNothingLeft(); n != 1 {
			t.Errorf("the audit logs name %d directories of runs, want 1", n)
		}
		stdout, log, code = o.weakRun([]string{"namespaces"}, []string{"/usr/bin/env", "XDG_STATE_HOME=/dev/null"})
		if stdout != "" || code == 0 || !strings.Contains(log, "the audit log cannot be opened") {
			t.Errorf("no audit log: exit code %d, the command said %q, rootsfs: %s", code, stdout, log)
		}
		o.checkNothingLeft()
	})
}

// Hard limits that an administrator sets for a user do not prevent confinement: the command runs at
// each level, with fewer processes and without core files. If the limit of processes is too low,
// the command does not run, and rootsfs run and rootsfs doctor report the limit.
func TestHardLimits(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		for _, level := range []string{"namespaces", "bubblewrap", "landlock"} {
			stdout, log, code := o.weakRun(nil, []string{"/usr/bin/prlimit", "--nproc=300:300", "--core=0:0"}, "--level", level)
			if want := fmt.Sprintf("ran\n%d\n", o.caller.commandUID()); stdout != want || code != 0 {
				t.Errorf("%s: exit code %d, the command said %q, rootsfs: %s", level, code, stdout, log)
			}
		}
		stdout, log, code := o.weakRun(nil, []string{"/usr/bin/prlimit", "--nproc=40:40"})
		if stdout != "" || code != 5 || !strings.Contains(log, "the limit of processes of this user is 40 (ulimit -Hu)") {
			t.Errorf("too few processes: exit code %d, the command said %q, rootsfs: %s", code, stdout, log)
		}
		output, err := o.driver(order{Args: append([]string{"/usr/bin/prlimit", "--nproc=40:40"}, o.rootsfs("doctor")...)}).Output()
		if !strings.Contains(string(output), "rootsfs run cannot confine a command: namespaces: the limit of processes of this user is 40") {
			t.Errorf("doctor: %s, %v", output, err)
		}
	})
}
