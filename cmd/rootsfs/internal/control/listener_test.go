package control

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// starveVar is the environment variable that makes the test binary a session. The session uses up
// the resource that the variable names when a line comes on its standard input.
const starveVar = "ROOTSFS_TEST_STARVE"

// starvations use up one resource of a session each. Each lasts for the life of the process.
var starvations = map[string]func() error{
	// The user's epoll watches are used up.
	"watches": refuseWatches,
	// The process's descriptors are used up: the kernel gives out no more.
	"descriptors": func() error {
		for {
			if _, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
				return nil //nolint:nilerr // the last eventfd has been taken
			}
		}
	},
}

// refuseWatches installs a system call filter (seccomp(2)), by which epoll_ctl refuses every new
// watch with ENOSPC. The kernel does the same when the user's watches are used up.
func refuseWatches() error {
	const setModeFilter, tsync = 1, 1
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_EPOLL_CTL},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 8}, // its second argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.EPOLL_CTL_ADD},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSPC)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	runtime.KeepAlive(code)
	return nil
}

// starvedChild runs the session that uses up a resource; see starveVar.
func starvedChild(of string) int {
	d, err := Create("s")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = d.Remove() }()
	o := &fakeSession{updates: make(chan Update)}
	srv, err := d.Serve(slog.New(slog.NewTextHandler(os.Stderr, nil)), o, o.handlers()...)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer srv.Close()
	if err := d.Publish(Info{}); err != nil {
		fmt.Println(err)
		return 1
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	_, _ = in.ReadString('\n')
	if err := starvations[of](); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("starved")
	_, _ = in.ReadString('\n')
	return 0
}

// startStarved starts a session as another process, and returns when its resource is used up.
func startStarved(t *testing.T, of string) *Client {
	t.Helper()
	runtimeDir(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: exe, Args: []string{exe}, Env: append(os.Environ(), starveVar+"="+of), Stderr: os.Stderr}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the session said %q, %v", line, err)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); line != "starved\n" {
		t.Fatalf("the session said %q, %v", line, err)
	}
	all, err := List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	return Dial(all[0])
}

// A session that gets no more epoll watches, or no more descriptors, still answers the owner's
// commands, one after the other.
func TestAnswersWhileStarved(t *testing.T) {
	for of := range starvations {
		t.Run(of, func(t *testing.T) {
			c := startStarved(t, of)
			for n := range 3 * reserveFDs {
				if _, err := Revoke.Call(t.Context(), c, RevokeRequest{All: true}); err != nil {
					t.Fatalf("request %d: %v", n, err)
				}
			}
			if st, err := GetStatus.Call(t.Context(), c, None{}); err != nil || st.Session != "s" {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
}

// Many connections without a request do not keep the owner out.
func TestSilentConnectionsGo(t *testing.T) {
	for of := range starvations {
		t.Run(of, func(t *testing.T) {
			c := startStarved(t, of)
			fd, err := openPrivate(c.info.path)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			for range 4 * maxRawConns {
				silent, err := net.Dial("unix", (&Dir{fd: fd}).fdPath(socketFile))
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
			}
			if _, err := Revoke.Call(t.Context(), c, RevokeRequest{All: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A stream over a connection that is served by blocking calls ends when its client disconnects,
// and its resources are released.
func TestRawStreamEnds(t *testing.T) {
	c := startStarved(t, "watches")
	for range 3 * maxRawConns {
		conn, err := c.get(t.Context(), "POST", "/v1/watch", []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Body.Close()
	}
	if _, err := GetStatus.Call(t.Context(), c, None{}); err != nil {
		t.Error(err)
	}
}

// A deadline ends a waiting call of a raw connection, and so does closing it.
func TestRawConn(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := &rawConn{fd: pair[0], slice: abortSlice}, &rawConn{fd: pair[1]}
	defer b.Close()
	var buf [8]byte
	if _, err := b.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Read(buf[:]); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	read := make(chan error, 1)
	go func() { _, err := a.Read(buf[:]); read <- err }()
	if err := a.SetReadDeadline(time.Unix(1, 0)); err != nil { // as net/http ends a read
		t.Fatal(err)
	}
	if err := <-read; !os.IsTimeout(err) {
		t.Errorf("after the deadline: %v", err)
	}
	_ = a.SetReadDeadline(time.Time{})
	go func() { _, err := a.Read(buf[:]); read <- err }()
	_ = a.Close()
	if err := <-read; err == nil {
		t.Error("a closed connection was read")
	}
	if _, err := b.Read(buf[:]); err != io.EOF {
		t.Errorf("the other end: %v", err)
	}
}
