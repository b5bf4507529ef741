package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Audit is where the records of the sessions are.
type Audit struct {
	Dir string
	// Sessions lists those that left records, by name.
	Sessions func() ([]string, error)
	// Anchor is the path of a session's anchor.
	Anchor func(session string) (string, error)
}

const (
	maxSearches = 2                // at a time: each reads every record there is
	searchFor   = 20 * time.Second // then it answers with what it has
	mostEntries = 1000             // of one answer
	buckets     = 60               // of a timeline
	maxMinutes  = 60 * 24 * 366    // that a timeline can be made of
)

// Entry is one record for the page. Paths have everything invisible escaped.
type Entry struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Subject string    `json:"subject,omitempty"`
	Via     string    `json:"via,omitempty"`
	UID     *uint32   `json:"uid,omitempty"`
	PID     int32     `json:"pid,omitempty"`
	Op      string    `json:"op"`
	Root    string    `json:"root,omitempty"`
	Path    string    `json:"path,omitempty"`  // with the root before it
	Path2   string    `json:"path2,omitempty"` // of rename and link
	Verdict string    `json:"verdict,omitempty"`
	Kind    string    `json:"kind,omitempty"`
	Errno   string    `json:"errno,omitempty"`
	Read    int64     `json:"read,omitempty"`
	Written int64     `json:"written,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}

func shownEntry(e *audit.Entry) Entry {
	return Entry{
		Seq: e.Seq, Time: e.Time, Session: e.Session, Subject: names.Escape(e.Subject), Via: e.Via, UID: e.UID, PID: e.PID,
		Op: e.Op, Root: names.Escape(e.Root), Path: place(e.Root, e.Name(), e.PathHash),
		Path2: second(e), Verdict: e.Verdict, Kind: e.Kind, Errno: e.Errno,
		Read: e.Read, Written: e.Written, Detail: names.Escape(e.Detail),
	}
}

// second is where the second path lies, "" if there is none.
func second(e *audit.Entry) string {
	if e.Name2() == "" && e.Path2Hash == "" {
		return ""
	}
	return place(cmp.Or(e.Root2, e.Root), e.Name2(), e.Path2Hash)
}

func place(root, name, hash string) string {
	switch {
	case hash != "":
		return names.Escape(root) + "/#" + names.Escape(hash)
	case name != "":
		return names.Escape(root + "/" + name)
	}
	return names.Escape(root)
}

// Timeline counts records in spans of the same length.
type Timeline struct {
	From    time.Time `json:"from"`
	StepMS  int64     `json:"step_ms"`
	Allowed []int     `json:"allowed"`
	Refused []int     `json:"refused"`
	Failed  []int     `json:"failed"`
}

// Found is the answer to a search.
type Found struct {
	Entries  []Entry  `json:"entries"` // the newest first
	Matched  int      `json:"matched"` // of which Entries are the last
	Timeline Timeline `json:"timeline"`
	// Complete is false if the search took too long: what is there may be less
	// than what is asked for. Damaged counts lines that are no records.
	Complete bool     `json:"complete"`
	Damaged  int      `json:"damaged,omitempty"`
	Sessions []string `json:"sessions"` // that left records
}

// query is what of the records is asked for.
type query struct {
	audit.Filter
	session, verdict string
	limit            int
}

// readQuery reads a search from an address; the error names the field.
func readQuery(v url.Values) (query, error) {
	q := query{session: v.Get("session"), verdict: v.Get("verdict"), limit: mostEntries}
	q.Root, q.Op, q.Subject, q.Path = v.Get("root"), v.Get("op"), v.Get("subject"), v.Get("path")
	if q.verdict != "" && !slices.Contains([]string{"allowed", "refused", "failed"}, q.verdict) {
		return q, errors.New("verdict: there are allowed, refused and failed")
	}
	q.Denied = q.verdict == "refused"
	for field, to := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if text := v.Get(field); text != "" {
			var err error
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return q, errors.New(field + ": write a time as RFC 3339 has it, such as 2026-01-31T18:00:00Z")
			}
		}
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostEntries {
			return q, fmt.Errorf("limit: write a number from 1 to %d", mostEntries)
		}
		q.limit = n
	}
	return q, nil
}

// wants reports what the filter of the audit does not judge.
func (q *query) wants(e *audit.Entry) bool {
	return e.Op != "session" && (q.verdict == "" || e.Verdict == q.verdict)
}

var errLate = errors.New("the search took too long")

// scan calls f for the records that are asked for, the oldest first.
func (s *Server) scan(ctx context.Context, q *query, f func(*audit.Entry) error) (damaged int, err error) {
	files, err := audit.Files(s.cfg.Audit.Dir, q.session)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	err = audit.ReadByTime(files, q.Filter, func(e audit.Entry) error {
		if ctx.Err() != nil {
			return errLate
		}
		if !q.wants(&e) {
			return nil
		}
		return f(&e)
	})
	var damage *audit.DamageError
	if errors.As(err, &damage) {
		for _, d := range damage.List {
			if !d.Torn { // one that is being written at this moment is whole
				damaged++
			}
		}
		return damaged + damage.More, nil
	}
	return 0, err
}

// searching takes a place among the searches, or says that there is none.
func (s *Server) searching(w http.ResponseWriter) (done func(), ok bool) {
	select {
	case s.search <- struct{}{}:
		return func() { <-s.search }, true
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "other searches are running; try again when they are over")
		return nil, false
	}
}

// history answers with the last records that match, and a timeline of all.
func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	done, ok := s.searching(w)
	if !ok {
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), searchFor)
	defer cancel()
	out := Found{Entries: []Entry{}, Complete: true}
	ring := make([]Entry, 0, q.limit)
	count := counting{}
	out.Damaged, err = s.scan(ctx, &q, func(e *audit.Entry) error {
		if len(ring) < q.limit {
			ring = append(ring, shownEntry(e))
		} else {
			ring[out.Matched%q.limit] = shownEntry(e)
		}
		out.Matched++
		count.add(e)
		return nil
	})
	switch {
	case errors.Is(err, errLate):
		out.Complete = false
	case err != nil:
		failWith(w, err)
		return
	}
	for i := range ring {
		out.Entries = append(out.Entries, ring[(out.Matched-1-i)%len(ring)])
	}
	out.Timeline = count.timeline()
	if out.Sessions, err = s.cfg.Audit.Sessions(); err != nil {
		failWith(w, err)
		return
	}
	answer(w, out)
}

// counting counts records by the minute.
type counting map[int64]*[3]int

func (c counting) add(e *audit.Entry) {
	minute := e.Time.Unix() / 60
	if c[minute] == nil {
		if len(c) == maxMinutes {
			return
		}
		c[minute] = &[3]int{}
	}
	switch e.Verdict {
	case "refused":
		c[minute][1]++
	case "failed":
		c[minute][2]++
	default:
		c[minute][0]++
	}
}

// timeline sums the minutes up.
func (c counting) timeline() Timeline {
	t := Timeline{Allowed: []int{}, Refused: []int{}, Failed: []int{}}
	if len(c) == 0 {
		return t
	}
	first, last := int64(0), int64(0)
	for m := range c {
		if first == 0 || m < first {
			first = m
		}
		last = max(last, m)
	}
	step := (last-first)/buckets + 1 // minutes
	n := (last-first)/step + 1
	t.From, t.StepMS = time.Unix(first*60, 0), step*time.Minute.Milliseconds()
	t.Allowed, t.Refused, t.Failed = make([]int, n), make([]int, n), make([]int, n)
	for m, k := range c {
		i := (m - first) / step
		t.Allowed[i] += k[0]
		t.Refused[i] += k[1]
		t.Failed[i] += k[2]
	}
	return t
}

// verify answers with the reports about the chains of one session or of all.
func (s *Server) verify(w http.ResponseWriter, r *http.Request) {
	done, ok := s.searching(w)
	if !ok {
		return
	}
	defer done()
	list, err := s.cfg.Audit.Sessions()
	if err != nil {
		failWith(w, err)
		return
	}
	if one := r.URL.Query().Get("session"); one != "" {
		if !slices.Contains(list, one) {
			fail(w, http.StatusNotFound, "session "+names.Quote(one)+" left no records")
			return
		}
		list = []string{one}
	}
	reports := []audit.Report{}
	for _, session := range list {
		if r.Context().Err() != nil {
			return
		}
		anchor, err := s.cfg.Audit.Anchor(session)
		if err != nil {
			failWith(w, err)
			return
		}
		report, err := audit.Verify(s.cfg.Audit.Dir, session, anchor)
		if err != nil {
			failWith(w, err)
			return
		}
		reports = append(reports, report)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	answer(w, reports)
}
