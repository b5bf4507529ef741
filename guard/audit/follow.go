package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Follow looks at the files it knows every followDelay, and at the directory when that
// has changed. Some network file systems do not tell, and then every listDelay.
const (
	followDelay = 250 * time.Millisecond
	listDelay   = 2 * time.Second
)

// Follow calls fn for the records of a session (all sessions if it is "") that
// the filter selects, as they are written, until ctx ends; then it returns nil.
// It begins with what is written from now on, or, if f.Since is set, with the
// records since then. It goes on across rotation and into sessions that begin
// later. Lines that are no records are skipped; a file pruned before Follow
// opened it shows as a gap in Seq. An error of fn ends Follow and is returned.
func Follow(ctx context.Context, dir, session string, f Filter, fn func(Entry) error) error {
	return follow(ctx, dir, session, f, fn, func() {})
}

// follow calls ready when it knows where to begin.
func follow(ctx context.Context, dir, session string, f Filter, fn func(Entry) error, ready func()) error {
	if err := f.check(); err != nil {
		return err
	}
	t := &follower{dir: dir, session: session, filter: f, fn: fn, files: map[logName]*followed{}}
	defer t.close()
	if f.Since.IsZero() {
		if err := t.skip(); err != nil {
			return err
		}
	}
	ready()
	for {
		if err := t.scan(ctx); err != nil {
			return err
		}
		if sleep(ctx, nil, followDelay) != nil {
			return nil
		}
	}
}

// followed is how far a file was read. Its descriptor stays open until the
// session has gone on to another file, so that pruning takes nothing away.
type followed struct {
	file *logReader // nil: read to its end, or not to be read
	pos  int64
}

type follower struct {
	dir, session string
	filter       Filter
	fn           func(Entry) error
	files        map[logName]*followed
	list         []logEntry // as it was last read
	changed      time.Time  // the directory's time then
	listed       time.Time
}

func (t *follower) close() {
	for _, f := range t.files {
		if f.file != nil {
			f.file.Close()
		}
	}
}

func (t *follower) open(n logEntry) (*followed, error) {
	f, err := openFile(filepath.Join(t.dir, n.base()))
	if gone(err) {
		return &followed{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return &followed{file: f}, nil
}

// skip moves to the end of what there is.
func (t *follower) skip() error {
	list, err := listNames(t.dir, t.session)
	if err != nil {
		return err
	}
	for _, n := range list {
		f := &followed{}
		t.files[n.logName] = f
		if n.sealed {
			continue // it has its end
		}
		if f, err = t.open(n); err != nil {
			return err
		}
		t.files[n.logName] = f
		if f.file == nil || f.file.plain == nil {
			f.finish()
			continue
		}
		if _, f.pos, err = lastLine(f.file.plain); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// scan delivers what is new. A file is finished when a later one of its session
// was listed before it was read to the end, because a Log writes nothing to a
// file after it created the next.
func (t *follower) scan(ctx context.Context) error {
	list, err := t.names()
	if err != nil {
		return err
	}
	newest := map[string]logName{}
	there := map[logName]bool{}
	for _, n := range list {
		newest[n.session] = n.logName
		there[n.logName] = true
		if t.files[n.logName] == nil {
			if t.files[n.logName], err = t.open(n); err != nil {
				return err
			}
		}
	}
	// Files pruned since the last scan are read to their end, too, and first.
	for _, n := range t.pruned(there) {
		if err := t.drain(ctx, t.files[n]); err != nil {
			return err
		}
		t.files[n].finish()
		delete(t.files, n)
	}
	for _, n := range list {
		f := t.files[n.logName]
		if err := t.drain(ctx, f); err != nil {
			return err
		}
		if newest[n.session] != n.logName {
			f.finish()
		}
	}
	return nil
}

// names lists the directory where it may have changed.
func (t *follower) names() ([]logEntry, error) {
	info, err := os.Stat(t.dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if info.ModTime().Equal(t.changed) && time.Since(t.listed) < listDelay {
		return t.list, nil
	}
	t.changed, t.listed = info.ModTime(), time.Now()
	t.list, err = listNames(t.dir, t.session)
	return t.list, err
}

func (t *follower) pruned(there map[logName]bool) []logName {
	var list []logName
	for n := range t.files {
		if !there[n] {
			list = append(list, n)
		}
	}
	sortNames(list)
	return list
}

func (f *followed) finish() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// drain delivers the complete lines after f.pos.
func (t *follower) drain(ctx context.Context, f *followed) error {
	if f.file == nil {
		return nil
	}
	start := f.pos
	in := io.Reader(f.file)
	if f.file.plain != nil {
		if info, err := f.file.plain.Stat(); err == nil && info.Size() <= start {
			return nil
		}
		in = io.NewSectionReader(f.file.plain, start, 1<<62)
	} else {
		defer f.finish() // it has its end
	}
	r := newLineReader(in)
	for ctx.Err() == nil {
		line, err := r.next()
		f.pos = start + r.pos
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errTorn), errors.Is(err, errDamaged):
			return nil // the rest comes later
		case errors.Is(err, errLong):
			continue
		case err != nil:
			return fmt.Errorf("audit: %w", err)
		}
		e, err := decode(line)
		if err != nil || !t.filter.match(&e) {
			continue
		}
		if err := t.fn(e); err != nil {
			return err
		}
	}
	return nil
}
