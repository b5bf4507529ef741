package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killChildren kills and reaps every child of this process until there is none:
// those of a killed one become ours, because we are their subreaper. A child
// can make more as long as it lives, but not once it is killed, so each round
// has fewer of those that were there before.
func killChildren() {
	for {
		for _, pid := range children(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		if _, err := unix.Wait4(-1, nil, unix.WALL, nil); err == unix.ECHILD {
			return
		}
	}
}

// children are the pids of a process's children, as far as /proc shows them.
func children(pid int) []int {
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil
	}
	var all []int
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}
