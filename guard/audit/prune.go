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

// The bounds of all sessions' files together, where nobody asks for others.
const (
	DefaultMaxTotal = 2 << 30
	DefaultMaxAge   = 90 * 24 * time.Hour
)

// PruneOptions say which files Prune deletes.
type PruneOptions struct {
	Dir string
	// Anchor is the path of a session's anchor.
	Anchor func(session string) (string, error)
	// MaxAge is how long ago the last record of a file may have been written,
	// MaxTotal how many bytes all files may have together. 0 is no bound.
	MaxAge   time.Duration
	MaxTotal int64
	// DryRun only tells what would be deleted.
	DryRun bool
}

// PrunedFile is a file that Prune deleted.
type PrunedFile struct {
	Session string    `json:"session"`
	File    string    `json:"file"`
	Bytes   int64     `json:"bytes"`
	Time    time.Time `json:"time"` // of its last record
}

// PruneReport is what Prune did.
type PruneReport struct {
	Files []PrunedFile `json:"files"`
	Bytes int64        `json:"bytes"` // of those
	Left  int64        `json:"left"`  // bytes of all other files
	Live  int64        `json:"live"`  // of those, of sessions that are live
}

// Prune deletes files of sessions that have ended, the oldest of a session first:
// those older than MaxAge, and, while all are larger than MaxTotal, those of the
// session that has most. So no session drives out what others left. What live
// sessions write counts for half of MaxTotal at most, and is never deleted. Each
// session's anchor says up to which record it was pruned, and Verify tells.
func Prune(o PruneOptions) (PruneReport, error) {
	r := PruneReport{Files: []PrunedFile{}}
	sessions, err := sessionsIn(o.Dir)
	if err != nil {
		return r, err
	}
	choose(sessions, o, time.Now())
	var errs []error
	for _, s := range sessions {
		if s.chosen > 0 && !o.DryRun {
			if err := s.prune(o); err != nil {
				errs = append(errs, err)
				s.chosen = 0
			}
		}
		r.Files = append(r.Files, s.files[:s.chosen]...)
		r.Bytes += bytesOf(s.files[:s.chosen])
		r.Left += bytesOf(s.files[s.chosen:])
		if s.live {
			r.Live += bytesOf(s.files)
		}
	}
	return r, errors.Join(errs...)
}

func bytesOf(files []PrunedFile) (n int64) {
	for _, f := range files {
		n += f.Bytes
	}
	return n
}

// sessionFiles is what Prune knows of a session.
type sessionFiles struct {
	name   string
	live   bool
	files  []PrunedFile // from the oldest
	chosen int          // how many of the oldest are to be deleted
	left   int64        // bytes of the others
}

// sessionsIn finds the sessions that have files, in the order of the files.
func sessionsIn(dir string) (out []*sessionFiles, err error) {
	list, err := listNames(dir, "")
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known := map[string]*sessionFiles{}
	for _, e := range list {
		s := known[e.session]
		if s == nil {
			s = &sessionFiles{name: e.session}
			lock, err := takeLock(Options{Dir: dir, Session: e.session}) // that of a live session is taken
			switch {
			case errors.Is(err, names.Locked):
				s.live = true
			case err != nil:
				return nil, err
			default:
				lock.Close() // there may be more sessions than descriptors; prune takes it again
			}
			known[e.session] = s
			out = append(out, s)
		}
		info, err := os.Lstat(filepath.Join(dir, e.base()))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		s.files = append(s.files, PrunedFile{Session: e.session, File: e.base(), Bytes: info.Size(), Time: info.ModTime()})
		s.left += info.Size()
	}
	return out, nil
}

