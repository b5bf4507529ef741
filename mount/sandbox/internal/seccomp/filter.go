//go:build amd64 || arm64

package seccomp

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The system call filter is a BPF program in the kernel's classic form. It is
// assembled with golang.org/x/net/bpf, because that package also has a virtual
// machine: the tests run the very program that the kernel gets. (go-seccomp-bpf
// has tables of names instead, and no way to say that one half of an argument
// is to be ignored.)
//
// The filter permits every call that is not listed here, with one exception: a system call that is
// newer than this program gets ENOSYS, as if it did not exist.

// Offsets in struct seccomp_data (linux/seccomp.h): nr, arch, then, after the
// instruction pointer, six arguments of 64 bits. Both architectures here are
// little-endian, so an argument's low half comes first.
const (
	dataNr   = 0
	dataArch = 4
)

func argLow(n uint32) uint32 { return 16 + 8*n }

// The verdicts.
const (
	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
)

func refuse(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// nsFlags are the flags of clone and unshare that make namespaces. CLONE_NEWTIME
// is not among clone's: that bit is part of the exit signal there.
const nsFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// typeMask cuts SOCK_NONBLOCK and SOCK_CLOEXEC off a socket's type, as the
// kernel does (SOCK_TYPE_MASK in linux/net.h).
const typeMask = 0xf

// lastCall is the newest system call that was known when this was written.
const lastCall = unix.SYS_RSEQ_SLICE_YIELD

// refused are the calls that no command needs and that reach out of a sandbox,
// or into parts of the kernel that were not made for strangers.
var refused = map[uint32]unix.Errno{
	// Mounts and roots.
	unix.SYS_MOUNT: unix.EPERM, unix.SYS_UMOUNT2: unix.EPERM, unix.SYS_PIVOT_ROOT: unix.EPERM, unix.SYS_CHROOT: unix.EPERM,
	unix.SYS_OPEN_TREE: unix.EPERM, unix.SYS_OPEN_TREE_ATTR: unix.EPERM, unix.SYS_MOVE_MOUNT: unix.EPERM, unix.SYS_MOUNT_SETATTR: unix.EPERM,
	unix.SYS_FSOPEN: unix.EPERM, unix.SYS_FSCONFIG: unix.EPERM, unix.SYS_FSMOUNT: unix.EPERM, unix.SYS_FSPICK: unix.EPERM,
	// Namespaces of others.
	unix.SYS_SETNS: unix.EPERM, unix.SYS_LISTNS: unix.EPERM,
	// Files by handle: a handle also opens files that lie in no directory of the command.
	unix.SYS_OPEN_BY_HANDLE_AT: unix.EPERM, unix.SYS_NAME_TO_HANDLE_AT: unix.EOPNOTSUPP,
	// Other processes' memory and descriptors; see Wants.Trace.
	unix.SYS_PROCESS_MADVISE: unix.EPERM, unix.SYS_PIDFD_GETFD: unix.EPERM, unix.SYS_KCMP: unix.EPERM,
	// Keyrings are per uid, not per namespace.
	unix.SYS_ADD_KEY: unix.EPERM, unix.SYS_REQUEST_KEY: unix.EPERM, unix.SYS_KEYCTL: unix.EPERM,
	// Ways around this filter: an io_uring makes system calls that the filter never sees.
	unix.SYS_IO_URING_SETUP: unix.ENOSYS, unix.SYS_IO_URING_ENTER: unix.ENOSYS, unix.SYS_IO_URING_REGISTER: unix.ENOSYS,
	// The flags of clone3 lie in memory, where no filter sees them; libraries fall back
	// to clone.
	unix.SYS_CLONE3: unix.ENOSYS,
	// Calls that run much code of the kernel, most of it for tracing and emulation.
	unix.SYS_BPF: unix.EPERM, unix.SYS_PERF_EVENT_OPEN: unix.EPERM, unix.SYS_USERFAULTFD: unix.EPERM, unix.SYS_LOOKUP_DCOOKIE: unix.EPERM,
	unix.SYS_FANOTIFY_INIT: unix.EPERM, unix.SYS_VHANGUP: unix.EPERM,
	// Calls that change the whole machine.
	unix.SYS_KEXEC_LOAD: unix.EPERM, unix.SYS_KEXEC_FILE_LOAD: unix.EPERM, unix.SYS_INIT_MODULE: unix.EPERM, unix.SYS_FINIT_MODULE: unix.EPERM,
	unix.SYS_DELETE_MODULE: unix.EPERM, unix.SYS_REBOOT: unix.EPERM, unix.SYS_SWAPON: unix.EPERM, unix.SYS_SWAPOFF: unix.EPERM,
	unix.SYS_QUOTACTL: unix.EPERM, unix.SYS_QUOTACTL_FD: unix.EPERM, unix.SYS_ACCT: unix.EPERM, unix.SYS_NFSSERVCTL: unix.EPERM,
	unix.SYS_SETTIMEOFDAY: unix.EPERM, unix.SYS_CLOCK_SETTIME: unix.EPERM, unix.SYS_ADJTIMEX: unix.EPERM, unix.SYS_CLOCK_ADJTIME: unix.EPERM,
	unix.SYS_SETHOSTNAME: unix.EPERM, unix.SYS_SETDOMAINNAME: unix.EPERM,
	// The kernel's log tells addresses and the host's hardware.
	unix.SYS_SYSLOG: unix.EPERM,
}

// sharedIPC has the calls that are refused without an ipc namespace: all processes of a uid
// share System V's segments, semaphores and queues, and POSIX's queues.
var sharedIPC = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// tracing has the calls by which a process controls others, and reads and writes their memory.
// The kernel (4.8 and newer) applies the filter to a call of a traced process after the tracer has
// changed the call.
var tracing = []uint32{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV}

const addrNoRandomize = 0x0040000 // ADDR_NO_RANDOMIZE of linux/personality.h

// program builds the filter.
func program(w Wants) ([]bpf.RawInstruction, error) {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: filterArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill}, // on another architecture the numbers below mean other calls
		bpf.LoadAbsolute{Off: dataNr, Size: 4},
		// The numbers of x32 have bit 30 set, so they are greater, too.
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastCall, SkipFalse: 1},
		bpf.RetConstant{Val: refuse(unix.ENOSYS)},
	}
	calls := filteredCalls(w)
	// Sorted, for the same program every time.
	for _, nr := range slices.Sorted(maps.Keys(calls)) {
		// Every body ends with a return, so no body runs on into the next one.
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(calls[nr]))})
		p = append(p, calls[nr]...)
	}
	p = append(p, bpf.RetConstant{Val: allow})
	return bpf.Assemble(p)
}

