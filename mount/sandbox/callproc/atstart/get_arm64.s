#include "textflag.h"

// func getNoFile(*Rlimit)
TEXT ·getNoFile(SB), NOSPLIT, $0-8
	MOVD	$261, R8	// prlimit64(0, RLIMIT_NOFILE, NULL, r)
	MOVD	$0, R0
	MOVD	$7, R1
	MOVD	$0, R2
	MOVD	r+0(FP), R3
	SVC
	RET
