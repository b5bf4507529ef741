#include "textflag.h"

// func getNoFile(*Rlimit)
TEXT ·getNoFile(SB), NOSPLIT, $0-8
	MOVQ	$302, AX	// prlimit64(0, RLIMIT_NOFILE, NULL, r)
	XORL	DI, DI
	MOVQ	$7, SI
	XORL	DX, DX
	MOVQ	r+0(FP), R10
	SYSCALL
	RET
