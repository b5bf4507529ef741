package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The default bounds of the files of all sessions together.
const (
	DefaultMaxTotal = 2 << 30
	DefaultMaxAge   = 90 * 24 * time.Hour
)

// pruning says which files prune deletes.
type pruning struct {
	dir string
	// anchor returns the path of a session's anchor.
	anchor func(session string) (string, error)
	// maxAge bounds the age of a file's last record, and maxTotal the bytes of all files
	// together. 0 is no bound.
	maxAge   time.Duration
	maxTotal int64
}

// prune deletes files of sessions that have ended, the oldest of a session first. It
// deletes those older than maxAge. While all files together are larger than maxTotal, it
// deletes files of the ended session that has the most bytes, so that no session drives out the
// files of others. Files of live sessions are never deleted, and count for at most half of maxTotal.
// Before prune deletes files of a session, it writes to the session's anchor which record is the
// first one kept, for Verify. It returns the paths of the deleted files.
func prune(p pruning) (deleted []string, err error) {
	sessions, err := sessionsIn(p.dir)
	if err != nil {
		return nil, err
	}
	choose(sessions, p, time.Now())
	var errs []error
	for _, s := range sessions {
		if s.chosen == 0 {
			continue
		}
		if err := s.deleteChosen(p); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, f := range s.files[:s.chosen] {
			deleted = append(deleted, f.path)
		}
	}
	return deleted, errors.Join(errs...)
}

// sessionFiles are the files of one session.
type sessionFiles struct {
	name      string
	live      bool
	files     []prunable // from the oldest
	chosen    int        // how many of files, from the oldest, are to be deleted
	keptBytes int64      // bytes of the files that are not chosen
}

type prunable struct {
	path  string
	bytes int64
	time  time.Time // of its last record
}

