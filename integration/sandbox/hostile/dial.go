package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// dial sends a descriptor to a socket, says how many the answer came with, and then,
// unless once, when the connection ends.
func dial(path string, once bool) int {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(s, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Sendmsg(s, []byte("x"), unix.UnixRights(0), nil, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	oob := make([]byte, 64)
	n, oobn, _, _, err := unix.Recvmsg(s, make([]byte, 8), oob, 0)
	switch {
	case err != nil || n == 0:
		fmt.Println("no answer:", err)
		return 1
	case oobn > 0:
		fmt.Println("answered, with 1 descriptor")
	default:
		fmt.Println("answered, with 0 descriptors")
	}
	if once {
		return 0
	}
	if n, err := unix.Read(s, make([]byte, 8)); n > 0 {
		fmt.Println("received", n, err)
		return 1
	}
	fmt.Println("cut")
	return 0
}
