package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Open begins a new file of the session and continues the session's chain, from
// the last line on disk. If the files end before the anchored line, or with
// another one, the chain continues from the anchor instead, so that Verify
// shows the damage ever after. Damage never keeps a session from starting.
func Open(o Options) (*Log, error) { return open(o, createFile) }

func open(o Options, create func(string) (sink, error)) (_ *Log, err error) {
	if err := o.normalize(); err != nil {
		return nil, err
	}
	if err := ensureDir(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Anchor), 0o700); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var key []byte
	if o.Paths == PathsHash {
		if key, err = loadKey(o.KeyFile); err != nil {
			return nil, err
		}
	}
	lock, err := takeLock(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	l := &Log{opts: o, create: create, lock: lock, begun: make(chan struct{})}
	last, err := l.resume()
	if err != nil {
		return nil, err
	}
	l.enc = newEncoder(o.Session, o.Paths, key, last)
	l.flusher = stopped(l.tick)
	l.anchorer = stopped(l.anchorTick)
	l.beginLocked() // nobody else has l yet
	if err = l.flush(); err != nil {
		err = fmt.Errorf("audit: %w", err)
	} else {
		go l.begin()
		if !o.AnchorLater {
			err = l.Anchored()
		}
	}
	if err != nil {
		l.anchorer.Stop()
		l.amu.Lock() // the anchorer may have started
		defer l.amu.Unlock()
		if l.cur != nil {
			l.cur.Close()
			l.cur = nil
		}
		return nil, err
	}
	return l, nil
}

// begin writes the first anchor.
func (l *Log) begin() {
	defer close(l.begun)
	l.amu.Lock()
	defer l.amu.Unlock()
	l.beginErr = l.anchorAmuLocked()
}

// stopped makes a timer that runs f when it is Reset.
func stopped(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

// takeLock keeps a second Log of the session away, whose lines would fork the
// chain. The lock ends with the process. The file names the session's latest one, as
// a hint to the next Open (latest.go).
func takeLock(o Options) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(o.Dir, "."+o.Session+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, &names.Error{Kind: names.Locked, Err: fmt.Errorf(
			"audit: session %s has an open audit log already: %w", o.Session, err)}
	}
	return f, nil
}

// resume finds where the chain ends and which files there are.
func (l *Log) resume() (mark, error) {
	a, err := readAnchor(l.opts.Anchor)
	if err != nil && !errors.Is(err, errBadAnchor) {
		return mark{}, err
	}
	l.found = a
	var list []logName
	if newest, ok := l.latest(a); ok {
		list = []logName{newest}
	} else if list, err = listNames(l.opts.Dir, l.opts.Session); err != nil {
		return mark{}, err
	}
	l.name = logName{session: l.opts.Session, start: nextStart(time.Now(), list)}
	l.names, l.firsts = make([]string, len(list)), make([]uint64, len(list))
	// From the newest, whose header tells from where on lines are kept. The
	// older ones are asked only if they are to be pruned: a session's name may
	// have been used ten thousand times.
	for i, n := range slices.Backward(list) {
		l.names[i] = n.String()
		if l.keptFrom > 0 && l.opts.Keep == 0 {
			continue
		}
		line, err := firstLine(filepath.Join(l.opts.Dir, l.names[i]))
		if err != nil {
			return mark{}, fmt.Errorf("audit: %w", err)
		}
		if e, err := decode(line); err == nil {
			l.firsts[i] = e.Seq
			l.keptFrom = max(l.keptFrom, e.KeptFrom)
		}
	}
	l.keptFrom = max(l.keptFrom, 1)
	last, err := l.lastMark()
	if err != nil {
		return mark{}, err
	}
	if a == nil || a.Session != l.opts.Session {
		return last, nil
	}
	anchored, err := a.mark()
	if err != nil {
		return mark{}, err
	}
	if anchored.seq > last.seq || anchored.seq == last.seq && anchored.hash != last.hash {
		return anchored, nil
	}
	return last, nil
}

// lastMark is the last line on disk that reads as one; the zero mark if there
// is none. Its hash is not checked here: that is Verify's work.
func (l *Log) lastMark() (mark, error) {
	for _, base := range slices.Backward(l.names) {
		m, found, err := lastMark(filepath.Join(l.opts.Dir, base))
		if err != nil || found {
			return m, err
		}
	}
	return mark{}, nil
}

// lastMark is the last complete line of a file; the zero mark if that cannot be
// read as one, and not found if there is none.
func lastMark(path string) (m mark, found bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return mark{}, false, fmt.Errorf("audit: %w", err)
	}
	defer f.Close()
	line, _, err := lastLine(f)
	if err != nil && !errors.Is(err, errLong) {
		return mark{}, false, fmt.Errorf("audit: %w", err)
	}
	if line == nil {
		return mark{}, false, nil // empty, or torn in its first line
	}
	s, err := parseSeal(line)
	if err != nil {
		return mark{}, true, nil
	}
	return mark{seq: s.seq, hash: s.hash}, true, nil
}
