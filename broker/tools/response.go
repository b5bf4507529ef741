package tools

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of the refusals that get a line in the log and an audit record of their own, in a burst
// and then each second: a client that tries all day must not fill the disk. Further refusals are
// counted by status. Within refusalInterval, the last of them for each status is reported with
// their number.
const (
	refusalBurst      = 100
	refusalsPerSecond = 0.2
	refusalInterval   = 5 * time.Second
	maxReason         = 200 // bytes of each of the reason, the Host and the Origin in the line
)

// report logs a refusal and records it in the audit log, or counts it.
func (h *HTTP) report(r *http.Request, status int, reason string) {
	short := func(s string) string { return strings.Clone(s[:min(len(s), maxReason)]) }
	why, from, host, origin := strings.TrimSpace(reason), r.RemoteAddr, short(r.Host), short(r.Header.Get("Origin"))
	kind := names.Permission
	if status == http.StatusBadRequest || status == http.StatusNotFound {
		kind = names.Invalid
	}
	h.refusals.Add(status, func(count int) {
		h.o.Log.Warn("refused an HTTP request", "why", why, "status", status, "from", from,
			"host", host, "origin", origin, "others", count-1)
		// Without a subject: a refused client may not have proved its identity.
		if err := h.o.Registry.NoteRefusal(guard.Caller{Via: guard.ViaTools}, kind, "HTTP request from "+from+": "+why); err != nil {
			h.o.Log.Error("a refusal could not be recorded", "error", err)
		}
	})
}

// piece is how many bytes of an answer a client has to read within the time ClientReadTimeout.
const piece = 64 << 10

// response remembers the status of an answer and the text of a refusal. A client that does not
// read a piece of the answer in time loses its connection.
type response struct {
	http.ResponseWriter
	conn         *connection
	pieceTimeout time.Duration // how long the client may take to read a piece
	status       int
	reason       string

	isBatch   bool // the request is a batch, whose members are refused one by one
	isBegun   bool
	isRefused atomic.Bool // see refuse
}

type responseKey struct{}

// responseOf returns the response to a request, which another handler may have wrapped.
func responseOf(r *http.Request) *response { return r.Context().Value(responseKey{}).(*response) }

// refuse makes the client get status 503, because there is no room, unless the answer has
// begun. In a batch each request is refused by itself instead.
func (w *response) refuse() { w.isRefused.Store(true) }

// writeRefusal writes the refusal of a request with status 503. event is the refusal as the SDK
// wrote it, as an event of a stream.
func (w *response) writeRefusal(event []byte) (n int, err error) {
	_, data, _ := bytes.Cut(event, []byte("data: "))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, err = w.Write(bytes.TrimSpace(data))
	return len(event), err
}

func (w *response) WriteHeader(status int) {
	w.status = status
	if status >= http.StatusBadRequest {
		// The number of connections is bounded too, so a refused client does not keep one.
		w.Header().Set("Connection", "close")
	}
	if status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", "Bearer") // HTTP requires it with status 401
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (n int, err error) {
	if w.status >= http.StatusBadRequest {
		w.reason += string(p[:min(len(p), maxReason-len(w.reason))])
	}
	isFirst := !w.isBegun
	w.isBegun = true
	if isFirst && w.status == 0 && w.isRefused.Load() && !w.isBatch {
		return w.writeRefusal(p)
	}
	sent := len(p)
	for part := range slices.Chunk(jsonline.ShowNumbers(p), piece) {
		if err := w.conn.recheck(); err != nil {
			w.endResponse()
			return n, err
		}
		w.extend()
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil {
			return min(n, sent), err
		}
	}
	return sent, nil
}

// extend gives the client time for the next piece. If the connection has no deadlines, extend does
// nothing.
func (w *response) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.pieceTimeout))
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which event streams need.
func (w *response) Flush() {
	w.extend()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}
