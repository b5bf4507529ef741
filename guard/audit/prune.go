package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
func Prune(o PruneOptions) (r PruneReport, err error) {
	r.Files = []PrunedFile{}
	list, err := listNames(o.Dir, "")
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	sessions, err := pruneable(o.Dir, list)
	if err != nil {
		return r, err
	}
	choose(sessions, o, time.Now())
	var errs []error
	for _, s := range sessions {
		if !o.DryRun {
			if err := s.prune(o); err != nil {
				errs = append(errs, err)
				s.drop = 0
			}
		}
		for i, f := range s.files {
			switch {
			case i < s.drop:
				r.Files = append(r.Files, f)
				r.Bytes += f.Bytes
			case s.live:
				r.Live += f.Bytes
				fallthrough
			default:
				r.Left += f.Bytes
			}
		}
	}
	return r, errors.Join(errs...)
}

// pruned is what Prune knows of a session.
type pruned struct {
	name  string
	live  bool
	files []PrunedFile // from the oldest
	left  int64        // bytes of those not chosen
	drop  int          // how many of the oldest are chosen
}

// pruneable finds the sessions that files are of, in the order of the files.
func pruneable(dir string, list []logEntry) (out []*pruned, err error) {
	known := map[string]*pruned{}
	for _, e := range list {
		s := known[e.session]
		if s == nil {
			s = &pruned{name: e.session}
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

// choose decides which files go.
func choose(sessions []*pruned, o PruneOptions, now time.Time) {
	var live, ended int64
	for _, s := range sessions {
		for o.MaxAge > 0 && s.more() && now.Sub(s.files[s.drop].Time) > o.MaxAge {
			s.choose()
		}
		if s.live {
			live += s.left
		} else {
			ended += s.left
		}
	}
	for o.MaxTotal > 0 && min(live, o.MaxTotal/2)+ended > o.MaxTotal {
		var largest *pruned
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
func (s *pruned) more() bool { return !s.live && s.drop < len(s.files) }

func (s *pruned) choose() int64 {
	n := s.files[s.drop].Bytes
	s.drop++
	s.left -= n
	return n
}

// prune deletes what was chosen. The anchor says so first: after a crash in between,
// records are there that may be missing.
func (s *pruned) prune(o PruneOptions) error {
	if s.drop == 0 {
		return nil
	}
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
	for _, f := range s.files[:s.drop] {
		plain := strings.TrimSuffix(f.File, sealedSuffix)
		for _, base := range []string{plain, plain + sealedSuffix} {
			if err := os.Remove(filepath.Join(o.Dir, base)); err != nil && !gone(err) {
				return fmt.Errorf("audit: %w", err)
			}
		}
	}
	return nil
}

// note sets from which record on an anchor's session is kept.
func (s *pruned) note(dir string, a *anchor) error {
	if s.drop < len(s.files) {
		line, err := firstLine(filepath.Join(dir, s.files[s.drop].File))
		if err != nil {
			return err
		}
		if e, err := decode(line); err == nil {
			a.KeptFrom = max(a.KeptFrom, e.Seq)
		}
		return nil // a file without a readable header is damage, which Verify reports
	}
	// Nothing is left: the chain goes on from the last record all the same.
	for _, f := range slices.Backward(s.files) {
		m, found, err := lastMark(filepath.Join(dir, f.File))
		if err != nil {
			return err
		}
		if found {
			if m.seq > a.Count {
				a.Count, a.Hash = m.seq, hex.EncodeToString(m.hash[:])
			}
			break
		}
	}
	a.KeptFrom = a.Count + 1
	return nil
}
