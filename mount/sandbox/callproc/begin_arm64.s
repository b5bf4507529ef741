#include "textflag.h"

// func begin(args *cloneArgs, first *Call) (pid int)
//
// The stack of the new process is this one, which it never touches.
TEXT ·begin(SB), NOSPLIT, $0-24
	MOVD	first+8(FP), R19
	MOVD	$435, R8		// clone3(2)
	MOVD	args+0(FP), R0
	MOVD	$64, R1			// CLONE_ARGS_SIZE_VER0
	SVC
	CBZ	R0, next
	MOVD	R0, pid+16(FP)
	RET
next:
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	MOVD	40(R19), R4
	ADD	$48, R19, R19
	SVC
	CMN	$4095, R0		// an error
	BCC	next
	MOVD	$94, R8			// exit_group(2)
	MOVD	$127, R0
	SVC
	BRK