// always returns the body of a call that has one verdict, whatever its arguments are.
func always(verdict uint32) []bpf.Instruction {
	return []bpf.Instruction{bpf.RetConstant{Val: verdict}}
}

// filteredCalls returns the bodies of the calls that are not simply allowed, by their numbers. The
// body of a call has the instructions that decide about the call.
func filteredCalls(w Wants) map[uint32][]bpf.Instruction {
	ioctls := []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS}
	if w.Init != 0 {
		ioctls = append(ioctls, ownerIoctls...)
	}
	calls := map[uint32][]bpf.Instruction{
		unix.SYS_CLONE:      refuseBits(0, nsFlags),
		unix.SYS_UNSHARE:    refuseBits(0, nsFlags|unix.CLONE_NEWTIME),
		unix.SYS_SOCKET:     socket(w),
		unix.SYS_SOCKETPAIR: socketpair(w),
		unix.SYS_SETSOCKOPT: portRange(),
		unix.SYS_IOCTL:      among(1, allow, refuse(unix.EPERM), ioctls...),
		unix.SYS_PRLIMIT64:  ownLimits(),
		// Debuggers and sanitizers start programs without random addresses.
		unix.SYS_PERSONALITY: among(0, refuse(unix.EPERM), allow, 0, addrNoRandomize, 0xffffffff),
	}
	for _, list := range []map[uint32]unix.Errno{refused, refusedHere} {
		for nr, errno := range list {
			calls[nr] = always(refuse(errno))
		}
	}
	if !w.Trace {
		for _, nr := range tracing {
			calls[nr] = always(refuse(unix.EPERM))
		}
	}
	if w.NoIPC {
		for _, nr := range sharedIPC {
			calls[nr] = always(refuse(unix.ENOSYS))
		}
	}
	if w.NoSetID {
		maps.Copy(calls, setIDCalls())
		maps.Copy(calls, setIDCallsHere())
	}
	for _, nr := range []uint32{unix.SYS_BIND, unix.SYS_LISTEN} {
		if w.Binder {
			calls[nr] = always(unix.SECCOMP_RET_USER_NOTIF)
		} else if w.NoBind {
			calls[nr] = always(refuse(unix.EACCES))
		}
	}
	if w.Init != 0 {
		maps.Copy(calls, signals(w.Init))
	}
	return calls
}

