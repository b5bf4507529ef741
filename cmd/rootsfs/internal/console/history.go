package console

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

const (
	maxSearches = 2                // at a time: each reads all records
	searchFor   = 20 * time.Second // after this time an incomplete search is answered
)

// searchResult is the answer to a search.
type searchResult struct {
	auditview.SearchResult
	Sessions []string `json:"sessions"` // sessions that left records
}

// readQuery reads a search from the query of a URL. The error names the field.
func readQuery(v url.Values) (auditview.Query, error) {
	q := auditview.Query{Session: v.Get("session"), Verdict: v.Get("verdict"), Limit: auditview.Most}
	q.Root, q.Op, q.Subject, q.Path = v.Get("root"), v.Get("op"), v.Get("subject"), v.Get("path")
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
		if err != nil {
			return q, errors.New("limit: " + names.QuoteShort(text) + " is no number")
		}
		q.Limit = n
	}
	return q, q.Check()
}

// acquireSearch acquires one of the maxSearches tokens. If none is free, it answers with an error
// and reports false. Otherwise the caller must call done.
func (s *Server) acquireSearch(w http.ResponseWriter) (done func(), ok bool) {
	select {
	case s.search <- struct{}{}:
		return func() { <-s.search }, true
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "other searches are running; try again when they are over")
		return nil, false
	}
}

// query reads a search and acquires a token for it. If ok is false, it has answered with an error.
func (s *Server) query(w http.ResponseWriter, r *http.Request) (q auditview.Query, done func(), ok bool) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, control.Text(err))
		return q, nil, false
	}
	done, ok = s.acquireSearch(w)
	return q, done, ok
}

// history answers with the last records that match, and a timeline of all records that match.
func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	q, done, ok := s.query(w, r)
	if !ok {
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), searchFor)
	defer cancel()
	var out searchResult
	var err error
	if out.SearchResult, err = s.cfg.Records.Find(ctx, q); err == nil {
		out.Sessions, err = s.cfg.Records.Sessions()
	}
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, out)
}

// verify answers with a report on the hash chain of one session's records, or with one report for
// each session.
func (s *Server) verify(w http.ResponseWriter, r *http.Request) {
	done, ok := s.acquireSearch(w)
	if !ok {
		return
	}
	defer done()
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // the deadline bounds the answer, not the reading of records
	reports, err := s.cfg.Records.Verify(r.Context(), r.URL.Query().Get("session"))
	_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, reports)
}

// exportFor bounds an export. A longer one is cut: the connection breaks off.
const exportFor = 5 * time.Minute

// export answers with every matching record, as the line in the audit file, hash included.
func (s *Server) export(w http.ResponseWriter, r *http.Request) {
	q, done, ok := s.query(w, r)
	if !ok {
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", "attachment")
	ctx, cancel := context.WithTimeout(r.Context(), exportFor)
	defer cancel()
	out := bufio.NewWriterSize(w, 64<<10)
	rc, n := http.NewResponseController(w), 0
	_, err := s.cfg.Records.Each(ctx, q, func(e *audit.Entry) error {
		if n%1000 == 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		n++
		_, _ = out.Write(e.Line) // Flush returns the first error
		return out.WriteByte('\n')
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		// Break the connection off, so that the part does not look like the whole.
		panic(http.ErrAbortHandler)
	}
}
