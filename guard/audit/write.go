package audit

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// flush writes everything queued. It returns the error of the write that
// failed; what was not written stays first in line.
func (l *Log) flush() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	l.out = append(l.out, l.q.chunks...)
	clear(l.q.chunks)
	l.q.chunks = l.q.chunks[:0]
	l.mu.Unlock()

	err := l.writeWmuLocked()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Err = err
	return err
}

func (l *Log) writeWmuLocked() error {
	urgent := false
	for len(l.out) > 0 {
		c := &l.out[0]
		if c.file != "" {
			if err := l.switchWmuLocked(c.file, c.prune); err != nil {
				return err
			}
			c.file = ""
		}
		if l.cur == nil {
			return ErrClosed
		}
		n, err := l.cur.Write(c.data[c.off:])
		c.off += n
		done := c.off == len(c.data)
		if !done && err == nil {
			err = errors.New("audit: short write")
		}
		l.mu.Lock()
		l.queued -= n
		l.status.Bytes += int64(n)
		if done {
			l.written = c.last
			l.q.recycle(c.data)
		}
		l.mu.Unlock()
		if !done {
			return err
		}
		urgent = urgent || c.urgent
		l.out[0] = chunk{}
		l.out = l.out[1:]
	}
	l.out = nil
	if urgent {
		l.scheduleAnchor()
	}
	return nil
}

// switchWmuLocked continues in a new file. The old one is anchored to its end
// first; the new one is created before that, so that a disk without room for it
// costs no sync at each attempt.
func (l *Log) switchWmuLocked(base string, prune []string) error {
	if err := l.noteLatest(base); err != nil {
		return err
	}
	next, err := l.create(filepath.Join(l.opts.Dir, base))
	if err != nil {
		return err
	}
	l.amu.Lock()
	defer l.amu.Unlock()
	if l.cur != nil {
		// A failure to anchor is in Status; the records are written.
		_ = l.anchorAmuLocked()
		_ = l.cur.Close() // synced just now; nothing is left to fail
	}
	l.cur, l.curName, l.fresh = next, base, true
	for _, old := range prune {
		// What stays behind is deleted by the next Open.
		path := filepath.Join(l.opts.Dir, old)
		if os.Remove(path) == nil && l.opts.Pruned != nil {
			l.opts.Pruned(path)
		}
	}
	return nil
}

func createFile(path string) (sink, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err // not a nil *os.File in a sink
	}
	return f, nil
}

// scheduleAnchor has the anchor written soon, not more often than anchorDelay.
func (l *Log) scheduleAnchor() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.anchorUp || l.closed {
		return
	}
	l.anchorUp = true
	l.anchorer.Reset(max(0, anchorDelay-time.Since(l.lastTime)))
}

// anchorTick is the anchorer.
func (l *Log) anchorTick() {
	l.mu.Lock()
	l.anchorUp = false
	l.mu.Unlock()
	l.amu.Lock()
	defer l.amu.Unlock()
	if l.cur != nil {
		_ = l.anchorAmuLocked() // in Status
	}
}

// anchorAmuLocked syncs the current file and anchors the last line written.
// Lines written meanwhile are not in the anchor, which is what it may say.
func (l *Log) anchorAmuLocked() error {
	l.mu.Lock()
	m := l.written
	l.lastTime = time.Now()
	l.mu.Unlock()
	if m == l.anchored || l.cur == nil {
		return nil
	}
	syncs := []func() error{l.cur.Sync}
	if l.fresh {
		syncs = append(syncs, func() error {
			_ = syncDir(l.opts.Dir) // what it protects from is not promised
			return nil
		})
	}
	err := writeAnchor(l.opts.Anchor, anchor{
		Format:  formatVersion,
		Session: l.opts.Session,
		Count:   m.seq,
		Hash:    hex.EncodeToString(m.hash[:]),
		File:    l.curName,
		Time:    time.Now().UTC(),
	}, syncs...)
	if err == nil {
		l.anchored, l.fresh = m, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.AnchorErr = err
	l.status.Anchored = l.anchored.seq
	return err
}
