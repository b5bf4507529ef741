package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hogs has a function for each resource. The function takes more and more of the resource until
// the kernel refuses. The functions for locks and memory also stop, without an error, when they
// have far more than any program needs. Each function returns how much it holds, and the error
// that stopped it. For processes, locks, keys and memory the number includes the refused call. The
// process holds the resource until the process ends.
var hogs = map[string]func() (int, error){
	"processes": func() (n int, err error) {
		for ; err == nil; n++ {
			_, err = syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{}) // without this program's streams, because a test may wait until they are closed
		}
		return n, err
	},
	"descriptors": func() (n int, err error) { return repeat(func() error { _, err := unix.Eventfd(0, 0); return err }) },
	"epoll":       epollWatches,
	"inotify":     func() (int, error) { return repeat(func() error { _, err := unix.InotifyInit1(0); return err }) },
	"terminals": func() (int, error) {
		return repeat(func() error { _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); return err })
	},
	"pipes": func() (int, error) {
		return repeat(func() error {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
				return err
			}
			_, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
			return err
		})
	},
	"signals":  queuedSignals,
	"locks":    fileLocks,
	"inflight": descriptorsInFlight,
	"keys": func() (n int, err error) {
		for ; err == nil; n++ {
			_, err = unix.AddKey("user", fmt.Sprint("rootsfs-hog-", n), []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		}
		return n, err
	},
	"memory": func() (n int, err error) {
		const chunk, most = 16 << 20, 1 << 30
		for ; err == nil && n < most/chunk; n++ {
			_, err = unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		}
		return n, err
	},
}

// repeat makes a call until it fails, and returns how often it succeeded, and the error.
func repeat(call func() error) (n int, err error) {
	for ; ; n++ {
		if err = call(); err != nil {
			return n, err
		}
	}
}

// exhaust does the work of the arguments -exhaust NAME. It uses up the resource, prints on one line
// how much it holds, and then waits until a signal ends this process.
func exhaust(name string) int {
	n, err := hogs[name]()
	fmt.Printf("holds %d: %v\n", n, err)
	for {
		_ = unix.Pause() // a timer would take an epoll watch and two descriptors
	}
}

// epollWatches adds the same 256 descriptors to one epoll instance after another.
func epollWatches() (n int, err error) {
	var targets [256]int
	for i := range targets {
		if targets[i], err = unix.Eventfd(0, 0); err != nil {
			return 0, err
		}
	}
	for {
		instance, err := unix.EpollCreate1(0)
		if err != nil {
			// This process has no more descriptors for instances. Another process continues.
			_, err := syscall.ForkExec("/proc/self/exe", []string{"hostile", "-exhaust", "epoll"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
			return n, err
		}
		for _, fd := range targets {
			if err := unix.EpollCtl(instance, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
				return n, err
			}
			n++
		}
	}
}

// queuedSignals queues real-time signals that this thread blocks.
func queuedSignals() (int, error) {
	const sig = 50 // a real-time signal that Go's runtime has no use for
	runtime.LockOSThread()
	set := unix.Sigset_t{Val: [16]uint64{1 << (sig - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return 0, err
	}
	info := [128]byte{}
	*(*int32)(unsafe.Pointer(&info[0])) = sig
	*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
	return repeat(func() error {
		return call(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), sig, uintptr(unsafe.Pointer(&info)))
	})
}

// fileLocks locks every other byte of a file, at most 10,000 bytes. The file is in the directory of
// this program, which is a root.
func fileLocks() (n int, err error) {
	fd, err := unix.Open(filepath.Dir(os.Args[0])+"/locked", unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return 0, err
	}
	const most = 10_000
	for ; err == nil && n < most; n++ {
		err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * n), Len: 1})
	}
	return n, err
}

// descriptorsInFlight sends messages of eight descriptors each that are never received. n is the
// number of messages.
func descriptorsInFlight() (n int, err error) {
	rights := unix.UnixRights(0, 0, 0, 0, 0, 0, 0, 0)
	for {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return n, err
		}
		for err == nil {
			if err = unix.Sendmsg(pair[0], []byte{0}, rights, nil, unix.MSG_DONTWAIT); err == nil {
				n++
			}
		}
		if err != unix.EAGAIN {
			return n, err
		}
		// This pair's queue is full: continue with another pair.
	}
}
