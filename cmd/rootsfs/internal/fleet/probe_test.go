package fleet_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// probe is the program "fleet-probe FILE". Until the process is killed, probe accesses the file in
// four ways: open, read, write and page, which reads a mapped page. Each way has a goroutine, which
// waits 5 ms between two accesses, or a hundredth of ROOTSFS_LEASE if that variable is set. For
// each access that succeeds, probe prints the way and the time by CLOCK_MONOTONIC at which the
// access began.
func probe() {
	var out, files sync.Mutex
	file, mapped, wait := (*os.File)(nil), []byte(nil), 5*time.Millisecond
	if lease, err := time.ParseDuration(os.Getenv("ROOTSFS_LEASE")); err == nil {
		wait = lease / 100
	}
	reopen := func() error { // a root that was granted again is another root
		f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		files.Lock()
		defer files.Unlock()
		if file != nil {
			if _, err := file.ReadAt(make([]byte, 1), 0); err == nil {
				return f.Close()
			}
		}
		page, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ, unix.MAP_SHARED)
		if err == nil {
			file, mapped = f, page // the old file and page stay: another goroutine may still use them
		}
		return err
	}
	current := func() (*os.File, []byte) {
		files.Lock()
		defer files.Unlock()
		return file, mapped
	}
	for kind, access := range map[string]func() error{
		"open":  reopen,
		"read":  func() error { f, _ := current(); _, err := f.ReadAt(make([]byte, 4), 0); return err },
		"write": func() error { f, _ := current(); _, err := f.WriteAt([]byte("word"), 0); return err },
		"page": func() (err error) {
			_, page := current()
			if page == nil {
				return os.ErrInvalid
			}
			defer func() {
				if recover() != nil {
					err = unix.EFAULT
				}
			}()
			if page[0] != 'w' {
				return unix.EIO
			}
			return unix.Madvise(page, unix.MADV_DONTNEED) // the next access asks the kernel's cache
		},
	} {
		go func() {
			debug.SetPanicOnFault(true)
			for ; ; time.Sleep(wait) {
				var began unix.Timespec
				if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &began); err != nil {
					panic(err)
				}
				if access() == nil {
					out.Lock()
					fmt.Println(kind, began.Nano())
					out.Unlock()
				}
			}
		}()
	}
	select {}
}
