package broker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Session is one server's connection. Its methods may be called concurrently.
type Session struct {
	b       *Broker
	subject guard.Subject
	caller  guard.Caller
	limits  *limiter
	started time.Time
	ctx     context.Context // of everything the session does
	cancel  context.CancelFunc
	// wg counts what Close waits for: requests until they have their answer, and
	// the keeping in step of SDK clients. Not who waits for the peer to take a
	// frame: a peer may never read.
	wg      sync.WaitGroup
	workers workers
	opening chan struct{} // an element for each path that is being opened, see maxOpening
	ended   chan struct{} // closed when Close has done its work
	stats   counters
	roots   announcer
	noted   *refusals // before the gate

	mu       sync.Mutex // guards the fields below
	inflight map[string]*request
	watches  map[string]*watching
	uploads  map[string]*uploading
	revoked  map[string]guard.Path // uploads that their root's end ended, some of them
	peer     sender                // nil until connected
	revision string                // of the protocol, as initialize settled it
	server   string                // what the peer calls itself
	sharedBy string                // who else has what is allowed, see ShareConsents
	waiting  int                   // rejections that the peer has not read yet
	host     Elicitor              // asks the person at the host; nil: nobody can
	closed   bool
	clients  []*binding
}

// sender takes one encoded JSON-RPC message to the peer. It may be called
// concurrently; an error means that the connection is over.
type sender func(ctx context.Context, frame []byte) error

// Session begins one. The subject is whom grants and audit records name; empty
// means no server in particular.
func (b *Broker) Session(subject guard.Subject) *Session {
	s := &Session{
		b: b, subject: subject, started: time.Now(),
		caller: guard.Caller{Subject: subject, Via: guard.ViaFiles, UID: b.cfg.UID, GID: b.cfg.GID},
		limits: newLimiter(b.cfg.Limits), workers: newWorkers(), opening: make(chan struct{}, maxOpening), ended: make(chan struct{}),
		inflight: map[string]*request{}, watches: map[string]*watching{}, uploads: map[string]*uploading{}, revoked: map[string]guard.Path{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.roots.s, s.roots.wait = s, b.cfg.Debounce
	s.noted = newRefusals(func(kind names.Kind, detail string) {
		_ = b.cfg.Registry.NoteRefusal(s.caller, kind, detail) // the request has failed already
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		s.closed = true
		s.cancel()
		close(s.ended)
		return s
	}
	b.sessions[s] = true
	return s
}

// Close ends the session: what is under way is cancelled, watches and uploads
// are given up. It returns when nothing of it is left but frames that the peer
// has not taken: who writes those waits until the connection is closed. So it does
// for whoever comes while another closes it, as the end of a connection does.
func (s *Session) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return
	}
	defer close(s.ended)
	s.closed = true
	s.peer = nil
	clients := s.clients
	watches, uploads := s.watches, s.uploads
	s.watches, s.uploads = map[string]*watching{}, map[string]*uploading{}
	s.mu.Unlock()
	s.cancel()
	for _, w := range watches {
		w.close()
	}
	for _, u := range uploads {
		u.end()
	}
	for _, b := range clients {
		b.sync()
	}
	s.wg.Wait()
	s.noted.flush()
	s.b.mu.Lock()
	delete(s.b.sessions, s)
	s.b.mu.Unlock()
}

// ours reports whether the session answers a method itself, instead of the SDK.
func ours(method string) bool {
	return strings.HasPrefix(method, wire.MethodPrefix) || method == wire.RootsList || strings.HasPrefix(method, "fs.")
}

// take handles a frame if it is the session's business and reports whether it
// was. It does not wait, but for a peer that neither reads nor stops. size is
// what holding the frame costs.
func (s *Session) take(f wire.Frame, size int, send sender) bool {
	switch {
	case f.Method == wire.Cancelled:
		return s.cancelRequest(f.Params)
	case !ours(f.Method):
		return false
	case !f.Call(): // nobody waits for an answer, and nothing of ours is a notification
		s.NoteRefusal(names.QuoteShort(f.Method) + " must be a request: it has no id")
		return true
	}
	r := &request{id: f.ID, method: f.Method, params: f.Params, send: send, held: int64(size)}
	if err := s.admit(r); err != nil {
		s.refused(r, err)
		s.reject(r, err)
		return true
	}
	s.start(r)
	return true
}

// notify sends a notification to the peer, if there is one.
func (s *Session) notify(method string, params any) {
	s.mu.Lock()
	send := s.peer
	s.mu.Unlock()
	if send == nil {
		return
	}
	frame := encodeNotification(method, params)
	_ = send(s.ctx, frame)
}

// attach makes send the way to the peer.
func (s *Session) attach(send sender) {
	s.mu.Lock()
	first := s.peer == nil
	if !s.closed {
		s.peer = send
	}
	s.mu.Unlock()
	if first {
		s.roots.begin()
	}
}
