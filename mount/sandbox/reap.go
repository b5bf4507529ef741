package sandbox

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nap is between two looks at what is still dying.
const nap = time.Millisecond

// rounds bounds how often killAll looks for what it has not stopped yet.
const rounds = 20

// killAll kills what find finds, which must not be able to go on making more: all
// are stopped before the first is killed. While they can, they are found, and those
// that are stopped keep what they count for their limit. Otherwise processes that
// fork as fast as they can outrun whoever kills them one by one (measured: a
// minute).
func killAll(find func() []int) {
	stopped := map[int]bool{}
	for range rounds {
		before := len(stopped)
		for _, pid := range find() {
			stopped[pid] = true
			_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended
		}
		if len(stopped) == before {
			break
		}
	}
	for _, pid := range find() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// killChildren kills and reaps every descendant of this process until there is
// none: those of a killed one become ours, because we are their subreaper.
func killChildren() {
	for {
		killAll(func() []int { return descendants(os.Getpid()) })
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
	orphans := func() []int {
		return slices.DeleteFunc(descendants(os.Getpid()), func(pid int) bool { return filters(pid) <= own })
	}
	for {
		killAll(orphans)
		left := orphans()
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // what it leaves is found in the next round
		}
		time.Sleep(nap)
	}
}

// descendants are the pids of a process's children, and of theirs.
func descendants(of int) []int {
	by := byParent()
	all := slices.Clone(by[of])
	for i := 0; i < len(all); i++ {
		all = append(all, by[all[i]]...)
	}
	return all
}

// byParent are the pids of all processes by those of their parents. They are taken
// from each process's own file: /proc/PID/task/TID/children leaves some out when
// others end meanwhile (proc(5)).
func byParent() map[int][]int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int][]int{}
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
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(f[1]); err == nil {
			all[parent] = append(all[parent], pid)
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
