package audit

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

var _ guard.Reserver = (*Log)(nil)

// keeper does, one job after the other and beside the writer, what waits for the disk.
type keeper struct {
	l        *Log
	jobs     chan job // sent by the writer alone, so that it knows whether there is a place
	anchored mark     // what the anchor file holds
	fresh    bool     // the current file's name has not been synced
	begun    chan struct{}
	beginErr error         // of the first anchor; set when begun is closed
	done     chan struct{} // closed when run has returned; err is set then
	err      error         // of the last anchor
}

// maxJobs is how many jobs wait while the disk hangs. Then files get longer.
const maxJobs = 64

// job is a place in a file to anchor, and what follows.
type job struct {
	file     sink // nil: nothing to anchor
	name     string
	mark     mark
	first    bool // the first anchor of the log
	last     bool // nothing more is written to the file, of size bytes: close it, compress it
	size     int64
	maintain bool
}

func newKeeper(l *Log) *keeper {
	return &keeper{l: l, fresh: true, jobs: make(chan job, maxJobs), begun: make(chan struct{}), done: make(chan struct{})}
}

// end waits until all jobs are done, or until the one under way is where the log was
// aborted, and returns the error of the last anchor.
func (k *keeper) end() error {
	close(k.jobs)
	<-k.done
	return k.err
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	defer close(k.done)
	for j := range k.jobs {
		select {
		case <-k.l.abort:
		default:
			k.work(j)
		}
	}
}

func (k *keeper) work(j job) {
	if j.file != nil {
		k.err = k.anchor(j)
	}
	if j.first {
		k.beginErr = k.err
		close(k.begun)
	}
	if j.last {
		k.err = errors.Join(k.err, j.file.Close())
		k.fresh = true
		if j.size >= k.l.opts.compressFrom {
			// What cannot be compressed now is by the next Open.
			if compressFile(k.l.opts.Dir, k.l.opts.Session, j.name) == nil {
				k.shrank(j)
			}
		}
	}
	if j.maintain {
		k.maintain()
	}
}

// shrank counts what a file's compression gave back.
func (k *keeper) shrank(j job) {
	info, err := os.Lstat(filepath.Join(k.l.opts.Dir, j.name+compressedSuffix))
	if err != nil {
		return
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.share.used -= j.size - info.Size()
}

// anchor syncs a file and anchors a line in it.
func (k *keeper) anchor(j job) error {
	if j.mark == k.anchored {
		return nil
	}
	syncs := []func() error{j.file.Sync}
	if k.fresh {
		syncs = append(syncs, func() error {
			_ = syncDir(k.l.opts.Dir) // what it protects from is not promised
			return nil
		})
	}
	err := writeAnchor(k.l.opts.Anchor, anchor{
		Format:   formatVersion,
		Session:  k.l.opts.Session,
		Count:    j.mark.seq,
		Hash:     hex.EncodeToString(j.mark.hash[:]),
		File:     j.name,
		Time:     time.Now().UTC(),
		KeptFrom: k.l.w.keptFrom,
	}, syncs...)
	if err == nil {
		k.anchored, k.fresh = j.mark, false
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.status.AnchorErr = err
	k.l.status.Anchored = k.anchored.seq
	return err
}
