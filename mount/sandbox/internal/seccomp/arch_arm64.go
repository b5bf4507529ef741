package seccomp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const filterArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are the refused calls that only this architecture has: none.
var refusedHere = map[uint32]unix.Errno{}

// setIDCallsHere is like setIDCalls, for the calls that only this architecture has: none.
func setIDCallsHere() map[uint32][]bpf.Instruction { return nil }
