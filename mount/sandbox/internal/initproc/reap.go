package initproc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Nap is the time between two searches for processes that are still ending.
const Nap = time.Millisecond

// maxRounds bounds how often killAll searches for processes that it has not stopped yet.
const maxRounds = 20

// killAll kills the processes that find returns. It stops all of them before it kills the
// first: then none can fork any more, and the stopped ones still count for the limit of
// processes. If they were killed one by one, processes that fork as fast as they can would stay
// ahead (measured: for a minute).
func killAll(find func() []int) {
	stopped := map[int]bool{}
	for range maxRounds {
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

// End kills and reaps the processes that find returns, until find returns none. This process must
// be a subreaper, so that the children of a killed process become its own children.
func End(find func() []int) {
	for len(find()) > 0 {
		killAll(find)
		for _, pid := range find() {
			_, _ = unix.Wait4(pid, nil, unix.WALL|unix.WNOHANG, nil) // its children are found in the next round
		}
		time.Sleep(Nap)
	}
}

// Descendants returns the pids of a process's children, of their children, and so on.
func Descendants(of int) []int {
	children := childrenByParent()
	all := slices.Clone(children[of])
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// childrenByParent returns a map from the pid of each parent to the pids of its children. It reads
// /proc/PID/stat of every process, because /proc/PID/task/TID/children leaves some children out
// when others end meanwhile (proc(5)). While descriptors or memory are used up, childrenByParent
// waits: otherwise a process whose file cannot be read would be taken for ended.
func childrenByParent() map[int][]int {
	for {
		all, err := readParents()
		if Exhausted(err) == "" {
			return all
		}
		time.Sleep(Nap)
	}
}

func readParents() (map[int][]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if Exhausted(err) != "" {
			return nil, err
		}
		// "pid (name) state ppid": read from the end of the name, which may have any
		// characters.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if err != nil || len(f) < 2 {
			continue // it has ended
		}
		if parent, err := strconv.Atoi(f[1]); err == nil {
			all[parent] = append(all[parent], pid)
		}
	}
	return all, nil
}
