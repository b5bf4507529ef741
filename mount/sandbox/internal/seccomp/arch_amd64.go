package seccomp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const filterArch = unix.AUDIT_ARCH_X86_64

// refusedHere are the refused calls that only this architecture has.
var refusedHere = map[uint32]unix.Errno{
	unix.SYS_IOPL: unix.EPERM, unix.SYS_IOPERM: unix.EPERM, unix.SYS_MODIFY_LDT: unix.EPERM,
	unix.SYS_USELIB: unix.EPERM, unix.SYS__SYSCTL: unix.EPERM, unix.SYS_CREATE_MODULE: unix.EPERM,
	unix.SYS_QUERY_MODULE: unix.EPERM, unix.SYS_GET_KERNEL_SYMS: unix.EPERM, unix.SYS_SYSFS: unix.EPERM, unix.SYS_USTAT: unix.EPERM,
}

// setIDCallsHere is like setIDCalls, for the calls that only this architecture has.
func setIDCallsHere() map[uint32][]bpf.Instruction {
	return map[uint32][]bpf.Instruction{
		unix.SYS_CHMOD: modeIn(1), unix.SYS_MKNOD: modeIn(1), unix.SYS_CREAT: modeIn(1), unix.SYS_OPEN: createIn(1),
	}
}