// sessionsIn returns the sessions that have files in dir, in the order of their first files.
func sessionsIn(dir string) (out []*sessionFiles, err error) {
	list, err := listNames(dir, "")
	if err != nil {
		return nil, err
	}
	known := map[string]*sessionFiles{}
	for _, e := range list {
		s := known[e.session]
		if s == nil {
			s = &sessionFiles{name: e.session}
			lock, err := lockSession(Options{Dir: dir, Session: e.session})
			switch {
			case errors.Is(err, names.Locked):
				s.live = true
			case err != nil:
				return nil, err
			default:
				lock.Close() // there may be more sessions than descriptors; deleteChosen locks the session again
			}
			known[e.session] = s
			out = append(out, s)
		}
		path := filepath.Join(dir, e.base())
		info, err := os.Lstat(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		s.files = append(s.files, prunable{path, info.Size(), info.ModTime()})
		s.keptBytes += info.Size()
	}
	return out, nil
}

// choose chooses which files of the sessions are to be deleted.
func choose(sessions []*sessionFiles, p pruning, now time.Time) {
	var live, ended int64
	for _, s := range sessions {
		for p.maxAge > 0 && s.canChoose() && now.Sub(s.files[s.chosen].time) > p.maxAge {
			s.choose()
		}
		if s.live {
			live += s.keptBytes
		} else {
			ended += s.keptBytes
		}
	}
	for p.maxTotal > 0 && min(live, p.maxTotal/2)+ended > p.maxTotal {
		var largest *sessionFiles
		for _, s := range sessions {
			if s.canChoose() && (largest == nil || s.keptBytes > largest.keptBytes) {
				largest = s
			}
		}
		if largest == nil {
			return
		}
		ended -= largest.choose()
	}
}

// canChoose reports whether the session has another file that may be deleted.
func (s *sessionFiles) canChoose() bool { return !s.live && s.chosen < len(s.files) }

// choose chooses the session's next file, and returns its size.
func (s *sessionFiles) choose() int64 {
	n := s.files[s.chosen].bytes
	s.chosen++
	s.keptBytes -= n
	return n
}

// deleteChosen deletes the chosen files. Before that it writes to the anchor which record is
// the first one kept. So a crash in between can leave files that were to be deleted, but no
// file is missing without an explanation.
func (s *sessionFiles) deleteChosen(p pruning) error {
	lock, err := lockSession(Options{Dir: p.dir, Session: s.name}) // while it is held, the session cannot begin
	if err != nil {
		return err
	}
	defer lock.Close()
	path, err := p.anchor(s.name)
	if err != nil {
		return err
	}
	a, err := readAnchor(path)
	if err != nil && !errors.Is(err, errBadAnchor) {
		return err
	}
	if a != nil && a.Session == s.name {
		if err := s.setKeptFrom(a); err != nil {
			return err
		}
		if err := writeAnchor(path, *a); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	for _, f := range s.files[:s.chosen] {
		plain := strings.TrimSuffix(f.path, compressedSuffix)
		for _, path := range []string{plain, plain + compressedSuffix} {
			if err := os.Remove(path); err != nil && !gone(err) {
				return fmt.Errorf("audit: %w", err)
			}
		}
	}
	return nil
}

// setKeptFrom sets a.KeptFrom to the number of the first record that is kept.
func (s *sessionFiles) setKeptFrom(a *anchor) error {
	if s.chosen < len(s.files) {
		line, err := firstLine(s.files[s.chosen].path)
		if err != nil {
			return err
		}
		if e, err := decode(line); err == nil {
			a.KeptFrom = max(a.KeptFrom, e.Seq)
		}
		return nil // a file without a readable header is damage, which Verify reports
	}
	// No file is left. The anchor then names the end of the chain, so that the session's next record
	// continues the chain from there.
	var paths []string
	for _, f := range s.files {
		paths = append(paths, f.path)
	}
	last, err := endOf(paths)
	if err != nil {
		return err
	}
	if last.seq > a.Count {
		a.Count, a.Hash = last.seq, hex.EncodeToString(last.hash[:])
	}
	a.KeptFrom = a.Count + 1
	return nil
}

// A session does maintenance when it begins, and each time it has filled maintainFiles
// files. The maintenance of a directory looks at every file there, so it happens at most once per
// maintainDelay.
const (
	maintainFiles = 32
	maintainDelay = 10 * time.Minute
	// maintainCompressed bounds how many files one maintenance compresses, or removes because
	// they have a compressed copy.
	maintainCompressed = 16
)

// stampName is the name of a file in the directory. Its modification time is the time of the
// last maintenance.
const stampName = ".pruned"

// maintain compresses files of the session that were left uncompressed, and prunes the files of all
// sessions. It does nothing if the last maintenance of the directory is less than maintainDelay ago.
func (k *keeper) maintain() {
	dir := k.l.opts.Dir
	stamp := filepath.Join(dir, stampName)
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()).Abs() < maintainDelay || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.WriteFile(stamp, nil, 0o600); err != nil {
		return // the disk may be full: the next maintenance tries again
	}
	k.compressLeftovers()
	o := k.l.opts
	if o.Bounds != nil {
		o.MaxAge, o.MaxTotal = o.Bounds()
	}
	if o.AnchorOf == nil || o.MaxAge == 0 && o.MaxTotal == 0 {
		return
	}
	deleted, _ := prune(pruning{dir, o.AnchorOf, o.MaxAge, o.MaxTotal}) // the next maintenance tries again
	for _, path := range deleted {
		if o.Pruned != nil {
			o.Pruned(path)
		}
	}
}

// compressLeftovers compresses files that a crash left uncompressed, unless they are small, and
// removes those that already have a compressed copy.
func (k *keeper) compressLeftovers() {
	dir, session := k.l.opts.Dir, k.l.opts.Session
	current, _ := nameOf(k.l.Path())
	list, err := listAll(dir, session)
	if err != nil {
		return
	}
	todo := maintainCompressed
	for i, e := range list {
		if todo == 0 || compareNames(e.logName, current) >= 0 {
			return
		}
		path := filepath.Join(dir, e.base())
		switch info, err := os.Lstat(path); {
		case e.compressed || err != nil:
			continue
		case i > 0 && list[i-1].logName == e.logName:
			_ = os.Remove(path)
		case info.Size() < k.l.opts.compressFrom:
			continue
		default:
			_, _ = compressFile(dir, session, e.base())
		}
		todo--
	}
}
