package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// userNamespace tries all ways to make a user namespace.
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
