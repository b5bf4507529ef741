//go:build amd64 || arm64

package seccomp

import (
	"cmp"
	"fmt"
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
// What is not refused is permitted, with one exception: system calls that are
// newer than this program do not exist.

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

// lastCall is the newest system call that was looked at when this was written.
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
	// Files by handle: they lie in no directory.
	unix.SYS_OPEN_BY_HANDLE_AT: unix.EPERM, unix.SYS_NAME_TO_HANDLE_AT: unix.EOPNOTSUPP,
	// Other processes' memory and descriptors.
	unix.SYS_PTRACE: unix.EPERM, unix.SYS_PROCESS_VM_READV: unix.EPERM, unix.SYS_PROCESS_VM_WRITEV: unix.EPERM,
	unix.SYS_PROCESS_MADVISE: unix.EPERM, unix.SYS_PIDFD_GETFD: unix.EPERM, unix.SYS_KCMP: unix.EPERM,
	// Keyrings are per uid, not per namespace.
	unix.SYS_ADD_KEY: unix.EPERM, unix.SYS_REQUEST_KEY: unix.EPERM, unix.SYS_KEYCTL: unix.EPERM,
	// Ways around this filter: a ring makes system calls that it never sees.
	unix.SYS_IO_URING_SETUP: unix.ENOSYS, unix.SYS_IO_URING_ENTER: unix.ENOSYS, unix.SYS_IO_URING_REGISTER: unix.ENOSYS,
	// Its flags lie in memory, where no filter sees them; libraries fall back
	// to clone.
	unix.SYS_CLONE3: unix.ENOSYS,
	// Much code of the kernel, for tracing and emulation.
	unix.SYS_BPF: unix.EPERM, unix.SYS_PERF_EVENT_OPEN: unix.EPERM, unix.SYS_USERFAULTFD: unix.EPERM, unix.SYS_LOOKUP_DCOOKIE: unix.EPERM,
	unix.SYS_FANOTIFY_INIT: unix.EPERM, unix.SYS_VHANGUP: unix.EPERM,
	// The machine's.
	unix.SYS_KEXEC_LOAD: unix.EPERM, unix.SYS_KEXEC_FILE_LOAD: unix.EPERM, unix.SYS_INIT_MODULE: unix.EPERM, unix.SYS_FINIT_MODULE: unix.EPERM,
	unix.SYS_DELETE_MODULE: unix.EPERM, unix.SYS_REBOOT: unix.EPERM, unix.SYS_SWAPON: unix.EPERM, unix.SYS_SWAPOFF: unix.EPERM,
	unix.SYS_QUOTACTL: unix.EPERM, unix.SYS_QUOTACTL_FD: unix.EPERM, unix.SYS_ACCT: unix.EPERM, unix.SYS_NFSSERVCTL: unix.EPERM,
	unix.SYS_SETTIMEOFDAY: unix.EPERM, unix.SYS_CLOCK_SETTIME: unix.EPERM, unix.SYS_ADJTIMEX: unix.EPERM, unix.SYS_CLOCK_ADJTIME: unix.EPERM,
	unix.SYS_SETHOSTNAME: unix.EPERM, unix.SYS_SETDOMAINNAME: unix.EPERM,
	// The kernel's log tells addresses and the host's hardware.
	unix.SYS_SYSLOG: unix.EPERM,
}

// sharedIPC are refused where there is no ipc namespace: System V's segments,
// semaphores and queues, and POSIX's queues, belong to all of a uid.
var sharedIPC = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// program builds the filter.
func program(w Wants) ([]bpf.RawInstruction, error) {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: filterArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill}, // the numbers below mean other calls there
		bpf.LoadAbsolute{Off: dataNr, Size: 4},
		// x32's numbers, with their bit 30, are beyond it too.
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastCall, SkipFalse: 1},
		bpf.RetConstant{Val: refuse(unix.ENOSYS)},
	}
	calls := judged(w)
	// The same program every time: it is compared in tests and in memory.
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.nr, b.nr) })
	for _, c := range calls {
		// A body returns, so nothing runs on into the next one.
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.nr, SkipTrue: uint8(len(c.body))})
		p = append(p, c.body...)
	}
	p = append(p, bpf.RetConstant{Val: allow})
	return bpf.Assemble(p)
}

