package session

import (
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

// brokered are the figures of the servers that are served.
func (s *Session) brokered() []broker.Stats {
	list := []broker.Stats{}
	for _, one := range s.broker.Sessions() {
		list = append(list, one.Stats())
	}
	return list
}

// spaces knows how much is free where the roots lie. A file system of another
// machine may not answer: it is asked aside, one question at a time, and until
// it answers what it said before counts.
type spaces struct {
	mu     sync.Mutex // guards the fields below
	asking map[uint64]bool
	known  map[uint64]int64 // by epoch; remote roots only
}

// spacePatience is how long a remote file system is waited for.
const spacePatience = 100 * time.Millisecond

// free returns the bytes that are free for the owner, or ok is false.
func (sp *spaces) free(r *guard.Status) (n int64, ok bool) {
	if r.State != guard.Live {
		return 0, false
	}
	if !r.Remote {
		return statfs(r.Grant.Resolved)
	}
	sp.ask(r.Epoch, r.Grant.Resolved)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n, ok = sp.known[r.Epoch]
	return n, ok
}

func (sp *spaces) ask(epoch uint64, path string) {
	sp.mu.Lock()
	if sp.asking[epoch] {
		sp.mu.Unlock()
		return
	}
	if sp.asking == nil {
		sp.asking, sp.known = map[uint64]bool{}, map[uint64]int64{}
	}
	sp.asking[epoch] = true
	sp.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, ok := statfs(path)
		sp.mu.Lock()
		defer sp.mu.Unlock()
		delete(sp.asking, epoch)
		delete(sp.known, epoch)
		if ok {
			sp.known[epoch] = n
		}
	}()
	select {
	case <-done:
	case <-time.After(spacePatience):
	}
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

func statfs(path string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}
