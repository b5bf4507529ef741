//go:build amd64 || arm64

package seccomp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// machine returns a function that runs the very program that the kernel gets, in a virtual machine.
// The function returns the verdict: "allow", "kill", or the name of an error.
func machine(t *testing.T, w Wants) func(arch, nr uint32, args ...uint64) string {
	t.Helper()
	raw, err := program(w)
	if err != nil {
		t.Fatal(err)
	}
	insns, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the program has unknown instructions")
	}
	vm, err := bpf.NewVM(insns)
	if err != nil {
		t.Fatal(err)
	}
	return func(arch, nr uint32, args ...uint64) string {
		// The virtual machine reads words in network order, so the words are swapped for it.
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[dataNr:], nr)
		binary.BigEndian.PutUint32(data[dataArch:], arch)
		for i, a := range args {
			binary.BigEndian.PutUint32(data[argLow(uint32(i)):], uint32(a))
			binary.BigEndian.PutUint32(data[argLow(uint32(i))+4:], uint32(a>>32))
		}
		verdict, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		switch v := uint32(verdict); {
		case v == allow:
			return "allow"
		case v == kill:
			return "kill"
		case v&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO:
			return unix.ErrnoName(unix.Errno(v & unix.SECCOMP_RET_DATA))
		default:
			return fmt.Sprintf("%#x", v)
		}
	}
}

