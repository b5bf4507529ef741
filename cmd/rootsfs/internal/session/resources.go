package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

// process are the daemon's own figures. What cannot be had (there are no
// descriptors left to open /proc with) stays zero.
func process(roots []guard.Status) control.Process {
	var p control.Process
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) == nil {
		p.CPU = time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		p.FDLimit = limit.Cur
	}
	if self, err := procfs.Self(); err == nil {
		if n, err := self.FileDescriptorsLen(); err == nil {
			p.FDs = n
		}
		if st, err := self.Stat(); err == nil {
			p.Resident = int64(st.ResidentMemory())
		}
	}
	for _, r := range roots {
		p.InFlight += r.InFlight
		p.Ops += r.Ops
		p.Refused += r.Refused
		p.Read += r.BytesRead
		p.Written += r.Written
	}
	return p
}

// leastFiles is how many descriptors a session and its mount need with a few to spare:
// one that runs out of them during its start cannot even end it.
const leastFiles = 64

// enoughFiles refuses a limit of descriptors with which nothing can be served. The Go
// runtime has raised it to the hard one.
func enoughFiles() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= leastFiles {
		return nil
	}
	return &control.Error{Text: fmt.Sprintf("only %d files may be open at a time (ulimit -n), and rootsfs needs %d: raise that limit", limit.Cur, leastFiles), Class: control.System}
}

// brokered are the figures of the servers that are served.
func (s *Session) brokered() []broker.Stats {
	list := []broker.Stats{}
	for _, one := range s.broker.Sessions() {
		list = append(list, one.Stats())
	}
	return list
}

// spaces knows how much is free where the roots lie. A file system of another machine
// may not answer: so all are asked aside, one question to each at a time, and until one
// answers what it said before counts.
type spaces struct {
	mu     sync.Mutex // guards the fields below
	asking map[uint64]bool
	known  map[uint64]int64 // by epoch
}

// spacePatience is how long the answers of all file systems together are waited for.
const spacePatience = 100 * time.Millisecond

// ask asks how much is free for the owner of some roots; free has the answers.
func (sp *spaces) ask(ctx context.Context, reg *guard.Registry, roots []guard.Status) {
	var local, remote []guard.Status
	for _, r := range roots {
		switch {
		case r.State != guard.Live:
		case r.Remote:
			remote = append(remote, r)
		default:
			local = append(local, r)
		}
	}
	aside(ctx, spacePatience, func() {
		for _, r := range append(local, remote...) {
			sp.askOne(r.Epoch, func() (int64, bool) { return reg.Free(r.Grant.Root) })
		}
	})
}

// askOne asks one file system, unless a question to it is under way.
func (sp *spaces) askOne(epoch uint64, free func() (int64, bool)) {
	sp.mu.Lock()
	busy := sp.asking[epoch]
	if sp.asking == nil {
		sp.asking, sp.known = map[uint64]bool{}, map[uint64]int64{}
	}
	sp.asking[epoch] = true
	sp.mu.Unlock()
	if busy {
		return
	}
	n, ok := free()
	sp.mu.Lock()
	defer sp.mu.Unlock()
	delete(sp.asking, epoch)
	delete(sp.known, epoch)
	if ok {
		sp.known[epoch] = n
	}
}

// free returns the bytes that were free when it was last known, or ok is false.
func (sp *spaces) free(r *guard.Status) (n int64, ok bool) {
	if r.State != guard.Live {
		return 0, false
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n, ok = sp.known[r.Epoch]
	return n, ok
}

// forget drops what is known of roots that have ended.
func (sp *spaces) forget(live map[uint64]bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for epoch := range sp.known {
		if !live[epoch] {
			delete(sp.known, epoch)
		}
	}
}
