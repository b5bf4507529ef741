package mountpoint

import (
	"bufio"
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of the search for holders. The search only improves an error message, so it may be
// incomplete. It is bounded by counts: a busy machine would exceed a time limit for the whole
// search or for a process.
const (
	maxHolders = 8      // named in the message
	maxFDs     = 10_000 // examined in one process
	maxSilent  = 4      // processes that are skipped because one of their files does not answer
	maxTicks   = 50     // ticks without progress: while this process gets no processor time, it gets no ticks either
)

// Holders describes, best effort, the processes that keep a detached mount alive, such as
// "sleep (pid 12, working directory)" or "sh (pid 13, a copy of the mount)". It skips a process
// if reading one of the process's files in /proc takes longer than limit: a page or the working
// directory of that process may be on a file system that does not answer.
func Holders(in Info, limit time.Duration) []string {
	return search(in, limit, useOfDetached)
}

// search implements Holders. use returns how a process uses the mount, or "". It calls progress
// again and again while it examines the process, so that a process with many files is not skipped.
// The search ends when maxSilent processes were skipped, because a thread still waits for each of
// them.
func search(in Info, limit time.Duration, use func(proc string, in Info, progress func()) string) []string {
	silent := 0
	bounded := func(proc string, in Info) string {
		by, isSilent := within(limit, func(progress func()) string { return use(proc, in, progress) })
		if isSilent {
			silent++
		}
		return by
	}
	return collect(eachHolder(in, bounded), func() bool { return silent == maxSilent })
}

// collect returns the first maxHolders descriptions, and "and others" if there are more. It stops
// when done returns true.
func collect(each iter.Seq[string], done func() bool) (all []string) {
	for by := range each {
		if by != "" {
			all = append(all, by)
		}
		if len(all) > maxHolders {
			return append(all[:maxHolders], "and others")
		}
		if done() {
			break
		}
	}
	return all
}

// within returns the result of examine. isSilent is true if examine neither returned nor called
// progress for as long as limit.
func within(limit time.Duration, examine func(progress func()) string) (by string, isSilent bool) {
	var calls atomic.Int64 // of progress
	result := make(chan string, 1)
	go func() { result <- examine(func() { calls.Add(1) }) }()
	ticker := time.NewTicker(limit / maxTicks)
	defer ticker.Stop()
	for ticks, seen := 0, int64(0); ticks < maxTicks; {
		select {
		case by := <-result:
			return by, false
		case <-ticker.C:
			if ticks++; calls.Load() != seen {
				ticks, seen = 0, calls.Load()
			}
		}
	}
	return "", true
}

// holders describes, best effort, the holders that keep the mount from being unmounted:
// mounts inside it and processes with a working directory, a root directory, a program or an
// open file in it. Ordinary users see only their own processes. holders sends no request to a
// mount of rootsfs.
func holders(in Info) []string {
	return collect(eachHolder(in, useOfAttached), func() bool { return false })
}

// eachHolder yields a description of each mount directly inside a mount, and of each process that
// uses the mount. It yields "" for each process for which use returns "", so that the caller can
// end the search there, too.
func eachHolder(in Info, use func(proc string, in Info) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		mounts, _ := Mounts()
		for _, sub := range mounts {
			if sub.Parent == in.ID && sub.ID != in.ID && !yield(fmt.Sprintf("the mount at %s (%s)", names.ShellWord(sub.Point), names.ShellWord(sub.FSType))) {
				return
			}
		}
		processes, _ := os.ReadDir("/proc")
		for _, p := range processes {
			if _, err := strconv.Atoi(p.Name()); err != nil {
				continue
			}
			by := use(filepath.Join("/proc", p.Name()), in)
			if by != "" {
				by = fmt.Sprintf("%s (pid %s, %s)", processName(p.Name()), p.Name(), by)
			}
			if !yield(by) {
				return
			}
		}
	}
}

// uses are the links in a process's directory in /proc that lead to files that the process uses.
var uses = map[string]string{"cwd": "working directory", "root": "root directory", "exe": "running program"}

// useOfAttached returns how a process uses a file at or below the mount's point, or "". proc is
// the process's directory in /proc. useOfAttached reads links and follows none: following one
// would ask the mount's daemon.
func useOfAttached(proc string, in Info) string {
	links := []string{"cwd", "root", "exe"}
	if dir, err := os.Open(filepath.Join(proc, "fd")); err == nil {
		fds, _ := dir.Readdirnames(maxFDs)
		dir.Close()
		for _, fd := range fds {
			links = append(links, "fd/"+fd)
		}
	}
	for _, link := range links {
		if target, err := os.Readlink(filepath.Join(proc, link)); err == nil && names.Under(target, in.Point) {
			return cmp.Or(uses[link], "open") + " " + names.ShellWord(target)
		}
	}
	return ""
}

// useOfDetached returns how a process keeps a detached mount alive, or "". The texts of links in
// /proc do not name a detached mount, so useOfDetached compares the mount's ID. For mapped files,
// and for copies of the mount in another namespace, which have another ID, it compares the device.
// Opening a link with O_PATH sends no request to a FUSE daemon.
func useOfDetached(proc string, in Info, progress func()) string {
	fds, _ := filepath.Glob(proc + "/fdinfo/*")
	for _, fd := range fds[:min(len(fds), maxFDs)] {
		if mountOf(fd) == in.ID {
			return "an open file"
		}
		progress()
	}
	for link, use := range uses {
		progress()
		if fd, err := unix.Open(filepath.Join(proc, link), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			id := mountOf(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
			_ = unix.Close(fd)
			if id == in.ID {
				return use
			}
		}
	}
	switch {
	case hasDevice(proc+"/maps", 3, 16, in.Dev, progress):
		return "a mapped file"
	case hasDevice(proc+"/mountinfo", 2, 10, in.Dev, progress):
		return "a copy of the mount"
	}
	return ""
}

// mountOf returns the ID of the mount in which the file of a descriptor lies. fdinfo is the path of
// the descriptor's fdinfo file (proc(5)). mountOf returns 0 if it cannot read the ID.
func mountOf(fdinfo string) int {
	text, _ := os.ReadFile(fdinfo)
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(id))
			return n
		}
	}
	return 0
}

// hasDevice reports whether a line of a file of /proc has the device dev in the field with this
// index: maps has the two numbers in base 16, mountinfo in base 10. It calls progress for each
// line.
func hasDevice(file string, field, base int, dev string, progress func()) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		progress()
		if fields := strings.Fields(lines.Text()); len(fields) > field {
			major, minor, _ := strings.Cut(fields[field], ":")
			a, err1 := strconv.ParseUint(major, base, 32)
			b, err2 := strconv.ParseUint(minor, base, 32)
			if err1 == nil && err2 == nil && fmt.Sprintf("%d:%d", a, b) == dev {
				return true
			}
		}
	}
	return false
}

// processName returns the name that ps shows, quoted: a process chooses its own name.
func processName(pid string) string {
	comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	if err != nil {
		return "a process"
	}
	return names.ShellWord(strings.TrimSuffix(string(comm), "\n"))
}
