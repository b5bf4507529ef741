package mount

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// These are calls of a program that uses the mount.
var (
	sysListen = childfs.In("mount.listen", func(path string) (fd int, err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err == nil {
				err = unix.Listen(fd, 5)
			}
			if err != nil {
				_ = unix.Close(fd)
			}
		}
		return fd, err
	})
	sysConnect = childfs.In("mount.connect", func(path string) (fd int, err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
				_ = unix.Close(fd)
			}
		}
		return fd, err
	})
	sysAccept = childfs.In("mount.accept", func(fd int) (int, error) {
		got, _, err := unix.Accept(fd)
		return got, err
	})
	sysSendDgram = childfs.In("mount.sendDgram", func(path string) error {
		var fds [2]int
		for i := range fds {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			fds[i] = fd
		}
		if err := unix.Bind(fds[0], &unix.SockaddrUnix{Name: path}); err != nil {
			return err
		}
		if err := unix.Sendto(fds[1], []byte("hello"), 0, &unix.SockaddrUnix{Name: path}); err != nil {
			return err
		}
		_, err := unix.Read(fds[0], make([]byte, 10))
		return err
	})
)

// wantSocket checks that the error of a call on a socket is one of want. Without want it must be
// nil.
func wantSocket(t *testing.T, what string, err error, want ...unix.Errno) {
	t.Helper()
	for _, w := range want {
		if err == w { //nolint:errorlint // bare errno
			return
		}
	}
	if err != nil || len(want) > 0 {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// Programs that use the mount can connect over Unix sockets that they bind in a root. The host
// cannot connect to these sockets through the source, and the programs cannot connect to the
// host's sockets through the root.
func TestSocketsInARoot(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		m := newTestMount(t, guard.ReadWrite, func(o *Options, _ *guard.Grant) { o.Level = level })
		testkit.Must(t, childfs.SysMkdir(filepath.Join(m.src, "d"), 0o755))
		second := guard.Grant{Root: "second", Dir: names.Foreign(filepath.Join(m.src, "d")), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}
		_, err := m.reg.Grant(context.Background(), second)
		testkit.Must(t, err)
		keep := func(fd int, err error) int { // closes fd before the mount ends: an open fd would keep the mount busy
			t.Helper()
			testkit.Must(t, err)
			t.Cleanup(func() { _ = childfs.SysClose(fd) })
			return fd
		}
		name := filepath.Join(m.root, "s")
		fd := keep(sysListen(name))
		client := keep(sysConnect(name))
		keep(sysAccept(fd))
		wantSocket(t, "a datagram", sysSendDgram(filepath.Join(m.root, "dgram")))
		var st unix.Stat_t
		testkit.Must(t, childfs.SysStat(name, &st))
		if st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Mode&unix.S_ISVTX != 0 {
			t.Errorf("the mode of the socket is %#o", st.Mode)
		}

		_, err = net.Dial("unix", filepath.Join(m.src, "s"))
		wantSocket(t, "a connection of the host through the source", unwrapErrno(err), unix.ECONNREFUSED)
		keep(sysListen(filepath.Join(m.root, "d", "s")))
		_, err = sysConnect(filepath.Join(filepath.Dir(m.root), "second", "s"))
		wantSocket(t, "a connection through another root of the directory", err, unix.ECONNREFUSED)

		host, err := net.Listen("unix", filepath.Join(m.src, "host"))
		testkit.Must(t, err)
		defer host.Close()
		_, err = sysConnect(filepath.Join(m.root, "host"))
		wantSocket(t, "a connection to the host's socket", err, unix.ENOENT)
		_, err = sysListen(filepath.Join(m.root, "host"))
		wantSocket(t, "a socket over the host's", err, unix.EADDRINUSE)

		_, err = sysListen(name)
		wantSocket(t, "a second socket with the same name", err, unix.EADDRINUSE)
		testkit.Must(t, childfs.SysUnlink(name))
		_, err = sysConnect(name)
		wantSocket(t, "a connection to a removed socket", err, unix.ENOENT)
		keep(sysListen(name))
		path := keep(childfs.SysOpen(name, unix.O_PATH, 0))

		_, err = m.reg.Revoke(context.Background(), "code")
		testkit.Must(t, err)
		gone := []unix.Errno{unix.ENOENT, unix.EACCES, unix.ESTALE, unix.EIO}
		_, err = sysConnect(name)
		wantSocket(t, "a connection after the revocation", err, gone...)
		_, err = sysConnect(fmt.Sprintf("/proc/self/fd/%d", path))
		wantSocket(t, "a connection through a descriptor after the revocation", err, gone...)
		if _, err := childfs.SysWrite(client, []byte("x")); err != nil {
			t.Errorf("a connection from before the revocation: %v", err) // the connection uses no file of the root
		}
		again := guard.Grant{Root: "code", Dir: names.Foreign(m.src), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}
		_, err = m.reg.Grant(context.Background(), again)
		testkit.Must(t, err)
		_, err = sysConnect(name)
		wantSocket(t, "a connection after the directory was granted again", err, unix.ECONNREFUSED)
		wantSocket(t, "the removal of a socket of an earlier lifetime", childfs.SysUnlink(name))
	})
}

// unwrapErrno returns the errno in an error of package net.
func unwrapErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Making a socket needs the right to create, as for a file.
func TestNoSocketWithoutCreate(t *testing.T) {
	m := newTestMount(t, guard.ReadOnly, nil)
	_, err := sysListen(filepath.Join(m.root, "s"))
	wantSocket(t, "a socket in a read-only root", err, unix.EROFS, unix.EACCES)
}
