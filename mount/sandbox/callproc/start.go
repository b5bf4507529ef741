//go:build amd64 || arm64

package callproc

import (
	"runtime"
	"syscall"
	"unsafe"
)

// cloneArgs is struct clone_args of clone3(2), in its first version.
type cloneArgs struct {
	//lint:ignore U1000 the kernel reads them
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
}

const cloneClearSighand = 1 << 32 // CLONE_CLEAR_SIGHAND of clone3(2)

// begin starts the process.
func begin(args *cloneArgs, first *Call) (pid int)

// Start starts a process that makes the calls, and returns its pid. flags are those of
// clone3(2) beside the ones that make the process what it is. The signal mask of the
// caller's thread is put into mask before, for calls that want it; it is not to lie on a
// stack then.
func Start(flags uintptr, calls []Call, mask *uint64) (int, error) {
	return start(flags|syscall.CLONE_VM, calls, mask)
}

// StartCopy is Start, but the process gets a copy of this one's memory, without what is
// kept from children (madvise(2), MADV_DONTFORK). It costs more.
func StartCopy(flags uintptr, calls []Call, mask *uint64) (int, error) {
	return start(flags, calls, mask)
}

func start(flags uintptr, calls []Call, mask *uint64) (int, error) {
	args := &cloneArgs{flags: uint64(flags) | cloneClearSighand, exitSignal: uint64(syscall.SIGCHLD)}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Descriptors that are being made are not to be inherited (syscall.ForkLock).
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	all := ^uint64(0)
	sigmask(&all, mask)
	pid := begin(args, &calls[0])
	sigmask(mask, nil)
	if pid < 0 {
		return 0, syscall.Errno(-pid)
	}
	return pid, nil
}

// sigmask sets the signals that the calling thread blocks (rt_sigprocmask(2)).
func sigmask(set, was *uint64) {
	const setMask = 2
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), unsafe.Sizeof(*set), 0, 0)
}
