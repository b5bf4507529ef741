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
	l := &Log{
		opts: o, lock: lock, round: newRound(), room: infinite,
		wake: make(chan struct{}, 1), nudge: make(chan struct{}, 1),
		stop: make(chan struct{}), abort: make(chan struct{}), ended: make(chan struct{}),
		folds: newFolds(), sums: newSums(), budgets: budgets{}, share: newShare(&o),
	}
	w := &writer{l: l, create: create, keeper: newKeeper(l)}
	l.w = w
	last, err := w.resume()
	if err != nil {
		return nil, err
	}
	w.enc = newEncoder(o.Session, o.Paths, key, last)
	err = w.begin()
	if err == nil {
		err = w.drain()
	}
	if err != nil {
		if w.cur != nil {
			w.cur.Close()
		}
		return nil, fmt.Errorf("audit: %w", err)
	}
	w.extend()
	w.anchorFirst()
	go w.keeper.run()
	go w.run()
	if !o.AnchorLater {
		if err = l.Anchored(); err != nil {
			l.kill()
			return nil, err
		}
	}
	return l, nil
}

// kill ends the log as the end of its process would. The lock stays taken.
func (l *Log) kill() {
	close(l.abort)
	<-l.ended
	l.w.cur.Close()
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
func (w *writer) resume() (mark, error) {
	l := w.l
	a, err := readAnchor(l.opts.Anchor)
	if err != nil && !errors.Is(err, errBadAnchor) {
		return mark{}, err
	}
	w.found = a
	if a != nil && a.Session == l.opts.Session {
		w.keptFrom = a.KeptFrom
	}
	var list []logEntry
	if newest, ok := l.latest(a); ok {
		list = []logEntry{newest}
	} else if list, err = listNames(l.opts.Dir, l.opts.Session); err != nil {
		return mark{}, err
	}
	w.name = logName{session: l.opts.Session, start: nextStart(time.Now(), list)}
	w.names, w.firsts = make([]string, len(list)), make([]uint64, len(list))
	// From the newest, whose header tells from where on lines are kept. The
	// older ones are asked only if they are to be pruned: a session's name may
	// have been used ten thousand times.
	told := false
	for i, n := range slices.Backward(list) {
		w.names[i] = n.String() // with or without the suffix: see openFile
		if told && l.opts.Keep == 0 {
			continue
		}
		line, err := firstLine(filepath.Join(l.opts.Dir, w.names[i]))
		if err != nil {
			return mark{}, fmt.Errorf("audit: %w", err)
		}
		if e, err := decode(line); err == nil {
			w.firsts[i], told = e.Seq, true
			w.keptFrom = max(w.keptFrom, e.KeptFrom)
		}
	}
	w.keptFrom = max(w.keptFrom, 1)
	last, err := w.lastMark()
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
func (w *writer) lastMark() (mark, error) {
	for _, base := range slices.Backward(w.names) {
		m, found, err := lastMark(filepath.Join(w.l.opts.Dir, base))
		if err != nil || found {
			return m, err
		}
	}
	return mark{}, nil
}

// lastMark is the last complete line of a file; the zero mark if that cannot be
// read as one, and not found if there is none.
func lastMark(path string) (m mark, found bool, err error) {
	line, err := lastLineOf(path)
	if err != nil && !errors.Is(err, errLong) && !errors.Is(err, errDamaged) {
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
