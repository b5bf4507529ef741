// Package auditview reads the audit records of all the user's sessions for display. It finds the
// last records that match, counts records over time and verifies the chains of the records. In
// an Entry, invisible characters in the record's texts are escaped. Each, Trail and Verify return
// texts as they were recorded.
//
// A search keeps a bounded number of records in memory, and ends when its context ends. A search is
// not fast: it reads the records from the first on, except for files that audit.Filter excludes as
// a whole.
//
// The exported functions may be called concurrently.
package auditview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Store gives access to the records of all sessions.
type Store struct {
	Dir string // the directory of the records
	// Sessions lists the sessions that have records, by name.
	Sessions func() ([]string, error)
	// Anchor returns the path of a session's anchor.
	Anchor func(session string) (string, error)
}

const (
	// Most is how many entries one search returns at most.
	Most     = 1000
	buckets  = 60   // the most spans of a Timeline
	maxSpans = 5000 // the most spans of a spanCounter
)

// Entry is one record for display to a person. Invisible characters in its texts are escaped.
type Entry struct {
	Seq     uint64     `json:"seq"`
	Time    time.Time  `json:"time"`
	Session names.Text `json:"session"`
	Subject names.Text `json:"subject,omitempty"`
	Via     names.Text `json:"via,omitempty"`
	UID     *uint32    `json:"uid,omitempty"`
	PID     int32      `json:"pid,omitempty"`
	Op      names.Text `json:"op"`
	Root    names.Text `json:"root,omitempty"`
	Path    names.Text `json:"path,omitempty"`  // with the name of the root before it
	Path2   names.Text `json:"path2,omitempty"` // second path of a rename or link
	Verdict names.Text `json:"verdict,omitempty"`
	Kind    names.Text `json:"kind,omitempty"`
	Errno   names.Text `json:"errno,omitempty"`
	Read    int64      `json:"read,omitempty"`
	Written int64      `json:"written,omitempty"`
	Detail  names.Text `json:"detail,omitempty"`
	Count   int64      `json:"count,omitempty"` // how many equal records this one stands for; left out: one
}

// ForDisplay converts a record for display to a person.
func ForDisplay(e *audit.Entry) Entry {
	return Entry{
		Seq: e.Seq, Time: e.Time, Session: names.Text(e.Session), Subject: names.Text(e.Subject.String()), Via: names.Text(e.Via), UID: e.UID, PID: e.PID,
		Op: names.Text(e.Op), Root: names.Text(e.Root.String()), Path: pathText(e.Root, e.Name(), e.PathHash),
		Path2: path2Text(e), Verdict: names.Text(e.Verdict), Kind: names.Text(e.Kind), Errno: names.Text(e.Errno),
		Read: e.Read, Written: e.Written, Detail: names.Text(names.EscapeQuoted(e.Detail)), Count: e.Count,
	}
}

// path2Text returns the second path, "" if there is none.
func path2Text(e *audit.Entry) names.Text {
	if e.Name2() == "" && e.Path2Hash == "" {
		return ""
	}
	return pathText(cmp.Or(e.Root2, e.Root), e.Name2(), e.Path2Hash)
}

// pathText returns ROOT/NAME, or ROOT/#HASH if the log recorded a hash in place of the name, or
// ROOT if the record has neither.
func pathText(root, name, hash names.Foreign) names.Text {
	switch {
	case hash != "":
		return names.Textf("%s/#%s", root, hash)
	case name != "":
		return names.Textf("%s", root+"/"+name)
	}
	return names.Textf("%s", root)
}

// Timeline counts records in spans of the same length.
type Timeline struct {
	From    time.Time `json:"from"`
	StepMS  int64     `json:"step_ms"`
	Allowed []int     `json:"allowed"`
	Refused []int     `json:"refused"`
	Failed  []int     `json:"failed"`
}

// SearchResult is the answer to a search.
type SearchResult struct {
	Entries  []Entry  `json:"entries"` // the newest first
	Matched  int      `json:"matched"` // number of records that match; Entries has the last of them
	Timeline Timeline `json:"timeline"`
	// Complete is false if the context ended before the search did. Damaged counts lines that are
	// no records, as Store.Each does.
	Complete bool `json:"complete"`
	Damaged  int  `json:"damaged,omitempty"`
}

// Query selects the records that its Filter selects, except for the headers of files. Filter.Stop
// is ignored. Session "" selects every session. Verdict is allowed, refused or failed; "" selects
// any verdict. Limit, from 1 to Most, is how many entries Find returns at most.
type Query struct {
	audit.Filter
	Session, Verdict string
	Limit            int

	headers bool // selects also the headers of files, for Trail
}

// opHeader is the operation of a file's header.
const opHeader = "session"

// verdicts are the verdicts that a query can ask for.
var verdicts = []string{"allowed", "refused", "failed"}

// Check refuses an invalid query; the error names the field.
func (q *Query) Check() error {
	switch {
	case q.Verdict != "" && !slices.Contains(verdicts, q.Verdict):
		return &names.Error{Kind: names.Invalid, Err: errors.New("verdict: there are allowed, refused and failed")}
	case q.Limit < 1 || q.Limit > Most:
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf("limit: write a number from 1 to %d", Most)}
	}
	return nil
}

