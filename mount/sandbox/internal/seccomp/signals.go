//go:build amd64 || arm64

package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Without a pid namespace the kernel does not protect the init from the processes that it
// has started. Landlock keeps signals inside its domain, but the init's main thread is in the
// domain (the other threads are not). A stopped init could neither end its processes nor pass
// a signal on.

// signals returns the bodies (see filteredCalls) of the calls by which a process could send the
// init a signal, or join the init's process group and then send signals to the whole group. pid is
// the init's process id.
func signals(pid uint32) map[uint32][]bpf.Instruction {
	refuseInit := func(arg uint32, more ...uint32) []bpf.Instruction {
		return among(arg, allow, refuse(unix.EPERM), slices.Concat([]uint32{pid}, more)...)
	}
	const everybody = 0xffffffff // -1
	return map[uint32][]bpf.Instruction{
		unix.SYS_KILL:    refuseInit(0, -pid, everybody), // pid 0 is safe: no process joins the init's process group
		unix.SYS_SETPGID: refuseInit(1),
		unix.SYS_TKILL:   refuseInit(0), unix.SYS_TGKILL: refuseInit(1),
		unix.SYS_RT_SIGQUEUEINFO: refuseInit(0), unix.SYS_RT_TGSIGQUEUEINFO: refuseInit(1),
		// A filter cannot read which process a descriptor refers to. Libraries fall back to
		// kill.
		unix.SYS_PIDFD_SEND_SIGNAL: always(refuse(unix.ENOSYS)),
		unix.SYS_FCNTL:             owners(pid),
	}
}

// ownerIoctls are the ioctls that set which process gets a socket's signals. They pass the pid of
// this process in memory, as F_SETOWN_EX does. A filter cannot read memory.
var ownerIoctls = []uint32{fiosetown, unix.SIOCSPGRP}

const fiosetown = 0x8901 // FIOSETOWN in asm-generic/sockios.h

// owners returns the body of fcntl(2). The body refuses to make the init the receiver of a file's
// signals (F_SETOWN, see F_SETSIG), and refuses F_SETOWN_EX for every receiver.
func owners(pid uint32) []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: argLow(1), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETOWN_EX, SkipFalse: 1},
		bpf.RetConstant{Val: refuse(unix.EPERM)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETOWN, SkipTrue: 1},
		bpf.RetConstant{Val: allow},
	}, among(2, allow, refuse(unix.EPERM), pid, -pid)...)
}
