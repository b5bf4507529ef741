package audit

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// keeper does, one after the other and beside the writer, what waits for the disk.
type keeper struct {
	l        *Log
	anchored mark // what the anchor file holds
	fresh    bool // the current file's name has not been synced
	begun    chan struct{}
	beginErr error // of the first anchor; set when begun is closed

	mu   sync.Mutex // guards the fields below
	cond sync.Cond
	jobs []job
	over bool // there will be no more jobs
	drop bool // those that are left are not to be done

	done chan struct{} // closed when the keeper has ended; err is set then
	err  error
}

// job is a place in a file to anchor, or files to delete.
type job struct {
	file     sink // nil: nothing to anchor
	name     string
	mark     mark
	keptFrom uint64
	first    bool // the first anchor of the log
	last     bool // nothing more is written to the file, of size bytes: close it, compress it
	size     int64
	prune    []string
	maintain bool
}

func newKeeper(l *Log) *keeper {
	k := &keeper{l: l, fresh: true, begun: make(chan struct{}), done: make(chan struct{})}
	k.cond.L = &k.mu
	return k
}

// do has a job done. Of anchors in a file that wait, the last is enough.
func (k *keeper) do(j job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.jobs) - 1; n >= 0 && j.file != nil && k.jobs[n].file == j.file && !k.jobs[n].first {
		k.jobs[n] = j
		return
	}
	k.jobs = append(k.jobs, j)
	k.cond.Signal()
}

func (k *keeper) prune(names []string) {
	if len(names) > 0 {
		k.do(job{prune: names})
	}
}

// end waits until all jobs are done, or until the one under way is, and returns the
// error of the last anchor.
func (k *keeper) end(finish bool) error {
	k.mu.Lock()
	k.over, k.drop = true, !finish
	k.cond.Signal()
	k.mu.Unlock()
	<-k.done
	return k.err
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	defer close(k.done)
	for {
		k.mu.Lock()
		for len(k.jobs) == 0 && !k.over {
			k.cond.Wait()
		}
		if len(k.jobs) == 0 || k.drop {
			k.mu.Unlock()
			return
		}
		j := k.jobs[0]
		k.jobs = k.jobs[1:]
		k.mu.Unlock()
		k.work(j)
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
		if j.size >= k.l.opts.sealBytes {
			// What cannot be compressed now is by the next Open.
			if sealFile(k.l.opts.Dir, k.l.opts.Session, j.name) == nil {
				k.shrank(j)
			}
		}
	}
	for _, base := range j.prune {
		k.remove(base)
	}
	if j.maintain {
		k.maintain()
	}
}

// shrank counts what a file's compression gave back.
func (k *keeper) shrank(j job) {
	info, err := os.Lstat(filepath.Join(k.l.opts.Dir, j.name+sealedSuffix))
	if err != nil {
		return
	}
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.share.used -= j.size - info.Size()
}

// remove deletes a file that Options.Keep does not keep. What stays behind is
// deleted by the next Open.
func (k *keeper) remove(base string) {
	path := filepath.Join(k.l.opts.Dir, base)
	for _, p := range []string{path, path + sealedSuffix} {
		info, err := os.Lstat(p)
		if err != nil || os.Remove(p) != nil {
			continue
		}
		k.l.mu.Lock()
		k.l.share.used = max(0, k.l.share.used-info.Size())
		k.l.mu.Unlock()
		if k.l.opts.Pruned != nil {
			k.l.opts.Pruned(p, WhyKeep)
		}
	}
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
		KeptFrom: j.keptFrom,
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