const high = 1 << 32 // a bit that the kernel ignores in these arguments

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		name string
		nr   uint32
		args []uint64
		want string
	}{
		{"read", unix.SYS_READ, nil, "allow"},
		{"openat2", unix.SYS_OPENAT2, nil, "allow"},
		{"execve", unix.SYS_EXECVE, nil, "allow"},
		{"seccomp", unix.SYS_SECCOMP, nil, "allow"},
		{"landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, nil, "allow"},
		{"the newest known call", lastCall, nil, "allow"},
		{"a newer call", lastCall + 1, nil, "ENOSYS"},
		{"x32's read", 0x40000000, nil, "ENOSYS"},
		{"x32's mount", 0x40000000 + unix.SYS_MOUNT, nil, "ENOSYS"},
		{"minus one", 0xffffffff, nil, "ENOSYS"},

		{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, "allow"},
		{"a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, "allow"},
		{"vfork with a pidfd", unix.SYS_CLONE, []uint64{unix.CLONE_VFORK | unix.CLONE_VM | unix.CLONE_PIDFD | uint64(unix.SIGCHLD)}, "allow"},
		{"clone a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, "EPERM"},
		{"clone a user namespace, high bit", unix.SYS_CLONE, []uint64{high | unix.CLONE_NEWUSER}, "EPERM"},
		{"clone a mount namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS}, "EPERM"},
		{"clone3", unix.SYS_CLONE3, nil, "ENOSYS"},
		{"unshare files", unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES}, "allow"},
		{"unshare user", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWUSER}, "EPERM"},
		{"unshare time", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWTIME}, "EPERM"},
		{"unshare files and net", unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES | unix.CLONE_NEWNET}, "EPERM"},
		{"setns", unix.SYS_SETNS, nil, "EPERM"},

		{"TCP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0}, "allow"},
		{"TCP over IPv6, with its protocol number", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, "allow"},
		{"UDP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, "allow"},
		{"ping", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "allow"},
		{"IP_LOCAL_PORT_RANGE", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, 51}, "ENOPROTOOPT"},
		{"IP_LOCAL_PORT_RANGE, high bits", unix.SYS_SETSOCKOPT, []uint64{3, high | unix.IPPROTO_IP, high | 51}, "ENOPROTOOPT"},
		{"another socket option", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.IP_TOS}, "allow"},
		{"option 51 of IPv6", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IPV6, 51}, "allow"},
		{"MPTCP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, "EPROTONOSUPPORT"},
		{"MPTCP, high bit", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, high | unix.IPPROTO_MPTCP}, "EPROTONOSUPPORT"},
		{"SCTP", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, "EPROTONOSUPPORT"},
		{"a raw socket", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP}, "EPERM"},
		{"unix", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT"},
		{"unix, high bit", unix.SYS_SOCKET, []uint64{high | unix.AF_UNIX, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT"},
		{"netlink", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, "EAFNOSUPPORT"},
		{"packet", unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, "EAFNOSUPPORT"},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT"},
		{"alg", unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, "EAFNOSUPPORT"},
		{"a raw unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_RAW, 0}, "EAFNOSUPPORT"},
		{"a pair of stream sockets, as Node makes it", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, "allow"},
		{"a pair of seqpacket sockets", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, "allow"},
		{"a pair of datagram sockets", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM, 0}, "EPERM"},
		{"a pair of raw sockets", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_RAW, 0}, "EPERM"},
		{"a pair of another family", unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT"},

		{"TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, "allow"},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, "EPERM"},
		{"TIOCSTI, high bit", unix.SYS_IOCTL, []uint64{0, high | unix.TIOCSTI}, "EPERM"},
		{"TIOCLINUX", unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, "EPERM"},
		{"TIOCLINUX, high bits", unix.SYS_IOCTL, []uint64{0, 0xffffffff<<32 | unix.TIOCLINUX}, "EPERM"},
		{"set its own limits", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 0x7fff0000}, "allow"},
		{"read limits of another process", unix.SYS_PRLIMIT64, []uint64{77, unix.RLIMIT_NOFILE, 0, 0x7fff0000}, "allow"},
		{"set limits of another process", unix.SYS_PRLIMIT64, []uint64{77, unix.RLIMIT_FSIZE, 0x7fff0000}, "EPERM"},
		{"set limits of another process, high address", unix.SYS_PRLIMIT64, []uint64{77, unix.RLIMIT_FSIZE, 0x7fff00000000}, "EPERM"},
		{"read the personality", unix.SYS_PERSONALITY, []uint64{0xffffffff}, "allow"},
		{"personality 0", unix.SYS_PERSONALITY, []uint64{0}, "allow"},
		{"personality without random addresses", unix.SYS_PERSONALITY, []uint64{high | 0x0040000}, "allow"},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x0400000}, "EPERM"},

		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, "ENOSYS"},
		{"mount", unix.SYS_MOUNT, nil, "EPERM"},
		{"fsopen", unix.SYS_FSOPEN, nil, "EPERM"},
		{"open_tree", unix.SYS_OPEN_TREE, nil, "EPERM"},
		{"move_mount", unix.SYS_MOVE_MOUNT, nil, "EPERM"},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, nil, "EPERM"},
		{"pivot_root", unix.SYS_PIVOT_ROOT, nil, "EPERM"},
		{"keyctl", unix.SYS_KEYCTL, nil, "EPERM"},
		{"ptrace", unix.SYS_PTRACE, nil, "EPERM"},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, nil, "EPERM"},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, nil, "EPERM"},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, nil, "EPERM"},
		{"bpf", unix.SYS_BPF, nil, "EPERM"},
		{"syslog", unix.SYS_SYSLOG, nil, "EPERM"},
	} {
		if got := machine(t, Wants{})(filterArch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// With Trace, the tracing calls that debuggers and sanitizers need are permitted. Other calls on
// processes stay refused.
func TestFilterTrace(t *testing.T) {
	for _, nr := range tracing {
		if got := machine(t, Wants{Trace: true})(filterArch, nr); got != "allow" {
			t.Errorf("call %d: %s, want allow", nr, got)
		}
	}
	for _, nr := range []uint32{unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE} {
		if got := machine(t, Wants{Trace: true})(filterArch, nr); got != "EPERM" {
			t.Errorf("call %d: %s, want EPERM", nr, got)
		}
	}
}

// Every call in refused and refusedHere gets its error. A call of another architecture kills the
// process.
func TestFilterLists(t *testing.T) {
	run := machine(t, Wants{})
	for _, list := range []map[uint32]unix.Errno{refused, refusedHere} {
		for nr, errno := range list {
			if got := run(filterArch, nr); got != unix.ErrnoName(errno) {
				t.Errorf("call %d: %s, want %v", nr, got, errno)
			}
		}
	}
	for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_ARM, 0} {
		if arch == filterArch {
			continue
		}
		for nr := range uint32(lastCall) {
			if got := run(arch, nr); got != "kill" {
				t.Fatalf("call %d of architecture %#x: %s, want kill", nr, arch, got)
			}
		}
	}
}

// Without a network there is no socket of any family, and pairs still work.
func TestFilterNoSockets(t *testing.T) {
	run := machine(t, Wants{NoSockets: true})
	for family := range uint64(unix.AF_MAX) {
		for kind := range uint64(typeMask) {
			if got := run(filterArch, unix.SYS_SOCKET, family, kind, 0); got != "EAFNOSUPPORT" {
				t.Errorf("family %d, type %d: %s", family, kind, got)
			}
		}
	}
	if got := run(filterArch, unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0); got != "allow" {
		t.Errorf("a pair: %s", got)
	}
}

// With Unix, sockets of the unix family are permitted besides IPv4 and IPv6, and sockets of no other
// family.
func TestFilterUnix(t *testing.T) {
	run := machine(t, Wants{Unix: true})
	for family := range uint64(unix.AF_MAX) {
		for kind := range uint64(typeMask) {
			stream := kind == unix.SOCK_STREAM || kind == unix.SOCK_DGRAM
			want := family == unix.AF_UNIX && (stream || kind == unix.SOCK_SEQPACKET)
			if got := run(filterArch, unix.SYS_SOCKETPAIR, family, kind, 0) == "allow"; got != want {
				t.Errorf("a pair of family %d, type %d: allowed %v", family, kind, got)
			}
			want = want || stream && (family == unix.AF_INET || family == unix.AF_INET6)
			if got := run(filterArch, unix.SYS_SOCKET, family, kind, 0) == "allow"; got != want {
				t.Errorf("family %d, type %d: allowed %v", family, kind, got)
			}
		}
	}
}

// A command with its own network can list the interfaces, with or without sockets of the unix
// family. It cannot open another protocol of netlink.
func TestFilterInterfaces(t *testing.T) {
	for _, w := range []Wants{{Interfaces: true}, {Interfaces: true, Unix: true}} {
		run := machine(t, w)
		for kind := range uint64(typeMask) {
			for protocol := range uint64(unix.NETLINK_SMC + 8) {
				want := protocol == unix.NETLINK_ROUTE && (kind == unix.SOCK_RAW || kind == unix.SOCK_DGRAM)
				for _, bits := range []uint64{0, high} {
					if got := run(filterArch, unix.SYS_SOCKET, unix.AF_NETLINK|bits, kind|unix.SOCK_CLOEXEC|bits, protocol|bits) == "allow"; got != want {
						t.Errorf("%+v: type %d, protocol %d: allowed %v", w, kind, protocol, got)
					}
				}
			}
		}
		if got := run(filterArch, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0); got != "allow" {
			t.Errorf("%+v: TCP: %s", w, got)
		}
		if got := run(filterArch, unix.SYS_SOCKETPAIR, unix.AF_NETLINK, unix.SOCK_RAW, 0); got != "EAFNOSUPPORT" {
			t.Errorf("%+v: a pair: %s", w, got)
		}
	}
	if got := machine(t, Wants{Interfaces: true, NoSockets: true})(filterArch, unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0); got != "EAFNOSUPPORT" {
		t.Errorf("without sockets: %s", got)
	}
}

// With NoBind the filter refuses bind and listen. Without NoBind and Binder it permits them.
func TestFilterBind(t *testing.T) {
	refused := machine(t, Wants{NoBind: true})
	for _, nr := range []uint32{unix.SYS_BIND, unix.SYS_LISTEN} {
		if got := refused(filterArch, nr); got != "EACCES" {
			t.Errorf("call %d: %s, want EACCES", nr, got)
		}
		if got := machine(t, Wants{})(filterArch, nr); got != "allow" {
			t.Errorf("call %d: %s, want allow", nr, got)
		}
	}
}

// With NoIPC, the calls in sharedIPC are refused: all processes of a uid share their objects.
func TestFilterNoIPC(t *testing.T) {
	with, without := machine(t, Wants{NoIPC: true}), machine(t, Wants{})
	for _, nr := range sharedIPC {
		if got := with(filterArch, nr); got != "ENOSYS" {
			t.Errorf("call %d: %s, want ENOSYS", nr, got)
		}
		if got := without(filterArch, nr); got != "allow" {
			t.Errorf("call %d without NoIPC: %s, want allow", nr, got)
		}
	}
}

// With Wants.Init, none of these calls can send the init a signal, by its pid or by its process
// group. Calls that name another process by its pid are permitted.
func TestFilterSignals(t *testing.T) {
	const pid, other = 4711, 4712
	run, open := machine(t, Wants{Init: pid}), machine(t, Wants{})
	minus := func(n int32) uint64 { return uint64(uint32(-n)) }
	for _, c := range []struct {
		name string
		nr   uint32
		args []uint64
		want string
	}{
		{"kill", unix.SYS_KILL, []uint64{pid}, "EPERM"},
		{"kill, high bit", unix.SYS_KILL, []uint64{high | pid}, "EPERM"},
		{"kill the init's group", unix.SYS_KILL, []uint64{minus(pid)}, "EPERM"},
		{"kill the init's group, in 64 bits", unix.SYS_KILL, []uint64{^uint64(pid) + 1}, "EPERM"},
		{"kill everybody", unix.SYS_KILL, []uint64{minus(1)}, "EPERM"},
		{"kill another", unix.SYS_KILL, []uint64{other}, "allow"},
		{"kill another group", unix.SYS_KILL, []uint64{minus(other)}, "allow"},
		{"kill its own group", unix.SYS_KILL, []uint64{0}, "allow"},
		{"join the init's group", unix.SYS_SETPGID, []uint64{0, high | pid}, "EPERM"},
		{"join another group", unix.SYS_SETPGID, []uint64{pid, other}, "allow"},
		{"lead a new group", unix.SYS_SETPGID, []uint64{0, 0}, "allow"},
		{"tkill", unix.SYS_TKILL, []uint64{pid}, "EPERM"},
		{"tkill another", unix.SYS_TKILL, []uint64{other}, "allow"},
		{"tgkill", unix.SYS_TGKILL, []uint64{pid, pid}, "EPERM"},
		{"tgkill another", unix.SYS_TGKILL, []uint64{other, other}, "allow"},
		{"sigqueue", unix.SYS_RT_SIGQUEUEINFO, []uint64{pid}, "EPERM"},
		{"sigqueue another", unix.SYS_RT_SIGQUEUEINFO, []uint64{other}, "allow"},
		{"sigqueue a thread", unix.SYS_RT_TGSIGQUEUEINFO, []uint64{pid, pid}, "EPERM"},
		{"sigqueue another thread", unix.SYS_RT_TGSIGQUEUEINFO, []uint64{other, other}, "allow"},
		{"pidfd_send_signal", unix.SYS_PIDFD_SEND_SIGNAL, []uint64{5}, "ENOSYS"},
		{"by a file's owner", unix.SYS_FCNTL, []uint64{5, unix.F_SETOWN, pid}, "EPERM"},
		{"by a file's owning group", unix.SYS_FCNTL, []uint64{5, unix.F_SETOWN, minus(pid)}, "EPERM"},
		{"by a file's owner, high bits", unix.SYS_FCNTL, []uint64{5, high | unix.F_SETOWN, high | pid}, "EPERM"},
		{"by a file's owner in memory", unix.SYS_FCNTL, []uint64{5, unix.F_SETOWN_EX, 0x7fff0000}, "EPERM"},
		{"another owner", unix.SYS_FCNTL, []uint64{5, unix.F_SETOWN, other}, "allow"},
		{"another fcntl", unix.SYS_FCNTL, []uint64{5, unix.F_DUPFD, pid}, "allow"},
		{"by a socket's owner", unix.SYS_IOCTL, []uint64{5, fiosetown, 0x7fff0000}, "EPERM"},
		{"by a socket's owner, with SIOCSPGRP", unix.SYS_IOCTL, []uint64{5, unix.SIOCSPGRP, 0x7fff0000}, "EPERM"},
		{"another ioctl", unix.SYS_IOCTL, []uint64{5, unix.TCGETS, pid}, "allow"},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{5, unix.TIOCSTI}, "EPERM"},
	} {
		if got := run(filterArch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := open(filterArch, c.nr, c.args...); got != "allow" && c.name != "TIOCSTI" {
			t.Errorf("%s, without Wants.Init: %s, want allow", c.name, got)
		}
	}
}

// modeCall is a call that gives a file a mode, its last argument.
type modeCall struct {
	name string
	nr   uint32
	args []uint64
	make uint64 // flags that make a file, in the argument before the mode; 0: the call has no flags
}

// With NoSetID, none of these calls can give a file set-id bits. Other modes are permitted, and so
// are arbitrary values in the place of a mode.
func TestFilterNoSetID(t *testing.T) {
	run, open := machine(t, Wants{NoSetID: true}), machine(t, Wants{})
	calls := []modeCall{
		{"fchmod", unix.SYS_FCHMOD, []uint64{3, 0}, 0},
		{"fchmodat", unix.SYS_FCHMODAT, []uint64{3, 1, 0}, 0},
		{"fchmodat2", unix.SYS_FCHMODAT2, []uint64{3, 1, 0}, 0},
		{"mknodat", unix.SYS_MKNODAT, []uint64{3, 1, 0}, 0},
		{"openat", unix.SYS_OPENAT, []uint64{3, 1, 0, 0}, unix.O_CREAT},
		{"openat of a file without a name", unix.SYS_OPENAT, []uint64{3, 1, 0, 0}, unix.O_TMPFILE},
	}
	calls = append(calls, modeCallsHere...)
	for _, c := range calls {
		last := len(c.args) - 1
		if c.make != 0 {
			c.args[last-1] = c.make | unix.O_WRONLY
		}
		for mode, want := range map[uint64]string{
			0o755: "allow", 0o1777: "allow", 0o4755: "EPERM", 0o2755: "EPERM", 0o6000: "EPERM", high | 0o4000: "EPERM", 0o100000 | 0o4755: "EPERM", high | 0o644: "allow",
		} {
			c.args[last] = mode
			if got := run(filterArch, c.nr, c.args...); got != want {
				t.Errorf("%s of mode %#o: %s, want %s", c.name, mode, got, want)
			}
			if got := open(filterArch, c.nr, c.args...); got != "allow" {
				t.Errorf("%s of mode %#o, without NoSetID: %s", c.name, mode, got)
			}
		}
		if c.make != 0 {
			c.args[last-1], c.args[last] = unix.O_RDONLY|unix.O_DIRECTORY, 0o6755 // not a mode: no file is made
			if got := run(filterArch, c.nr, c.args...); got != "allow" {
				t.Errorf("%s that makes nothing: %s", c.name, got)
			}
		}
	}
	if got := run(filterArch, unix.SYS_OPENAT2); got != "ENOSYS" {
		t.Errorf("openat2: %s, want ENOSYS: its mode cannot be seen", got)
	}
}
