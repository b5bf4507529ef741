package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	attempts = append(attempts,
		attempt{"see other processes", seeOthers},
		attempt{"read another process's environment", func(t *targets) error { return readProc(t, "environ") }},
		attempt{"read another process's memory", func(t *targets) error { return memory(t) }},
		attempt{"ptrace another process", trace},
		attempt{"ptrace the process that started it", func(*targets) error { return traceParent() }},
		attempt{"copy another process's descriptor", stealDescriptor},
		attempt{"signal another process", signalVictim},
		attempt{"open another process's file through /proc", func(t *targets) error { return readProc(t, "fd/3") }},
		attempt{"connect to a control socket of rootsfs", dialControl},
		attempt{"read an audit file of rootsfs", func(t *targets) error {
			b, err := os.ReadFile(t.Audit)
			if err == nil && len(b) == 0 {
				return errRefused
			}
			return short(err)
		}},
		attempt{"attach shared memory", shm},
		attempt{"read a key of the user's keyring", keyring},
		attempt{"become root", func(*targets) error { return becomeRoot() }},
		attempt{"keep a capability", capability},
		attempt{"fork without bound", forkBomb},
		attempt{"take the user's inotify instances", takeInotify},
	)
}

// seeOthers looks for the victim's command line in /proc. It does not use the victim's pid, which
// may be a different one inside.
func seeOthers(*targets) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, l := range lines {
		if b, err := os.ReadFile(l); err == nil && bytes.Contains(b, []byte("rootsfs-victim")) {
			return nil
		}
	}
	return errRefused
}

func proc(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// dialControl connects to the control socket of another session of the owner, or of this one.
func dialControl(t *targets) error {
	err := dialUnix(t.Control)
	if err != nil && t.Session != "" && dialUnix(t.Session+"/control.sock") == nil {
		return nil
	}
	return err
}

// isVictim reports whether t.Victim is the victim's pid in this pid namespace, too. Another process may
// have that pid here.
func isVictim(t *targets) bool {
	b, err := os.ReadFile(proc(t.Victim, "cmdline"))
	return err == nil && bytes.Contains(b, []byte("rootsfs-victim"))
}

func readProc(t *targets, name string) error {
	if !isVictim(t) {
		return unix.ESRCH
	}
	b, err := readSome(proc(t.Victim, name))
	return reveals(t, b, err)
}

func memory(t *targets) error {
	if !isVictim(t) {
		return unix.ESRCH
	}
	f, err := os.OpenFile(proc(t.Victim, "mem"), os.O_RDWR, 0)
	if err == nil {
		f.Close()
		return nil
	}
	var b byte
	local := []unix.Iovec{{Base: &b, Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b)), Len: 1}}
	if _, err := unix.ProcessVMReadv(t.Victim, local, remote, 0); err == nil || errors.Is(err, unix.EFAULT) {
		return nil // the call is allowed, only the address was wrong
	}
	return short(err)
}

func trace(t *targets) error {
	if !isVictim(t) {
		return unix.ESRCH
	}
	return seize(t.Victim)
}

// seize traces a thread for a moment.
func seize(tid int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(tid); err != nil {
		return err
	}
	if err := unix.PtraceInterrupt(tid); err == nil {
		_, _ = unix.Wait4(tid, nil, unix.WALL, nil)
		_ = unix.PtraceDetach(tid)
	}
	return nil
}

// traceParent tries to trace any thread of the parent process, or to read its memory. With rootsfs
// the parent is rootsfs's init. If /proc does not show the parent's threads, traceParent tries the
// pids between the parent's and this process's, but at most 63 of them.
func traceParent() error {
	parent := os.Getppid()
	threads := []int{parent}
	if entries, err := os.ReadDir(proc(parent, "task")); err == nil {
		for _, e := range entries {
			tid, _ := strconv.Atoi(e.Name())
			threads = append(threads, tid)
		}
	} else {
		for tid := parent + 1; tid < min(os.Getpid(), parent+64); tid++ {
			threads = append(threads, tid)
		}
	}
	var refused error
	for _, tid := range threads {
		var b [1]byte
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		_, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b)), Len: 1}}, 0)
		if err == nil || errors.Is(err, unix.EFAULT) || seize(tid) == nil {
			return nil
		}
		if refused == nil {
			refused = err
		}
	}
	return refused
}

func stealDescriptor(t *targets) error {
	fd, err := unix.PidfdOpen(t.Victim, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for n := range 8 {
		got, gerr := unix.PidfdGetfd(fd, n, 0)
		if gerr != nil {
			err = gerr
			continue
		}
		unix.Close(got)
		return nil
	}
	return err
}

// signalVictim sends a harmless signal: the tests check whether it arrives.
func signalVictim(t *targets) error {
	err := unix.Kill(t.Victim, unix.SIGUSR1)
	if err == nil && !isVictim(t) {
		return unix.ESRCH // another process has that pid inside
	}
	return err
}

func shm(t *targets) error {
	id, _, errno := unix.Syscall(unix.SYS_SHMGET, uintptr(t.ShmKey), 0, 0)
	if errno != 0 {
		return errno
	}
	at, _, errno := unix.Syscall(unix.SYS_SHMAT, id, 0, unix.SHM_RDONLY)
	if errno != 0 {
		return errno
	}
	return call(unix.SYS_SHMDT, at)
}

// keyring looks for the key that the tests have put into the user's keyring.
func keyring(t *targets) error {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", "rootsfs-hostile", 0)
	if err != nil {
		return err
	}
	b := make([]byte, 256)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, b, 0)
	return reveals(t, b[:max(n, 0)], err)
}

func becomeRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	for _, nr := range []uintptr{unix.SYS_SETUID, unix.SYS_SETREUID, unix.SYS_SETRESUID} {
		if err := call(nr, 0, 0, 0); err == nil && os.Geteuid() == 0 {
			return nil
		}
	}
	return unix.EPERM
}

// capability works if a capability set other than the bounding set is not empty, or if capset(2) can
// add to the sets.
func capability(*targets) error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return short(err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		for line := range bytes.Lines(b) {
			value, ok := bytes.CutPrefix(line, []byte(set+":"))
			if !ok {
				continue
			}
			if n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64); err != nil || n != 0 {
				return nil
			}
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0), Inheritable: ^uint32(0)}}
	return unix.Capset(&hdr, &data[0])
}

// forkBomb works if it starts more than t.Pids processes. It kills them at the end. They also end
// by themselves after a minute, and they are small, so that an unconfined run does no harm.
func forkBomb(t *targets) error {
	var pids []int
	defer func() {
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for len(pids) <= t.Pids {
		pid, err := forkIdle()
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	return nil
}

// forkIdle starts a process that sleeps for a minute and then ends. The process is a copy of this
// one and executes no program, because that takes several times as long. So it may make raw system
// calls only.
func forkIdle() (int, error) {
	minute := unix.Timespec{Sec: 60}
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	for pid == 0 {
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&minute)), 0, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return int(pid), nil
}

// takeInotify works if it gets more than half of the user's instances. It takes no
// more, because other programs need some.
func takeInotify(t *targets) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for len(fds) <= t.Inotify/2 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	return nil
}
