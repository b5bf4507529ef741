package early

import (
	"os"
	"strconv"
	"syscall"

	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// While the start lasts, the runtime's monitor is late: package ahead says what it
// costs (Unhurried). Only root may set what is another thread's.

// calm lets the monitor be late. It is the runtime's first thread beside the main one;
// another one that was taken for it wakes up a little later than it asked for.
func calm() {
	if tids := threads(); len(tids) > 1 {
		setSlack(tids[1], ahead.MonitorSlack)
	}
}

// Hurry takes calm back, for all threads: those that the monitor has started have what
// it had.
func Hurry() {
	for _, tid := range threads() {
		if slack(tid) == ahead.MonitorSlack {
			setSlack(tid, ahead.Slack)
		}
	}
}

// threads are the names of this process's, the oldest first.
func threads() []string {
	fd, err := syscall.Open("/proc/self/task", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var tids []string
	var buf [4 << 10]byte
	for {
		n, err := syscall.ReadDirent(fd, buf[:])
		if err != nil || n <= 0 {
			return tids
		}
		_, _, tids = syscall.ParseDirent(buf[:n], -1, tids)
	}
}

func slackFile(tid string) string { return "/proc/" + tid + "/timerslack_ns" }

func slack(tid string) uintptr {
	b, err := os.ReadFile(slackFile(tid))
	if err != nil || len(b) == 0 {
		return 0
	}
	ns, _ := strconv.ParseUint(string(b[:len(b)-1]), 10, 64)
	return uintptr(ns)
}

// setSlack sets a thread's. One that cannot be set stays as it is, which costs time
// and nothing else.
func setSlack(tid string, ns uintptr) {
	fd, err := syscall.Open(slackFile(tid), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	_, _ = syscall.Write(fd, strconv.AppendUint(nil, uint64(ns), 10))
}
