package ahead

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/rootsfs/rootsfs/mount/sandbox/callproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/callproc/atstart"
)

const (
	sysCloseRange = 436 // close_range(2), the same number on every architecture

	capVersion      = 0x20080522 // _LINUX_CAPABILITY_VERSION_3 of capset(2)
	prCapAmbient    = 47         // PR_CAP_AMBIENT of prctl(2)
	capAmbientRaise = 2

	// The numbers of an init's descriptors: the standard ones, the control socket, and
	// one that keeps the number of the configuration free.
	controlFD, spareFD = 3, 4
)

// launch is what a process reads until it has become an init.
type launch struct {
	calls  []callproc.Call
	mask   uint64
	word   [1]byte
	header struct {
		version uint32
		pid     int32
	}
	caps      [2]struct{ effective, permitted, inheritable uint32 }
	noFile    atstart.Rlimit
	program   *byte
	args, env []*byte
}

// start starts one, and returns nil if it cannot be had.
//
// As vfork does, the new process shares our memory until it executes its program,
// where a copy, of a program that is being initialised, would have every page that is
// written to from then on copied, too (a third of what its initialisation takes,
// measured). It waits for its uid to be mapped, and takes it, before there is a Go
// runtime, which would have each of its threads take it, one after the other, three
// times (a twentieth of a start).
func start(k Kind) *Init {
	var opened []int
	defer func() {
		for _, fd := range opened {
			_ = syscall.Close(fd)
		}
	}()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	opened = append(opened, pair[:]...)
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return nil
	}
	opened = append(opened, pipe[:]...)
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	opened = append(opened, null)
	// What it will have, above the numbers that it will have it by.
	var passed [2]int
	for i, fd := range [...]int{null, pair[1]} {
		high, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, spareFD+1)
		if errno != 0 {
			return nil
		}
		passed[i] = int(high)
		opened = append(opened, passed[i])
	}
	l, err := k.launch(passed[0], passed[1], pipe)
	if err != nil {
		return nil
	}
	pid, err := callproc.Start(k.Attr().Cloneflags, l.calls, &l.mask)
	if err != nil {
		return nil
	}
	err = k.settle(pid)
	if err == nil {
		_, err = syscall.Write(pipe[1], l.word[:])
	}
	process, found := os.FindProcess(pid)
	if err = errors.Join(err, found); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		for waited := error(syscall.EINTR); waited == syscall.EINTR; {
			_, waited = syscall.Wait4(pid, nil, 0, nil)
		}
		runtime.KeepAlive(l)
		return nil
	}
	opened = opened[1:]
	return &Init{Process: process, Control: os.NewFile(uintptr(pair[0]), "control socket"), Dead: make(chan struct{}), kind: k, launch: l}
}

// launch is the way of a process to be an init of the kind.
func (k Kind) launch(null, sock int, pipe [2]int) (*launch, error) {
	l := &launch{noFile: atstart.NoFile}
	var err error
	if l.program, err = syscall.BytePtrFromString(Program); err != nil {
		return nil, err
	}
	if l.args, err = syscall.SlicePtrFromStrings(Args); err != nil {
		return nil, err
	}
	if l.env, err = syscall.SlicePtrFromStrings(Env(StageAhead)); err != nil {
		return nil, err
	}
	l.header.version = capVersion
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) } // of l, which does not move
	call := func(nr uintptr, args ...uintptr) {
		c := callproc.Call{Nr: nr}
		copy(c.Args[:], args)
		l.calls = append(l.calls, c)
	}
	call(syscall.SYS_PRCTL, prSetTimerslack, initSlack) // see Unhurried
	// Its uid is mapped when there is a byte to read. If there never will be, the next
	// call fails, or, when this process has ended in between, the init finds nobody to
	// say to that it is there.
	call(syscall.SYS_CLOSE, uintptr(pipe[1]))
	call(syscall.SYS_READ, uintptr(pipe[0]), at(unsafe.Pointer(&l.word)), uintptr(len(l.word)))
	call(syscall.SYS_SETGROUPS, 0, 0)
	call(syscall.SYS_SETRESGID, uintptr(k.GID), uintptr(k.GID), uintptr(k.GID))
	call(syscall.SYS_SETRESUID, uintptr(k.UID), uintptr(k.UID), uintptr(k.UID))
	for _, c := range buildCaps {
		set := &l.caps[c/32]
		set.permitted |= 1 << (c % 32)
	}
	for i := range l.caps {
		l.caps[i].effective, l.caps[i].inheritable = l.caps[i].permitted, l.caps[i].permitted
	}
	call(syscall.SYS_CAPSET, at(unsafe.Pointer(&l.header)), at(unsafe.Pointer(&l.caps)))
	for _, c := range buildCaps {
		call(syscall.SYS_PRCTL, prCapAmbient, capAmbientRaise, c)
	}
	call(syscall.SYS_SETSID)
	for fd, from := range [...]int{0: null, null, null, controlFD: sock, spareFD: null} {
		call(syscall.SYS_DUP3, uintptr(from), uintptr(fd))
	}
	call(sysCloseRange, spareFD+1, ^uintptr(0))
	if l.noFile.Max != 0 { // if it could be asked for
		call(syscall.SYS_SETRLIMIT, syscall.RLIMIT_NOFILE, at(unsafe.Pointer(&l.noFile)))
	}
	call(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, at(unsafe.Pointer(&l.mask)), 0, unsafe.Sizeof(l.mask))
	call(syscall.SYS_EXECVE, at(unsafe.Pointer(l.program)), at(unsafe.Pointer(&l.args[0])), at(unsafe.Pointer(&l.env[0])))
	return l, nil
}

// settle maps the uid and gid of a process that waits for it.
func (k Kind) settle(pid int) error {
	dir, uid, gid := "/proc/"+strconv.Itoa(pid)+"/", strconv.Itoa(int(k.UID)), strconv.Itoa(int(k.GID))
	for _, f := range [][2]string{{"uid_map", uid + " " + uid + " 1"}, {"gid_map", gid + " " + gid + " 1"}} {
		fd, err := syscall.Open(dir+f[0], syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_, err = syscall.Write(fd, []byte(f[1]))
		_ = syscall.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}
