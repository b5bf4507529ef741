package audit

import (
	"errors"
	"iter"
	"path/filepath"
	"strings"
	"time"
)

// ReadByTime is Read in the order of time over all sessions: fn gets the oldest
// record first. Within a session the order is that of its lines, whatever the
// clock did; e.Line is valid until fn returns. It holds one file of each session
// open, and one line of each in memory.
func ReadByTime(files []string, f Filter, fn func(Entry) error) error {
	if err := f.check(); err != nil {
		return err
	}
	sources := split(files, f)
	defer func() {
		for _, s := range sources {
			s.stop()
		}
	}()
	for _, s := range sources {
		s.advance()
	}
	for {
		first := oldest(sources)
		if first == nil {
			break
		}
		if err := fn(first.entry); err != nil {
			return err
		}
		first.advance()
	}
	return joined(sources)
}

// source is the records of one session, read one at a time.
type source struct {
	next  func() (Entry, bool)
	stop  func()
	entry Entry // the next to be delivered, if more
	more  bool
	at    time.Time // of the latest entry so far: order within the session
	err   error     // of Read, once it is through
}

// split makes a source of each session's files, in the order of files.
func split(files []string, f Filter) []*source {
	bySession := map[string][]string{}
	var order []string
	for _, path := range files {
		n, _ := parseName(strings.TrimSuffix(filepath.Base(path), sealedSuffix))
		if bySession[n.session] == nil {
			order = append(order, n.session)
		}
		bySession[n.session] = append(bySession[n.session], path)
	}
	sources := make([]*source, 0, len(order))
	for _, name := range order {
		s := &source{}
		s.next, s.stop = iter.Pull(s.entries(bySession[name], f))
		sources = append(sources, s)
	}
	return sources
}

var errEnough = errors.New("nobody wants more")

func (s *source) entries(files []string, f Filter) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		err := Read(files, f, func(e Entry) error {
			if !yield(e) {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			s.err = err
		}
	}
}

func (s *source) advance() {
	if s.entry, s.more = s.next(); s.more && s.entry.Time.After(s.at) {
		s.at = s.entry.Time
	}
}

// oldest is the source whose turn it is; nil when all are through.
func oldest(sources []*source) *source {
	var first *source
	for _, s := range sources {
		if s.more && (first == nil || s.at.Before(first.at)) {
			first = s
		}
	}
	return first
}

// joined is the first error that is not damage, or all the damage together.
func joined(sources []*source) error {
	all := &DamageError{}
	for _, s := range sources {
		var damage *DamageError
		switch {
		case s.err == nil:
		case !errors.As(s.err, &damage):
			return s.err
		default:
			for _, d := range damage.List {
				all.add(d)
			}
			all.More += damage.More
		}
	}
	if len(all.List) == 0 {
		return nil
	}
	return all
}
