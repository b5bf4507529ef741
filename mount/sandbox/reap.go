package sandbox

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nap is between two looks at what is still dying.
const nap = time.Millisecond

// killChildren kills and reaps every child of this process until there is none:
// those of a killed one become ours, because we are their subreaper. A child
// can make more as long as it lives, but not once it is killed.
func killChildren() {
	for {
		for _, pid := range children(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WALL|unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if pid <= 0 {
				break
			}
		}
		time.Sleep(nap)
	}
}

// sweep ends what a killed init at level Landlock has left: its orphans are our
// children now, and known by a filter more than we have ourselves.
func sweep() {
	own := filters(os.Getpid())
	for {
		left := 0
		for _, pid := range children(os.Getpid()) {
			if filters(pid) <= own {
				continue
			}
			left++
			_ = unix.Kill(pid, unix.SIGKILL)               // it may have ended
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // what it leaves is found in the next round
		}
		if left == 0 {
			return
		}
		time.Sleep(nap)
	}
}

// children are the pids of a process's children. They are taken from each
// process's own file: /proc/PID/task/TID/children leaves some out when others
// end meanwhile (proc(5)).
func children(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state ppid": the name may hold anything, so from its end.
		_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(parent) {
			all = append(all, pid)
		}
	}
	return all
}

// onlyChild is the one child of a process, 0 if it has none. It looks only where
// the kernel keeps it, which is enough for a process that has one child.
func onlyChild(parent int) int {
	dir := "/proc/" + strconv.Itoa(parent) + "/task"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		b, err := os.ReadFile(dir + "/" + e.Name() + "/children")
		if err != nil {
			continue
		}
		if f := strings.Fields(string(b)); len(f) > 0 {
			pid, err := strconv.Atoi(f[0])
			if err == nil {
				return pid
			}
		}
	}
	return 0
}

// filters is how many seccomp filters a process has; 0 if it has ended.
func filters(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(field(string(b), "Seccomp_filters:"))
	if err != nil {
		return 0
	}
	return n
}
