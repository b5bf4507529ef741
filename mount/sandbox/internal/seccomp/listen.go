//go:build amd64 || arm64

package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// In the host's network the command may connect, but listen only on the granted ports. The
// address for bind(2) and listen(2) is in memory, or in the kernel, where a filter cannot read
// it. So the filter passes both calls to the init (seccomp_unotify(2)). The init reads the
// address once, takes a copy of the socket's descriptor, and makes the call itself or refuses
// it. Changes that the command makes meanwhile have no effect.

// maxSockaddr is the size of struct sockaddr_storage.
const maxSockaddr = 128

// notification is struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// verdict is struct seccomp_notif_resp.
type verdict struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// binder makes the command's calls of bind and listen.
type binder struct {
	fd    int // of the notifications
	ports []uint16
}

// Serve makes the command's calls of bind and listen, which it gets from the descriptor that
// Install returned. It permits the given ports. It returns only if it cannot receive calls any more.
func Serve(fd int, ports []uint16) {
	b := &binder{fd, ports}
	for {
		var n notification
		switch err := notifyIoctl(b.fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // ENOENT: the calling thread was killed
			continue
		case err != nil:
			return
		}
		v := verdict{id: n.id}
		if err := b.call(&n); err != nil {
			errno := unix.EACCES
			errors.As(err, &errno)
			v.errno = -int32(errno)
		}
		_ = notifyIoctl(b.fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&v)) // the calling thread may be gone
	}
}

func notifyIoctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// call makes the call of a notification for the calling thread, or refuses it.
func (b *binder) call(n *notification) error {
	sock, err := descriptorOf(int(n.pid), int(int32(n.args[0])))
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	var addr []byte
	if n.nr == unix.SYS_BIND {
		size := int(int32(n.args[2]))
		if size < 0 || size > maxSockaddr {
			return unix.EINVAL
		}
		addr = make([]byte, size)
		if err := readMemory(int(n.pid), uintptr(n.args[1]), addr); err != nil {
			return err
		}
	}
	// If the calling thread was killed, n.pid may now be the number of another thread. Then
	// the data read above is not from the calling thread.
	if err := notifyIoctl(b.fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)); err != nil {
		return err
	}
	if n.nr == unix.SYS_BIND {
		return b.bind(sock, addr)
	}
	return b.listen(sock, int(int32(n.args[1])))
}

// bind binds to a permitted port, or to a port that the kernel chooses. A client gets a port of the
// kernel's choice even without bind. It can listen on the port only if the port is permitted.
func (b *binder) bind(sock int, addr []byte) error {
	if err := checkInet(sock); err != nil {
		return err
	}
	if len(addr) < 4 {
		return unix.EINVAL
	}
	// struct sockaddr_in and sockaddr_in6 have the port at the same offset.
	if port := binary.BigEndian.Uint16(addr[2:]); port != 0 && !slices.Contains(b.ports, port) {
		return unix.EACCES
	}
	_, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(sock), uintptr(unsafe.Pointer(&addr[0])), uintptr(len(addr)))
	if errno != 0 {
		return errno
	}
	return nil
}

// listen listens on a permitted port. An unbound socket is refused, because the kernel
// would choose a port.
func (b *binder) listen(sock, backlog int) error {
	if err := checkInet(sock); err != nil {
		return err
	}
	at, err := unix.Getsockname(sock)
	if err != nil {
		return err
	}
	port := 0
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		port = at.Port
	case *unix.SockaddrInet6:
		port = at.Port
	}
	if port == 0 || !slices.Contains(b.ports, uint16(port)) {
		return unix.EACCES
	}
	return unix.Listen(sock, backlog)
}

// checkInet refuses sockets of families other than IPv4 and IPv6.
func checkInet(sock int) error {
	switch domain, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_DOMAIN); {
	case err != nil:
		return err
	case domain != unix.AF_INET && domain != unix.AF_INET6:
		return unix.EACCES
	}
	return nil
}

// descriptorOf copies a descriptor of a thread.
func descriptorOf(tid, fd int) (int, error) {
	pidfd, err := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.9 a pidfd refers to a process
		text, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
		_, after, _ := strings.Cut(string(text), "\nTgid:")
		line, _, _ := strings.Cut(after, "\n")
		pid, aerr := strconv.Atoi(strings.TrimSpace(line))
		if err := errors.Join(rerr, aerr); err != nil {
			return -1, unix.EACCES
		}
		pidfd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// readMemory fills b with memory of a thread.
func readMemory(tid int, at uintptr, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: at, Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}
