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

// Bounds of the refusals of each status that get a line in the log and a record: whoever
// knocks on the door all day fills no disk, and hides nobody else's refusals.
const (
	refusalsPerSecond = 0.2
	refusalBurst      = 20
	maxReason         = 200 // bytes of each text in the line
)

// refusals counts the refusals of one status.
type refusals struct {
	pace    *rate.Limiter
	omitted int // since the last that was reported
}

// countRefusal reports whether a refusal is to be reported, and how many were omitted since
// the last that was.
func (h *HTTP) countRefusal(status int) (omitted int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.refused[status]
	if r == nil {
		r = &refusals{pace: rate.NewLimiter(refusalsPerSecond, refusalBurst)}
		h.refused[status] = r
	}
	if !r.pace.Allow() {
		r.omitted++
		return 0, false
	}
	omitted, r.omitted = r.omitted, 0
	return omitted, true
}

// report puts a refusal into the log and on record.
func (h *HTTP) report(r *http.Request, res *response) {
	omitted, ok := h.countRefusal(res.status)
	if !ok {
		return
	}
	why := strings.TrimSpace(res.reason)
	short := func(s string) string { return s[:min(len(s), maxReason)] }
	h.o.Log.Warn("refused an HTTP request", "why", why, "status", res.status, "from", r.RemoteAddr,
		"host", short(r.Host), "origin", short(r.Header.Get("Origin")), "others", omitted)
	kind := names.Permission
	if res.status == http.StatusBadRequest || res.status == http.StatusNotFound {
		kind = names.Invalid
	}
	// Without a subject: who was refused has not shown who they are.
	if err := h.o.Registry.NoteRefusal(guard.Caller{Via: guard.ViaTools}, kind, "HTTP request from "+r.RemoteAddr+": "+why); err != nil {
		h.o.Log.Error("a refusal could not be recorded", "error", err)
	}
}

// piece is how much of an answer a client has to take at a time, bytes.
const piece = 64 << 10

// response remembers the status of an answer and the text of a refusal. A client that does
// not take a piece of it in time loses its connection.
type response struct {
	http.ResponseWriter
	taking time.Duration // for a piece
	status int
	reason string
}

func (w *response) WriteHeader(status int) {
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

func (w *response) Write(p []byte) (n int, err error) {
	if w.status >= http.StatusBadRequest {
		w.reason += string(p[:min(len(p), maxReason-len(w.reason))])
	}
	for part := range slices.Chunk(p, piece) {
		w.extend()
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// extend gives the client time for the next piece. Where the connection has no deadlines,
// whoever made it sees to that.
func (w *response) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.taking))
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (w *response) Flush() {
	w.extend()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}
