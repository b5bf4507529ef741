package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	attempts = append(attempts,
		attempt{"connect to a socket in a directory", func(t *targets) error { return dialUnix(t.Pathname) }},
		attempt{"connect to an abstract socket", func(t *targets) error { return dialUnix("\x00" + t.Abstract) }},
		attempt{"send to a socket in a directory from a pair", pairOut},
		attempt{"connect by TCP", func(t *targets) error { return dialInet(t.TCP, unix.SOCK_STREAM, 0) }},
		attempt{"connect by MPTCP", func(t *targets) error { return dialInet(t.TCP, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) }},
		attempt{"send by UDP", func(t *targets) error { return sendUDP(t.UDP) }},
		attempt{"see the host's network interfaces", seeInterfaces},
		attempt{"change a network interface", changeInterface},
		attempt{"open a packet, vsock or another netlink socket", otherSockets},
		attempt{"set up io_uring", func(*targets) error {
			var params [120]byte
			fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
		attempt{"mount a file system", mountTmpfs},
		attempt{"mount by the newer calls", mountNew},
		attempt{"unmount /proc or the root", func(*targets) error { return unmount() }},
		attempt{"pivot_root or chroot", func(t *targets) error { return newRoot(t) }},
		attempt{"make a user namespace", userNamespace},
		attempt{"join another namespace", joinNamespace},
		attempt{"write core_pattern", func(*targets) error { return openWrite("/proc/sys/kernel/core_pattern") }},
		attempt{"write sysrq-trigger", func(*targets) error { return openWrite("/proc/sysrq-trigger") }},
		attempt{"read the kernel's memory, keys or log", kernelFiles},
		attempt{"load a BPF program", func(*targets) error {
			var attr [128]byte
			*(*uint32)(unsafe.Pointer(&attr[0])), *(*uint32)(unsafe.Pointer(&attr[4])) = 1, 4 // BPF_MAP_CREATE: a hash map with keys of 4 bytes
			*(*uint32)(unsafe.Pointer(&attr[8])), *(*uint32)(unsafe.Pointer(&attr[12])) = 4, 1
			fd, _, errno := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), uintptr(len(attr)))
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
		attempt{"trace with perf_event_open", func(*targets) error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK}
			fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		attempt{"make a userfaultfd", func(*targets) error {
			fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, 1, 0, 0) // UFFD_USER_MODE_ONLY
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
		attempt{"type into the terminal (TIOCSTI)", func(*targets) error { return inject(unix.TIOCSTI) }},
		attempt{"type into the terminal (TIOCSTI with a high bit)", func(*targets) error { return inject(unix.TIOCSTI | 1<<32) }},
		attempt{"paste into the terminal (TIOCLINUX)", func(*targets) error { return inject(unix.TIOCLINUX) }},
		attempt{"call by another architecture's numbers", foreign},
		attempt{"set the host's name or clock", func(*targets) error {
			var u unix.Utsname
			if err := unix.Uname(&u); err != nil {
				return err
			}
			if err := unix.Sethostname([]byte(unix.ByteSliceToString(u.Nodename[:]))); err == nil {
				return nil
			}
			// A tick of 0 is invalid, but the kernel looks first whether the caller may set the clock.
			_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_TICK})
			if err == unix.EINVAL {
				return nil
			}
			return err
		}},
		attempt{"learn the host's name", func(t *targets) error {
			if name, err := os.Hostname(); err != nil || name != t.Host {
				return errRefused
			}
			return nil
		}},
	)
}

func openWrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return short(err)
	}
	return f.Close()
}

func dialUnix(name string) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.Connect(s, &unix.SockaddrUnix{Name: name})
}

// pairOut sends from one end of its own socket pair to a datagram socket of the host.
func pairOut(t *targets) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: t.Pathname + ".dgram"})
}

func address(s string) (*unix.SockaddrInet4, error) {
	a, err := net.ResolveTCPAddr("tcp4", s)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}, nil
}

func dialInet(addr string, kind, proto int) error {
	to, err := address(addr)
	if err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, kind, proto)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.Connect(s, to)
}

// sendUDP waits for the answer: sending alone shows nothing.
func sendUDP(addr string) error {
	to, err := address(addr)
	if err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Connect(s, to); err != nil {
		return err
	}
	if _, err := unix.Write(s, []byte("ping")); err != nil {
		return err
	}
	// Without a server the call fails at once with ECONNREFUSED; a server answers.
	_, err = unix.Read(s, make([]byte, 16))
	return err
}

// seeInterfaces looks for an interface that is not a loopback interface. Only the host has one.
func seeInterfaces(*targets) error {
	list, err := net.Interfaces()
	if err != nil {
		return short(err)
	}
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 {
			return nil
		}
	}
	return unix.ENODEV
}

