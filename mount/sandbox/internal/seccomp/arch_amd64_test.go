package seccomp

import "golang.org/x/sys/unix"

// modeCallsHere are the cases of TestFilterNoSetID that only this architecture has.
var modeCallsHere = []modeCall{
	{"chmod", unix.SYS_CHMOD, []uint64{1, 0}, 0},
	{"mknod", unix.SYS_MKNOD, []uint64{1, 0}, 0},
	{"creat", unix.SYS_CREAT, []uint64{1, 0}, 0},
	{"open", unix.SYS_OPEN, []uint64{1, 0, 0}, unix.O_CREAT},
}
