package seccomp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const filterArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are calls that only this architecture has: none.
var refusedHere = map[uint32]unix.Errno{}

// setIDCallsHere: see setIDCalls; this architecture has no other calls for a mode.
func setIDCallsHere() map[uint32][]bpf.Instruction { return nil }
