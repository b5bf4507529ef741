#include "textflag.h"

// func begin(args *cloneArgs, first *Call) (pid int)
//
// The stack of the new process is this one, which it never touches.
TEXT ·begin(SB), NOSPLIT, $0-24
	MOVQ	first+8(FP), R12
	MOVQ	$435, AX		// clone3(2)
	MOVQ	args+0(FP), DI
	MOVQ	$64, SI			// CLONE_ARGS_SIZE_VER0
	SYSCALL
	TESTQ	AX, AX
	JEQ	next
	MOVQ	AX, pid+16(FP)
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
	CMPQ	AX, $0xfffffffffffff001	// an error
	JLS	next
	MOVQ	$231, AX		// exit_group(2)
	MOVQ	$127, DI
	SYSCALL
	INT	$3
