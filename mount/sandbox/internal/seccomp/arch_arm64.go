package seccomp

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const filterArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are calls that only this architecture has: none.
var refusedHere = map[uint32]unix.Errno{}

// modesHere: see modesOf; this architecture has no other calls for a mode.
var modesHere map[uint32]func() []bpf.Instruction