// refuseBits refuses a call if an argument has one of the bits. It looks only at the low half of
// the argument: the kernel ignores (clone, modes) or refuses (unshare) bits in the high half.
func refuseBits(arg, bits uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(arg), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
		bpf.RetConstant{Val: refuse(unix.EPERM)},
		bpf.RetConstant{Val: allow},
	}
}

// setID are the bits of a mode that give a program the rights of its file's owner or
// group.
const setID = unix.S_ISUID | unix.S_ISGID

// setIDCalls maps the calls that give a file its mode to the filter of their arguments.
// setIDCallsHere has the calls that only this architecture has.
func setIDCalls() map[uint32][]bpf.Instruction {
	return map[uint32][]bpf.Instruction{
		unix.SYS_FCHMOD: modeIn(1), unix.SYS_FCHMODAT: modeIn(2), unix.SYS_FCHMODAT2: modeIn(2), unix.SYS_MKNODAT: modeIn(2), unix.SYS_OPENAT: createIn(2),
		// The mode of openat2 lies in memory, where no filter sees it; programs fall back to
		// openat, as on older kernels.
		unix.SYS_OPENAT2: always(refuse(unix.ENOSYS)),
	}
}

// modeIn refuses a mode with set-id bits in an argument.
func modeIn(arg uint32) []bpf.Instruction { return refuseBits(arg, setID) }

// createIn refuses a call that makes a file with set-id bits. flags is the number of the argument
// with the flags, which say whether the call makes a file. The next argument is the mode; in a call
// that makes no file its value is arbitrary.
func createIn(flags uint32) []bpf.Instruction {
	const tmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(flags), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT | tmpfile, SkipTrue: 1},
		bpf.RetConstant{Val: allow},
	}, modeIn(flags+1)...)
}

// ownLimits permits prlimit to read limits, and to set the limits of the calling process. With a
// pid, prlimit could set the limits of any process of the uid. Without namespaces, rootsfs and the
// user's other programs are such processes: with low limits they could not write files any more, or
// the kernel would kill them for their CPU time.
func ownLimits() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 5},
		bpf.LoadAbsolute{Off: argLow(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
		bpf.LoadAbsolute{Off: argLow(2) + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EPERM)},
		bpf.RetConstant{Val: allow},
	}
}

// require compares the bits of mask in an argument with the values. If they equal none of the
// values, the filter returns the verdict other. If they equal one, the following instructions
// decide. Only the low half of the argument is compared, because the kernel uses only that half of
// such an argument: a filter that compared the high half, too, would permit TIOCSTI + 1<<32.
func require(arg, mask, other uint32, values ...uint32) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(arg), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
	}
	for i, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(p, bpf.RetConstant{Val: other})
}

// allBits is the mask of an argument whose low half counts completely.
const allBits = 0xffffffff

// among returns a body that gives verdict if an argument is one of the values, and other if it is
// not.
func among(arg, other, verdict uint32, values ...uint32) []bpf.Instruction {
	return append(require(arg, allBits, other, values...), always(verdict)...)
}