// call is what becomes of one system call: a body that always returns.
type call struct {
	nr   uint32
	body []bpf.Instruction
}

// judged are the calls that are not simply allowed, in no order.
func judged(w Wants) []call {
	var calls []call
	for nr, errno := range refused {
		calls = append(calls, call{nr, []bpf.Instruction{bpf.RetConstant{Val: refuse(errno)}}})
	}
	if w.NoIPC {
		for _, nr := range sharedIPC {
			calls = append(calls, call{nr, []bpf.Instruction{bpf.RetConstant{Val: refuse(unix.ENOSYS)}}})
		}
	}
	if w.NoSetID {
		// Its mode lies in memory, where no filter sees it; programs fall back to
		// openat, as on older kernels.
		calls = append(calls, call{unix.SYS_OPENAT2, []bpf.Instruction{bpf.RetConstant{Val: refuse(unix.ENOSYS)}}})
		for nr, body := range modesOf {
			calls = append(calls, call{nr, body()})
		}
		for nr, body := range modesHere {
			calls = append(calls, call{nr, body()})
		}
	}
	for nr, errno := range refusedHere {
		calls = append(calls, call{nr, []bpf.Instruction{bpf.RetConstant{Val: refuse(errno)}}})
	}
	for _, nr := range []uint32{unix.SYS_BIND, unix.SYS_LISTEN} {
		if w.Binder {
			calls = append(calls, call{nr, []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}}})
		} else if w.NoBind {
			calls = append(calls, call{nr, []bpf.Instruction{bpf.RetConstant{Val: refuse(unix.EACCES)}}})
		}
	}
	ioctls := []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS}
	if w.Init != 0 {
		ioctls = append(ioctls, ownerIoctls...)
		for nr, body := range signals(w.Init) {
			calls = append(calls, call{nr, body})
		}
	}
	for nr, body := range map[uint32][]bpf.Instruction{
		unix.SYS_CLONE:       flagged(nsFlags, unix.EPERM),
		unix.SYS_UNSHARE:     flagged(nsFlags|unix.CLONE_NEWTIME, unix.EPERM),
		unix.SYS_SOCKET:      socket(w),
		unix.SYS_SOCKETPAIR:  socketpair(w),
		unix.SYS_SETSOCKOPT:  portRange(),
		unix.SYS_IOCTL:       among(1, allow, refuse(unix.EPERM), ioctls...),
		unix.SYS_PRLIMIT64:   ownLimits(),
		unix.SYS_PERSONALITY: among(0, refuse(unix.EPERM), allow, 0, 0xffffffff),
	} {
		calls = append(calls, call{nr, body})
	}
	return calls
}

// flagged refuses a call whose first argument has one of the bits. All of these
// are flags in the low half; the kernel ignores (clone) or refuses (unshare)
// any in the high one.
func flagged(bits uint32, errno unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1},
		bpf.RetConstant{Val: refuse(errno)},
		bpf.RetConstant{Val: allow},
	}
}

// setID are the bits of a mode that give a program another's rights.
const setID = unix.S_ISUID | unix.S_ISGID

// modesOf are the calls that give a file its mode, with what is refused of them;
// modesHere are those that only this architecture has.
var modesOf = map[uint32]func() []bpf.Instruction{
	unix.SYS_FCHMOD: modeIn(1), unix.SYS_FCHMODAT: modeIn(2), unix.SYS_FCHMODAT2: modeIn(2), unix.SYS_MKNODAT: modeIn(2), unix.SYS_OPENAT: createIn(2),
}

