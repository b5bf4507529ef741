package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stdin says what standard input is, reads it twice, and tries whatever could be done to a
// file of the host's by a descriptor. It prints what worked.
func stdin() int {
	var st unix.Stat_t
	err := unix.Fstat(0, &st)
	null := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
	fmt.Printf("regular %v, null %v, %v\n", st.Mode&unix.S_IFMT == unix.S_IFREG, null, err)
	if null {
		return 0
	}
	first, err := io.ReadAll(os.Stdin)
	fmt.Printf("read %q, %v\n", first, err)
	again, err := os.ReadFile("/dev/stdin")
	fmt.Printf("opened again: %q, %v\n", again, err)
	_, err = os.Stdin.Seek(1, io.SeekStart)
	rest, rerr := io.ReadAll(os.Stdin)
	fmt.Printf("sought: %q, %v, %v\n", rest, err, rerr)
	times := []unix.Timespec{{Sec: 1}, {Sec: 1}}
	for _, a := range []struct {
		name string
		err  error
	}{
		{"write", call2(unix.Write(0, []byte("x")))},
		{"truncate", unix.Ftruncate(0, 0)},
		{"change the mode", unix.Fchmod(0, 0o777)},
		{"change the owner", unix.Fchown(0, os.Getuid(), os.Getgid())},
		{"change the times", unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/0", times, 0)},
		{"set an attribute", unix.Fsetxattr(0, "user.hostile", []byte("x"), 0)},
		{"open it for writing", reopen(unix.O_WRONLY)},
		{"open it for both", reopen(unix.O_RDWR)},
		{"open it to append", reopen(unix.O_WRONLY | unix.O_APPEND)},
		{"truncate it by name", unix.Truncate("/proc/self/fd/0", 0)},
		{"map it for writing", mapShared()},
		{"link it into a directory", unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/0", unix.AT_FDCWD, fmt.Sprintf("stolen-%d", time.Now().UnixNano()), unix.AT_SYMLINK_FOLLOW)},
	} {
		if a.err == nil {
			fmt.Println("worked:", a.name)
		}
	}
	return 0
}

func call2(_ int, err error) error { return err }

func reopen(flags int) error {
	fd, err := unix.Open("/proc/self/fd/0", flags, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func mapShared() error {
	b, err := unix.Mmap(0, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		_ = unix.Munmap(b)
	}
	return err
}