// socket permits TCP, UDP and ping (ICMP). With w.Interfaces it permits netlink, to list network
// interfaces. With w.Unix it permits unix sockets; otherwise it refuses them, because they could
// reach servers in any directory or by an abstract name (D-Bus, Docker, rootsfs' control socket).
// With w.NoSockets it refuses all sockets. MPTCP and other protocols bypass Landlock's rules for
// TCP, and vsock bypasses network namespaces.
func socket(w Wants) []bpf.Instruction {
	if w.NoSockets {
		return always(refuse(unix.EAFNOSUPPORT))
	}
	inet := slices.Concat(
		require(0, allBits, refuse(unix.EAFNOSUPPORT), unix.AF_INET, unix.AF_INET6),
		require(1, typeMask, refuse(unix.EPERM), unix.SOCK_STREAM, unix.SOCK_DGRAM),
		require(2, allBits, refuse(unix.EPROTONOSUPPORT), 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6),
		always(allow))
	if w.Interfaces {
		inet = append(ofFamily(unix.AF_NETLINK, interfaceSocket()), inet...)
	}
	if w.Unix {
		inet = append(unixSocket(), inet...)
	}
	return inet
}

// ofFamily lets body decide about sockets of one family, and leaves the others to the
// following instructions.
func ofFamily(family uint32, body []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: family, SkipFalse: uint8(len(body))},
	}, body...)
}

// interfaceSocket permits the protocol of netlink by which programs list the interfaces,
// addresses and routes of their network namespace (rtnetlink(7)). Changing them takes
// CAP_NET_ADMIN over the namespace, which no command has.
func interfaceSocket() []bpf.Instruction {
	return slices.Concat(
		require(1, typeMask, refuse(unix.EPERM), unix.SOCK_RAW, unix.SOCK_DGRAM),
		require(2, allBits, refuse(unix.EPROTONOSUPPORT), unix.NETLINK_ROUTE),
		always(allow))
}

// ipLocalPortRange is IP_LOCAL_PORT_RANGE of linux/in.h (Linux 6.3).
const ipLocalPortRange = 51

// portRange refuses the option by which a program limits the ports from which the kernel
// chooses. With it the program could listen on a port of its choice. The error is that of a
// kernel without the option.
func portRange() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ipLocalPortRange, SkipFalse: 3},
		bpf.LoadAbsolute{Off: argLow(1), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_IP, SkipFalse: 1},
		bpf.RetConstant{Val: refuse(unix.ENOPROTOOPT)},
		bpf.RetConstant{Val: allow},
	}
}

// unixSocket permits sockets of the unix family, and leaves the others to the following
// instructions. It refuses type SOCK_RAW, which the kernel treats as SOCK_DGRAM and
// no program needs.
func unixSocket() []bpf.Instruction {
	return ofFamily(unix.AF_UNIX, append(require(1, typeMask, refuse(unix.EPERM), unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET), always(allow)...))
}

// socketpair permits connected pairs of unix sockets: Node talks to its children over them. Without
// w.Unix it refuses pairs of datagram sockets (and of raw sockets, which are the same in this
// family), because each end can send to any unix socket with sendto.
func socketpair(w Wants) []bpf.Instruction {
	if w.Unix {
		return append(unixSocket(), always(refuse(unix.EAFNOSUPPORT))...)
	}
	return slices.Concat(
		require(0, allBits, refuse(unix.EAFNOSUPPORT), unix.AF_UNIX),
		require(1, typeMask, refuse(unix.EPERM), unix.SOCK_STREAM, unix.SOCK_SEQPACKET),
		always(allow))
}

// Install puts the filter on the calling thread. no_new_privs must be set. With w.Binder, fd is the
// descriptor that Serve needs.
func Install(w Wants) (fd int, err error) {
	raw, err := program(w)
	if err != nil {
		return -1, err
	}
	var flags uintptr
	if w.Binder {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	got, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("install the system call filter: %w", errno)
	}
	return int(got), nil
}