// changeInterface brings the loopback interface up, although it is up already.
func changeInterface(*targets) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	// struct nlmsghdr and struct ifinfomsg (rtnetlink(7)).
	msg := make([]byte, 32)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], unix.RTM_NEWLINK)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	for _, at := range []int{20, 24, 28} { // the index of lo (which is 1, like IFF_UP), flags, the flags to change
		binary.NativeEndian.PutUint32(msg[at:], unix.IFF_UP)
	}
	if err := unix.Sendto(s, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	if n, _, err := unix.Recvfrom(s, answer, 0); err != nil || n < 20 {
		return cmp.Or(err, error(unix.EIO))
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[16:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

func otherSockets(*targets) error {
	var last error
	for _, c := range [][3]int{{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, {unix.AF_PACKET, unix.SOCK_RAW, 0}, {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {unix.AF_ALG, unix.SOCK_SEQPACKET, 0}} {
		s, err := unix.Socket(c[0], c[1], c[2])
		if err == nil {
			return unix.Close(s)
		}
		last = err
	}
	return last
}

// mountDir returns a directory to mount on. It is this program's own, so that a success does no
// harm.
func mountDir(t *targets) (string, error) {
	dir := filepath.Join(t.Root, "mountpoint")
	err := os.Mkdir(dir, 0o700)
	if os.IsExist(err) {
		err = nil
	}
	return dir, short(err)
}

func mountTmpfs(t *targets) error {
	dir, err := mountDir(t)
	if err != nil {
		return err
	}
	if err := unix.Mount("hostile", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

func mountNew(*targets) error {
	fs, ferr := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if ferr == nil {
		return unix.Close(fs)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
	if err == nil {
		return unix.Close(tree)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &unix.MountAttr{}); err == nil {
		return nil
	}
	if err := unix.MoveMount(unix.AT_FDCWD, "/usr", unix.AT_FDCWD, "/tmp", 0); err == nil {
		return nil
	}
	return ferr
}

// unmount tries an unmount that has no effect, so that only the permission counts: a
// permitted MNT_EXPIRE gives EAGAIN the first time, and EINVAL for the root.
func unmount() error {
	last := unix.Unmount("/", unix.MNT_EXPIRE)
	if last == unix.EINVAL {
		return nil
	}
	for _, p := range []string{"/proc", "/dev/pts", "/dev/shm", "/tmp"} {
		if last = unix.Unmount(p, unix.MNT_EXPIRE); last == nil || last == unix.EAGAIN || last == unix.EBUSY {
			return nil
		}
	}
	return last
}

func newRoot(t *targets) error {
	if err := unix.Chroot("/"); err == nil {
		return nil
	}
	err := unix.PivotRoot(t.Root, t.Root)
	if err == unix.EINVAL || err == unix.EBUSY {
		return nil // the call is allowed, only that directory cannot be a root
	}
	return err
}

func joinNamespace(t *targets) error {
	var last error
	for _, pid := range []int{t.Victim, t.Parent, 1} {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			last = err
			continue
		}
		last = unix.Setns(fd, unix.CLONE_NEWUTS)
		unix.Close(fd)
		if last == nil {
			return nil
		}
	}
	return last
}

func kernelFiles(*targets) error {
	last := error(errRefused)
	for _, p := range []string{"/proc/kcore", "/dev/mem", "/dev/kmsg", "/proc/kmsg", "/proc/keys", "/proc/kallsyms", "/proc/config.gz", "/dev/vda", "/dev/sda"} {
		b, err := readSome(p)
		if err == nil && len(b) > 0 {
			return nil
		}
		if err != nil {
			last = short(err)
		}
	}
	if n, err := unix.Klogctl(3, make([]byte, 64)); err == nil && n > 0 { // SYSLOG_ACTION_READ_ALL
		return nil
	}
	return last
}

func inject(request uintptr) error {
	c := byte('x')
	// The error is that of the last stream that is a terminal.
	last := error(unix.ENOTTY)
	for fd := range 3 {
		if err := call(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&c))); err == nil {
			return nil
		} else if err != unix.ENOTTY {
			last = err
		}
	}
	return last
}

func foreign(*targets) error {
	code, err := runSelf("/proc/self/exe", "-foreign")
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("%w (%d)", errRefused, code)
	}
	return nil
}

// userNamespace tries to make a user namespace by clone, unshare and clone3.
func userNamespace(*targets) error {
	var last error
	for _, flags := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWUSER | unix.CLONE_NEWNS} {
		c := exec.Command("/proc/self/exe", "-nothing")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if last = c.Run(); last == nil {
			return nil
		}
		c = exec.Command("/proc/self/exe", "-nothing")
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flags}
		if last = c.Run(); last == nil {
			return nil
		}
	}
	// A cgroup descriptor makes Go use clone3.
	c := exec.Command("/proc/self/exe", "-nothing")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UseCgroupFD: true, CgroupFD: -1}
	if err := c.Run(); err == nil {
		return nil
	}
	return short(last)
}