// modeIn refuses a mode with set-id bits in an argument.
func modeIn(arg uint32) func() []bpf.Instruction {
	return func() []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: argLow(arg), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: setID, SkipFalse: 1},
			bpf.RetConstant{Val: refuse(unix.EPERM)},
			bpf.RetConstant{Val: allow},
		}
	}
}

// createIn refuses it in the argument behind flags that make a file; without them
// that argument is whatever was there before.
func createIn(flags uint32) func() []bpf.Instruction {
	const tmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY
	return func() []bpf.Instruction {
		return append([]bpf.Instruction{
			bpf.LoadAbsolute{Off: argLow(flags), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT | tmpfile, SkipTrue: 1},
			bpf.RetConstant{Val: allow},
		}, modeIn(flags+1)()...)
	}
}

// ownLimits permits prlimit to read limits, and to set the caller's own: with a
// pid it sets those of any process of the uid, which without namespaces are the
// user's and our own (no files any more, killed for their CPU time).
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

// among answers one way if the low half of an argument is one of the values,
// another way if not. The arguments in question are ints to the kernel, which
// ignores the upper half: looking at it would let TIOCSTI + 1<<32 through.
func among(arg, other, verdict uint32, values ...uint32) []bpf.Instruction {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: argLow(arg), Size: 4}}
	for i, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(p, bpf.RetConstant{Val: other}, bpf.RetConstant{Val: verdict})
}

// socket permits TCP and UDP at most, and sockets of the unix family where they reach
// nobody else's. Elsewhere they reach whatever listens in a directory or by an abstract
// name (D-Bus, Docker, our own control socket). MPTCP and the rest go past Landlock's rules for TCP, and vsock past
// network namespaces.
func socket(w Wants) []bpf.Instruction {
	if w.NoSockets {
		return []bpf.Instruction{bpf.RetConstant{Val: refuse(unix.EAFNOSUPPORT)}}
	}
	var local []bpf.Instruction
	if w.Unix {
		local = unixSocket()
	}
	return append(local,
		bpf.LoadAbsolute{Off: argLow(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EAFNOSUPPORT)},
		bpf.LoadAbsolute{Off: argLow(1), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_DGRAM, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EPERM)},
		bpf.LoadAbsolute{Off: argLow(2), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMP, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EPROTONOSUPPORT)},
		bpf.RetConstant{Val: allow},
	)
}

// ipLocalPortRange is IP_LOCAL_PORT_RANGE of linux/in.h (Linux 6.3).
const ipLocalPortRange = 51

// portRange refuses the option by which a program chooses the port that the kernel gives it
// when it asks for any, and so receives on a port of its choice. It is as on a kernel that
// does not know it.
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

// unixSocket permits sockets of the unix family, and leaves the others to what follows.
// Those of type SOCK_RAW, which are datagram sockets to the kernel, nobody needs.
func unixSocket() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 7},
		bpf.LoadAbsolute{Off: argLow(1), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_DGRAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EPERM)},
		bpf.RetConstant{Val: allow},
	}
}

// socketpair permits connected pairs: Node talks to its children over them. A
// pair of datagram sockets (and of raw ones, which are the same for this
// family) is no pair: each end can be sent elsewhere with sendto. They are permitted
// where sockets of that family are.
func socketpair(w Wants) []bpf.Instruction {
	if w.Unix {
		return append(unixSocket(), bpf.RetConstant{Val: refuse(unix.EAFNOSUPPORT)})
	}
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(0), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EAFNOSUPPORT)},
		bpf.LoadAbsolute{Off: argLow(1), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		bpf.RetConstant{Val: refuse(unix.EPERM)},
		bpf.RetConstant{Val: allow},
	}
}

// Install puts the filter on the calling thread. no_new_privs must be set. With Binder it
// returns the descriptor that Serve needs.
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