// wants reports whether a record meets the conditions of a query that audit.Filter lacks.
func (q *Query) wants(e *audit.Entry) bool {
	return (q.headers || e.Op != opHeader) && (q.Verdict == "" || e.Verdict.Raw() == q.Verdict)
}

// Each calls f for the records that q selects, the oldest first. It returns how many lines were no
// records. An incomplete last line of a file is not counted, unless a hundred lines that are no
// records came before it. Each stops at an error of f, or when ctx ends. Each then returns this
// error, and 0 lines.
func (s *Store) Each(ctx context.Context, q Query, f func(*audit.Entry) error) (damaged int, err error) {
	if err := q.Check(); err != nil {
		return 0, err
	}
	files, err := audit.Files(s.Dir, q.Session)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	q.Denied, q.Stop = q.Denied || q.Verdict == "refused", ctx.Err
	err = audit.Read(files, q.Filter, func(e audit.Entry) error {
		if !q.wants(&e) {
			return nil
		}
		return f(&e)
	})
	var damage *audit.DamageError
	if errors.As(err, &damage) {
		for _, d := range damage.List {
			if !d.Torn { // a torn line is still being written, or a crash cut it
				damaged++
			}
		}
		return damaged + damage.More, nil
	}
	return 0, err
}

// Find returns the last records that q selects, at most q.Limit, and counts all records that q
// selects.
func (s *Store) Find(ctx context.Context, q Query) (SearchResult, error) {
	out := SearchResult{Entries: []Entry{}, Complete: true}
	var ring []Entry
	count := newSpanCounter()
	var err error
	out.Damaged, err = s.Each(ctx, q, func(e *audit.Entry) error {
		if len(ring) < q.Limit {
			ring = append(ring, ForDisplay(e))
		} else {
			ring[out.Matched%q.Limit] = ForDisplay(e)
		}
		out.Matched++
		count.add(e)
		return nil
	})
	switch {
	case err != nil && errors.Is(err, ctx.Err()):
		out.Complete = false
	case err != nil:
		return SearchResult{}, err
	}
	for i := range ring {
		out.Entries = append(out.Entries, ring[(out.Matched-1-i)%len(ring)])
	}
	out.Timeline = count.timeline()
	return out, nil
}

// Verify checks the chain of one session. If session is "", it checks the chains of all sessions.
// If Sessions does not list the session, the error is names.NotExist.
func (s *Store) Verify(ctx context.Context, session string) ([]audit.Report, error) {
	list, err := s.Sessions()
	if err != nil {
		return nil, err
	}
	if session != "" {
		if !slices.Contains(list, session) {
			// The operation is OpRevoke so that the class of the error is control.NoSuch.
			return nil, &names.Error{Op: names.OpRevoke, Kind: names.NotExist, Err: fmt.Errorf("session %s left no records", names.Quote(session))}
		}
		list = []string{session}
	}
	reports := []audit.Report{}
	for _, one := range list {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		anchor, err := s.Anchor(one)
		if err != nil {
			return nil, err
		}
		r, err := audit.Verify(s.Dir, one, anchor)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// spanCounter counts records in spans of unit seconds. add makes the spans longer when there are
// more than maxSpans of them.
type spanCounter struct {
	unit int64
	n    map[int64]*[3]int // by Unix time / unit: the counts of allowed, refused and failed records
}

func newSpanCounter() *spanCounter { return &spanCounter{unit: 1, n: map[int64]*[3]int{}} }

func (c *spanCounter) add(e *audit.Entry) {
	column := 0
	switch e.Verdict {
	case "refused":
		column = 1
	case "failed":
		column = 2
	}
	c.at(e.Time.Unix() / c.unit)[column] += int(e.Times())
	for len(c.n) > maxSpans { // one call of fold may not be enough: spans can lie far apart
		c.fold()
	}
}

func (c *spanCounter) at(span int64) *[3]int {
	if c.n[span] == nil {
		c.n[span] = &[3]int{}
	}
	return c.n[span]
}

// fold makes the spans ten times as long.
func (c *spanCounter) fold() {
	old := c.n
	c.unit, c.n = 10*c.unit, map[int64]*[3]int{}
	for span, k := range old {
		to := c.at(span / 10)
		for i := range k {
			to[i] += k[i]
		}
	}
}

// timeline returns the counts in at most buckets spans.
func (c *spanCounter) timeline() Timeline {
	t := Timeline{Allowed: []int{}, Refused: []int{}, Failed: []int{}}
	if len(c.n) == 0 {
		return t
	}
	all := slices.Sorted(maps.Keys(c.n))
	first, last := all[0], all[len(all)-1]
	step := (last-first)/buckets + 1
	n := (last-first)/step + 1
	t.From, t.StepMS = time.Unix(first*c.unit, 0), step*c.unit*time.Second.Milliseconds()
	t.Allowed, t.Refused, t.Failed = make([]int, n), make([]int, n), make([]int, n)
	for span, k := range c.n {
		i := (span - first) / step
		t.Allowed[i] += k[0]
		t.Refused[i] += k[1]
		t.Failed[i] += k[2]
	}
	return t
}
