// Package oldkernel runs a test as on an older or more restricted kernel: chosen system calls fail
// with the errors that this other kernel would return.
//
// # Promises
//
// A seccomp filter returns the errors, so the code under test and its child processes get them.
//
// # Not promised
//
// Only the chosen calls behave as on the other kernel.
package oldkernel

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that the other kernel answers with an error.
type Call struct {
	Nr    uint32
	Errno unix.Errno
	Bits  uint32 // only calls with all of these bits in an argument; 0: every call
	Arg   uint32 // the index of that argument
}

// Calls that older kernels do not have. Each comment names the first kernel with the call.
var (
	// UtimesOfDescriptor is utimensat(2) with AT_EMPTY_PATH, of Linux 5.8.
	UtimesOfDescriptor = Call{Nr: unix.SYS_UTIMENSAT, Errno: unix.EINVAL, Bits: unix.AT_EMPTY_PATH, Arg: 3}
	// CloseRange is close_range(2), of Linux 5.9.
	CloseRange = Call{Nr: unix.SYS_CLOSE_RANGE, Errno: unix.ENOSYS}
	// CloseRangeOnExec is close_range(2) with CLOSE_RANGE_CLOEXEC, of Linux 5.11.
	CloseRangeOnExec = Call{Nr: unix.SYS_CLOSE_RANGE, Errno: unix.EINVAL, Bits: unix.CLOSE_RANGE_CLOEXEC, Arg: 2}
	// MountSetattr is mount_setattr(2), of Linux 5.12.
	MountSetattr = Call{Nr: unix.SYS_MOUNT_SETATTR, Errno: unix.ENOSYS}
	// Landlock is landlock_create_ruleset(2), of Linux 5.13.
	Landlock = Call{Nr: unix.SYS_LANDLOCK_CREATE_RULESET, Errno: unix.ENOSYS}
)

// Calls that a kernel has and forbids to this process.
var (
	// LandlockOff is landlock_create_ruleset(2) of a kernel that has Landlock built in, but not
	// enabled by the boot parameter lsm=.
	LandlockOff = Call{Nr: unix.SYS_LANDLOCK_CREATE_RULESET, Errno: unix.EOPNOTSUPP}
	// NamespacesRestricted is clone(2) with CLONE_NEWUSER if a security module forbids new user
	// namespaces, as AppArmor does on Ubuntu.
	NamespacesRestricted = Call{Nr: unix.SYS_CLONE, Errno: unix.EACCES, Bits: unix.CLONE_NEWUSER}
)

// childEnv is the environment variable with the name of the test that the child process runs.
const childEnv = "ROOTSFS_TEST_OLD_KERNEL"

// Enter reports whether this process is a child process that runs the test t as on the other
// kernel. In any other process, Enter runs t in such a child, waits for the child, and fails t if
// the child fails. t must be a top-level test.
func Enter(t *testing.T, calls ...Call) bool {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		if err := Refuse(calls...); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as on the other kernel: %v", err)
	}
	return false
}

// Refuse makes calls fail with their errors from now on, in all threads of this process and in the
// child processes that it starts later.
func Refuse(calls ...Call) error {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
		number  = 0  // offsets in struct seccomp_data (linux/seccomp.h)
		args    = 16 // 8 bytes each; the lower half is first
		setMode = 1  // SECCOMP_SET_MODE_FILTER
		tsync   = 1  // SECCOMP_FILTER_FLAG_TSYNC
	)
	var filter []unix.SockFilter
	for _, c := range calls {
		filter = append(filter,
			unix.SockFilter{Code: load, K: number},
			unix.SockFilter{Code: equal, Jf: 4, K: c.Nr},
			unix.SockFilter{Code: load, K: args + 8*c.Arg},
			unix.SockFilter{Code: and, K: c.Bits},
			unix.SockFilter{Code: equal, Jf: 1, K: c.Bits},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(c.Errno)})
	}
	filter = append(filter, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	// Root can install a filter without PR_SET_NO_NEW_PRIVS, so that set-uid programs go on working.
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // a few calls
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setMode, tsync, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
