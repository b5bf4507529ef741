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

// Bounds of the search for holders. The search only improves an error message, so it may
// be incomplete. Counts bound it, and not a time in all or for each process, which a busy
// machine would exceed.
const (
	maxHolders = 8      // named in the message
	maxFDs     = 10_000 // looked at in one process
	maxSilent  = 4      // processes with a file that does not answer
	mostTicks  = 50     // ticks without an answer; a process that gets no processor gets no ticks either
)

// Holders describes, best effort, the processes that keep a detached mount alive, such as
// "sleep (pid 12, working directory)" or "sh (pid 13, a copy of the mount)". It skips a process
// with a file in /proc that takes longer than limit: a page or the working directory of that
// process may be on a file system that does not answer.
func Holders(in Info, limit time.Duration) []string {
	return search(in, limit, keptBy)
}

// search is Holders; use calls looked after each file that it looks at. The search ends when
// maxSilent processes were skipped, because a thread still waits for each of them.
func search(in Info, limit time.Duration, use func(proc string, in Info, looked func()) string) []string {
	silent := 0
	bounded := func(proc string, in Info) string {
		by, isSilent := within(limit, func(looked func()) string { return use(proc, in, looked) })
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

// within returns the result of look. isSilent is true if look neither returned nor called looked
// for as long as limit.
func within(limit time.Duration, look func(looked func()) string) (by string, isSilent bool) {
	var looks atomic.Int64
	result := make(chan string, 1)
	go func() { result <- look(func() { looks.Add(1) }) }()
	ticker := time.NewTicker(limit / mostTicks)
	defer ticker.Stop()
	for ticks, seen := 0, int64(0); ticks < mostTicks; {
		select {
		case by := <-result:
			return by, false
		case <-ticker.C:
			if ticks++; looks.Load() != seen {
				ticks, seen = 0, looks.Load()
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
	return collect(eachHolder(in, useBy), func() bool { return false })
}

// eachHolder yields descriptions of the mounts inside a mount, and of each process: "" if use says
// that the process does not use the mount.
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

// uses has the links in a process's directory in /proc that lead to files that it uses.
var uses = map[string]string{"cwd": "working directory", "root": "root directory", "exe": "running program"}

// useBy returns how a process uses a file at or below the mount's point, or "". proc is the process's
// directory in /proc. useBy reads links and follows none: following one would ask the mount's
// daemon.
func useBy(proc string, in Info) string {
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

// keptBy returns how a process keeps a detached mount alive, or "". The texts of links no
// longer show the mount. keptBy compares the mount's ID. For mapped files, and for copies of
// the mount in another namespace, which have another ID, it compares the device. Opening a link
// with O_PATH sends no request to a FUSE daemon.
func keptBy(proc string, in Info, looked func()) string {
	fds, _ := filepath.Glob(proc + "/fdinfo/*")
	for _, fd := range fds[:min(len(fds), maxFDs)] {
		if mountOf(fd) == in.ID {
			return "an open file"
		}
		looked()
	}
	for link, use := range uses {
		looked()
		if fd, err := unix.Open(filepath.Join(proc, link), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			id := mountOf(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
			_ = unix.Close(fd)
			if id == in.ID {
				return use
			}
		}
	}
	switch {
	case hasDevice(proc+"/maps", 3, 16, in.Dev, looked):
		return "a mapped file"
	case hasDevice(proc+"/mountinfo", 2, 10, in.Dev, looked):
		return "a copy of the mount"
	}
	return ""
}

// mountOf returns the ID of the mount on which a descriptor lies, by its fdinfo (proc(5)), or
// 0.
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

// hasDevice reports whether a line of a file of /proc has the device dev in its field: maps
// has the two numbers in base 16, mountinfo in base 10. It calls looked after each line.
func hasDevice(file string, field, base int, dev string, looked func()) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		looked()
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
