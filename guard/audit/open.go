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
// chain. The lock ends with the process.
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
	list, err := listNames(l.opts.Dir, l.opts.Session)
	if err != nil {
		return mark{}, err
	}
	w.name = logName{session: l.opts.Session, start: nextStart(time.Now(), list)}
	// The newest header that can be read tells from where on lines are kept.
	for _, n := range slices.Backward(list) {
		line, err := firstLine(filepath.Join(l.opts.Dir, n.String()))
		if err != nil {
			return mark{}, err
		}
		if e, err := decode(line); err == nil {
			w.keptFrom = max(w.keptFrom, e.KeptFrom)
			break
		}
	}
	w.keptFrom = max(w.keptFrom, 1)
	last, err := endOf(paths(l.opts.Dir, list))
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

// endOf is the mark of the last line in files, from the oldest; the zero mark if there is
// none, or if it does not read as a record. Its hash is not checked here: that is Verify's
// work.
func endOf(paths []string) (mark, error) {
	for _, path := range slices.Backward(paths) {
		line, err := lastLine(path)
		if err != nil {
			return mark{}, err
		}
		if line == nil {
			continue // empty, or torn in its first line
		}
		s, err := parseSeal(line)
		if err != nil {
			return mark{}, nil
		}
		return s.mark, nil
	}
	return mark{}, nil
}
