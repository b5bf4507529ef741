#include "textflag.h"

// func begin(first *call) (pid int)
//
// The stack of the new process is this one, which it never touches.
TEXT ·begin(SB), NOSPLIT, $0-16
	MOVQ	first+0(FP), R12
	MOVQ	$56, AX			// clone(2)
	MOVQ	$(0x100|17), DI		// CLONE_VM|SIGCHLD
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JEQ	next
	MOVQ	AX, pid+8(FP)
	RET
next:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	MOVQ	40(R12), R8
	ADDQ	$48, R12
	SYSCALL
	JMP	next