// choose chooses the files that are to be deleted.
func choose(sessions []*sessionFiles, o PruneOptions, now time.Time) {
	var live, ended int64
	for _, s := range sessions {
		for o.MaxAge > 0 && s.more() && now.Sub(s.files[s.chosen].Time) > o.MaxAge {
			s.choose()
		}
		if s.live {
			live += s.left
		} else {
			ended += s.left
		}
	}
	for o.MaxTotal > 0 && min(live, o.MaxTotal/2)+ended > o.MaxTotal {
		var largest *sessionFiles
		for _, s := range sessions {
			if s.more() && (largest == nil || s.left > largest.left) {
				largest = s
			}
		}
		if largest == nil {
			return
		}
		ended -= largest.choose()
	}
}

// more reports whether a file of the session may go.
func (s *sessionFiles) more() bool { return !s.live && s.chosen < len(s.files) }

func (s *sessionFiles) choose() int64 {
	n := s.files[s.chosen].Bytes
	s.chosen++
	s.left -= n
	return n
}

// prune deletes what was chosen. The anchor says so first: after a crash in between,
// records are there that may be missing.
func (s *sessionFiles) prune(o PruneOptions) error {
	lock, err := takeLock(Options{Dir: o.Dir, Session: s.name}) // keeps it from beginning meanwhile
	if err != nil {
		return err
	}
	defer lock.Close()
	path, err := o.Anchor(s.name)
	if err != nil {
		return err
	}
	a, err := readAnchor(path)
	if err != nil && !errors.Is(err, errBadAnchor) {
		return err
	}
	if a != nil && a.Session == s.name {
		if err := s.note(o.Dir, a); err != nil {
			return err
		}
		if err := writeAnchor(path, *a); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	for _, f := range s.files[:s.chosen] {
		plain := strings.TrimSuffix(f.File, compressedSuffix)
		for _, base := range []string{plain, plain + compressedSuffix} {
			if err := os.Remove(filepath.Join(o.Dir, base)); err != nil && !gone(err) {
				return fmt.Errorf("audit: %w", err)
			}
		}
	}
	return nil
}

// note sets from which record on an anchor's session is kept.
func (s *sessionFiles) note(dir string, a *anchor) error {
	if s.chosen < len(s.files) {
		line, err := firstLine(filepath.Join(dir, s.files[s.chosen].File))
		if err != nil {
			return err
		}
		if e, err := decode(line); err == nil {
			a.KeptFrom = max(a.KeptFrom, e.Seq)
		}
		return nil // a file without a readable header is damage, which Verify reports
	}
	// Nothing is left: the chain goes on from the last record all the same.
	var paths []string
	for _, f := range s.files {
		paths = append(paths, filepath.Join(dir, f.File))
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

// Pruning is done by the sessions themselves, beside their work: when one begins, and
// each time it has filled maintainFiles files, but not more often than maintainDelay
// in one directory, because every file in it is looked at.
const (
	maintainFiles = 32
	maintainDelay = 10 * time.Minute
	// maintainCompressed bounds how many files of earlier runs are compressed at a time.
	maintainCompressed = 16
)

// stampName is a file in the directory whose time is that of the last maintenance.
const stampName = ".pruned"

// maintain compresses what earlier runs of the session left, and prunes.
func (k *keeper) maintain() {
	dir := k.l.opts.Dir
	stamp := filepath.Join(dir, stampName)
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()).Abs() < maintainDelay || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.WriteFile(stamp, nil, 0o600); err != nil {
		return // a full disk: those who prune find it again
	}
	k.compressLeft()
	o := k.l.opts
	if o.AnchorOf == nil || o.MaxAge == 0 && o.MaxTotal == 0 {
		return
	}
	r, _ := Prune(PruneOptions{Dir: dir, Anchor: o.AnchorOf, MaxAge: o.MaxAge, MaxTotal: o.MaxTotal}) // what failed is tried again
	if o.Pruned == nil {
		return
	}
	for _, f := range r.Files {
		o.Pruned(filepath.Join(dir, f.File))
	}
}

// compressLeft compresses full files that a crash left as they were, and removes those
// that have a compressed copy.
func (k *keeper) compressLeft() {
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
