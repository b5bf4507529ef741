package tools

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of what refusals, of each status, leave in the log and in the audit
// record: whoever knocks on the door all day fills no disk, and hides nobody else.
const (
	refusalsASecond = 0.2
	refusalsAtOnce  = 20
	maxWhy          = 200 // bytes
)

// tally is how many refusals were told of.
type tally struct {
	pace   *rate.Limiter
	untold int // since the last that was
}

// due counts a refusal. It reports whether it is to be told of, and how many were
// not since the last that was.
func (h *HTTP) due(status int) (others int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.refused[status]
	if t == nil {
		t = &tally{pace: rate.NewLimiter(refusalsASecond, refusalsAtOnce)}
		h.refused[status] = t
	}
	if !t.pace.Allow() {
		t.untold++
		return 0, false
	}
	others, t.untold = t.untold, 0
	return others, true
}

// tell puts a refusal into the log and on record.
func (h *HTTP) tell(r *http.Request, rec *watched) {
	others, ok := h.due(rec.status)
	if !ok {
		return
	}
	why := strings.TrimSpace(rec.why)
	short := func(s string) string { return s[:min(len(s), maxWhy)] }
	h.o.Log.Warn("refused an HTTP request", "why", why, "status", rec.status, "from", r.RemoteAddr,
		"host", short(r.Host), "origin", short(r.Header.Get("Origin")), "others", others)
	kind := names.Permission
	if rec.status == http.StatusBadRequest || rec.status == http.StatusNotFound {
		kind = names.Invalid
	}
	// Of nobody in particular: who was refused has not shown who they are.
	if err := h.o.Registry.NoteRefusal(guard.Caller{Via: guard.ViaTools}, kind, "HTTP request from "+r.RemoteAddr+": "+why); err != nil {
		h.o.Log.Error("a refusal could not be recorded", "error", err)
	}
}

// piece is how much of an answer a client has to take at a time, bytes.
const piece = 64 << 10

// watched remembers the status of an answer and, of a refusal, its text. A client that
// takes no piece of it within the time loses its connection.
type watched struct {
	http.ResponseWriter
	taking time.Duration
	status int
	why    string
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	if status >= http.StatusBadRequest {
		// Connections are bounded too: they are for those who are let in.
		w.Header().Set("Connection", "close")
	}
	if status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", "Bearer") // HTTP asks for it
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(p []byte) (n int, err error) {
	if w.status >= http.StatusBadRequest {
		w.why += string(p[:min(len(p), maxWhy-len(w.why))])
	}
	for part := range slices.Chunk(p, piece) {
		w.waits()
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// waits waits for the client anew. Where the connection has no deadlines, whoever made
// it sees to that.
func (w *watched) waits() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.taking))
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (w *watched) Flush() {
	w.waits()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}
