package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// connectionsDir is where the kernel shows the FUSE connections (fusectl).
const connectionsDir = "/sys/fs/fuse/connections"

// lookEvery is the interval between looks at the connections. A connection counts as stuck if, for
// the time watchdog.stuck, every look sees the same number of waiting requests, and the server
// reads no request in the last three quarters of this time.
const lookEvery = 250 * time.Millisecond

// watchdog aborts FUSE connections of the suite's processes that leave a request
// waiting. A process that waits for the answer to such a request cannot be killed, even if it is
// the process that should answer.
type watchdog struct {
	procs       *processes
	stuck       time.Duration // see lookEvery
	log         io.Writer
	connections string            // connectionsDir, or another mount of fusectl
	release     func()            // unmounts connections, if the watchdog has mounted it
	old         map[string]uint64 // the inodes of connections that are not the suite's, by number
	done        chan struct{}
	ended       chan struct{}

	mu       sync.Mutex // guards the field below
	problems []string
}

// waiting holds the number of requests that a connection leaves waiting, and since when the
// connection has made no progress.
type waiting struct {
	inode    uint64 // see watchdog.inode
	requests string
	readers  string // see watchdog.readers; "" before the first look at them
	since    time.Time
}

// newWatchdog starts a watchdog; stop ends it. Connections that are there already are
// not the suite's.
func newWatchdog(procs *processes, stuck time.Duration, log io.Writer) *watchdog {
	d := &watchdog{procs: procs, stuck: stuck, log: log, old: map[string]uint64{}, done: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if d.connections, d.release, err = findConnections(); err != nil {
		fmt.Fprintf(log, "suite: no watchdog: a test that hangs in a FUSE mount of its own cannot be ended: %v\n", err)
	}
	for _, id := range d.list() {
		d.old[id] = d.inode(id)
	}
	go d.watch()
	return d
}

// findConnections returns the directory that shows the connections. If fusectl is not mounted,
// as in containers, root mounts it at no path, and reaches it by a descriptor.
func findConnections() (dir string, release func(), err error) {
	const fuseCtlMagic = 0x65735543
	var st unix.Statfs_t
	if unix.Statfs(connectionsDir, &st) == nil && int64(st.Type) == fuseCtlMagic {
		return connectionsDir, func() {}, nil
	}
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", func() {}, fmt.Errorf("fusectl is not mounted at %s: %w", connectionsDir, err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", func() {}, fmt.Errorf("create fusectl: %w", err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", func() {}, fmt.Errorf("mount fusectl: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/.", mnt), func() { _ = unix.Close(mnt) }, nil
}

// list returns the numbers of the connections.
func (d *watchdog) list() (ids []string) {
	if d.connections == "" {
		return nil
	}
	entries, _ := os.ReadDir(d.connections) // none, if it cannot be read
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

// inode returns the inode number of a connection's directory. The kernel does not use an inode
// number again: a later connection with the same connection number has another inode number. inode
// returns 0 if the connection has ended.
func (d *watchdog) inode(id string) uint64 {
	var st unix.Stat_t
	if d.connections == "" || unix.Stat(filepath.Join(d.connections, id), &st) != nil {
		return 0
	}
	return st.Ino
}

// isOld reports whether a connection was there before the suite began.
func (d *watchdog) isOld(id string) bool {
	ino, ok := d.old[id]
	return ok && ino == d.inode(id)
}

func (d *watchdog) watch() {
	defer close(d.ended)
	seen := map[string]waiting{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		d.look(seen)
		select {
		case <-tick.C:
		case <-d.done:
			return
		}
	}
}

// look notes the number of waiting requests of each connection. It aborts a connection of the suite
// that is stuck (see lookEvery).
func (d *watchdog) look(seen map[string]waiting) {
	now := time.Now()
	here := map[string]bool{}
	for _, id := range d.list() {
		if d.isOld(id) {
			continue
		}
		here[id] = true
		inode := d.inode(id)
		text, err := os.ReadFile(filepath.Join(d.connections, id, "waiting"))
		if err != nil || len(text) == 0 {
			delete(seen, id) // the connection has ended, perhaps just now, or is another user's
			continue
		}
		requests := strings.TrimSpace(string(text))
		w := seen[id]
		if inode != w.inode || requests != w.requests || requests == "0" {
			seen[id] = waiting{inode: inode, requests: requests, since: now}
			continue
		}
		if now.Sub(w.since) < d.stuck/4 {
			continue // most requests are answered soon
		}
		if readers := d.readers(id); w.readers == "" {
			w.readers = readers
		} else if readers != w.readers { // the server is busy, and answers
			w = waiting{inode: inode, requests: requests, since: now}
		}
		seen[id] = w
		if now.Sub(w.since) < d.stuck {
			continue
		}
		seen[id] = waiting{inode: inode, requests: requests, since: now}
		if owner, ok := d.owner(id); ok {
			d.abort(id, requests, owner)
		}
	}
	for id := range seen {
		if !here[id] {
			delete(seen, id) // the kernel may use the number again
		}
	}
}

// owner describes a connection if it belongs to the suite: one of the suite's processes serves
// it, or sees its mount. The number of a connection is the minor device number of its mount.
func (d *watchdog) owner(id string) (description string, ours bool) {
	for _, pid := range descendants(os.Getpid()) {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		if table, err := os.ReadFile(filepath.Join(dir, "mountinfo")); err == nil {
			for line := range strings.Lines(string(table)) {
				if f := strings.Fields(line); len(f) > 4 && f[2] == "0:"+id {
					return "mounted at " + f[4], true
				}
			}
		}
	}
	if pids := servers(id); len(pids) > 0 { // a mount that is detached is in no table
		return "mounted nowhere, served by process " + strconv.Itoa(pids[0]), true
	}
	return "", false
}

// servers returns the suite's processes that have a connection's device open. It finds none
// on kernels before 6.14, whose fdinfo does not name the connection.
func servers(id string) (pids []int) {
	for _, pid := range descendants(os.Getpid()) {
		infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		for _, info := range infos {
			text, err := os.ReadFile(info)
			if err == nil && strings.Contains(string(text), "fuse_connection:\t"+id+"\n") {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// readers describes the progress of a connection's servers: the threads that wait for the next
// request, and how often each has waited. The text stays the same as long as the servers read
// no request. It is just "unknown" if no such thread is found.
func (d *watchdog) readers(id string) string {
	var b strings.Builder
	b.WriteString("unknown")
	for _, pid := range servers(id) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			wchan, _ := os.ReadFile(filepath.Join(task, "wchan"))
			if !strings.HasPrefix(string(wchan), "fuse_dev") {
				continue
			}
			status, _ := os.ReadFile(filepath.Join(task, "status"))
			_, count, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
			count, _, _ = strings.Cut(count, "\n")
			fmt.Fprintf(&b, " %s:%s", filepath.Base(task), strings.TrimSpace(count))
		}
	}
	return b.String()
}

// abort ends a connection: every request that waits in it fails.
func (d *watchdog) abort(id, requests, owner string) {
	problem := fmt.Sprintf("FUSE connection %s (%s) left %s requests waiting for %v: aborted", id, owner, requests, d.stuck)
	if err := os.WriteFile(filepath.Join(d.connections, id, "abort"), []byte("1"), 0); err != nil {
		problem += fmt.Sprintf(", which failed: %v", err)
	}
	problem += "\n" + d.waiters()
	fmt.Fprintln(d.log, "suite: "+problem)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, problem)
}

// waiters describes the suite's threads that wait in the kernel: uninterruptibly, or for FUSE.
func (d *watchdog) waiters() string {
	var b strings.Builder
	for _, pid := range descendants(os.Getpid()) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			stat, _ := os.ReadFile(filepath.Join(task, "stat"))
			wchan, _ := os.ReadFile(filepath.Join(task, "wchan"))
			if !strings.Contains(string(stat), ") D ") && !strings.Contains(string(wchan), "request_wait") && !strings.Contains(string(wchan), "fuse") {
				continue
			}
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			fmt.Fprintf(&b, "  process %d, thread %s waits in %s: %q\n", pid, filepath.Base(task), wchan, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return b.String()
}

// kill ends a job that has taken too long. It aborts the suite's FUSE connections first, because a
// process that waits for an answer to a FUSE request cannot be killed.
func (d *watchdog) kill(name string, pid int, limit time.Duration) {
	d.mu.Lock()
	d.problems = append(d.problems, fmt.Sprintf("the %s packages took longer than %v: killed", name, limit))
	d.mu.Unlock()
	fmt.Fprintf(d.log, "suite: the %s packages take longer than %v: killing them\n", name, limit)
	pids := append(descendants(pid), pid)
	for _, id := range d.list() {
		if owner, ok := d.owner(id); ok && !d.isOld(id) {
			d.abort(id, "some", owner)
		}
	}
	for _, p := range pids {
		_ = unix.Kill(p, unix.SIGKILL)
	}
}

// stop ends the watchdog and returns the problems that it found.
func (d *watchdog) stop() []string {
	close(d.done)
	<-d.ended
	d.release()
	return d.problems
}
