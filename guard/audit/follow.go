package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// followDelay is the interval at which Follow reads the directory if its caller passes no
	// channel of changes.
	followDelay = 250 * time.Millisecond
	// listDelay is how long a listing is reused if the directory's time of change stays the same.
	// Some network file systems do not update that time. A listing is not reused if the directory
	// had changed less than listDelay before the listing. The clock of a file system has coarse
	// ticks, so a change after the listing may leave the directory's time the same.
	listDelay = 2 * time.Second
)

// Follow calls fn for the records that the filter selects, as they are written. The records are
// those of a session, or of all sessions if session is "". When ctx ends, Follow returns nil.
// If f.After is not nil, Follow begins with the first record that f.After does not pass over. Else,
// if f.Since is set, it begins with the records since then. Else it begins with the next record
// that is written. It goes on across rotation and into sessions that begin later. Lines that are no
// records are skipped; a file pruned before Follow opened it shows as a gap in Seq. An error of fn
// ends Follow and is returned.
//
// Follow looks into the directory when changes has a token, or four times a second if changes is
// nil. The caller must send a token after each change of the directory's names or of the files'
// contents. One token may stand for several changes.
func Follow(ctx context.Context, dir, session string, f Filter, changes <-chan struct{}, fn func(Entry) error) error {
	return follow(ctx, dir, session, f, changes, fn, func() {})
}

// follow implements Follow. It calls ready once: from then on, follow delivers each new record that
// the filter selects.
func follow(ctx context.Context, dir, session string, f Filter, changes <-chan struct{}, fn func(Entry) error, ready func()) error {
	if err := f.check(); err != nil {
		return err
	}
	t := &follower{dir: dir, session: session}
	defer t.close()
	switch {
	case f.After != nil:
		if err := t.skipDone(&f); err != nil {
			return err
		}
	case f.Since.IsZero():
		if err := t.skip(ctx); err != nil {
			return err
		}
	}
	ready()
	var every <-chan time.Time
	if changes == nil {
		every = time.Tick(followDelay)
	}
	for {
		if err := t.list(); err != nil {
			return err
		}
		err := t.read(ctx, func(line []byte) error {
			e, err := decode(line)
			if err != nil || !f.match(&e) {
				return nil
			}
			return fn(e)
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-every:
		}
	}
}

// follower is the state of one Follow.
type follower struct {
	dir, session string
	files        []*followed      // files that may still have unread lines
	known        map[logName]bool // all files of the last listing
	listed       time.Time        // time of the last listing
	changed      time.Time        // the directory's time of change, as of the last listing
}

// followed is a file that is being read. It stays open until the session has gone on to another
// file, so that no records are lost if the file is pruned.
type followed struct {
	entry  logEntry
	reader *lineReader // nil: not opened yet
	ended  bool        // nothing more is written to it
}

// list adds new files, and marks files that have ended: compressed files, and each file that is
// not the last of its session. A Log does not write to a file after it has created the next one.
func (t *follower) list() error {
	info, err := os.Stat(t.dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	settled := t.listed.Sub(t.changed) > listDelay
	if settled && info.ModTime().Equal(t.changed) && time.Since(t.listed) < listDelay {
		return nil
	}
	t.changed, t.listed = info.ModTime(), time.Now()
	list, err := listNames(t.dir, t.session)
	if err != nil {
		return err
	}
	known, newest := make(map[logName]bool, len(list)), map[string]logName{}
	for _, e := range list {
		known[e.logName], newest[e.session] = true, e.logName
		if !t.known[e.logName] {
			t.files = append(t.files, &followed{entry: e})
		}
	}
	t.known = known
	for _, f := range t.files {
		f.ended = f.entry.compressed || newest[f.entry.session] != f.entry.logName
	}
	return nil
}

// skip passes over all records that are written already.
func (t *follower) skip(ctx context.Context) error {
	if err := t.list(); err != nil {
		return err
	}
	t.dropEnded()
	return t.read(ctx, func([]byte) error { return nil })
}

// skipDone lists the files, and drops each file in which f can select nothing (f.skips). It does not
// drop the last file of a session.
func (t *follower) skipDone(f *Filter) error {
	if err := t.list(); err != nil {
		return err
	}
	next := map[string]string{} // by session: the path of the file after the one at hand
	for _, file := range slices.Backward(t.files) {
		path := filepath.Join(t.dir, file.entry.base())
		file.ended = next[file.entry.session] != "" && f.skips(path, next[file.entry.session])
		next[file.entry.session] = path
	}
	t.dropEnded()
	return nil
}

// read calls fn for each new line. It passes a torn line to fn when the line is complete.
func (t *follower) read(ctx context.Context, fn func(line []byte) error) error {
	for _, f := range t.files {
		if f.reader == nil {
			r, err := openFile(filepath.Join(t.dir, f.entry.base()))
			if gone(err) {
				f.ended = true
				continue
			}
			if err != nil {
				return fmt.Errorf("audit: %w", err)
			}
			f.reader = r
		}
		for line, err := range f.reader.lines {
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				err = fn(line)
			}
			if err != nil && !unreadable(err) {
				return err
			}
		}
	}
	t.dropEnded()
	return nil
}

// dropEnded closes the ended files, and removes them from t.files.
func (t *follower) dropEnded() {
	t.files = slices.DeleteFunc(t.files, func(f *followed) bool {
		if f.ended {
			f.close()
		}
		return f.ended
	})
}

func (t *follower) close() {
	for _, f := range t.files {
		f.close()
	}
}

func (f *followed) close() {
	if f.reader != nil {
		f.reader.Close()
	}
}
