package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Session is one server's connection. Its methods may be called concurrently.
type Session struct {
	b       *Broker
	subject guard.Subject
	asker   Asker // nil: questions are refused
	caller  guard.Caller
	limits  *limiter
	started time.Time
	ctx     context.Context // ends with the session; parent of the requests' contexts
	cancel  context.CancelFunc
	// wg counts the work that Close waits for: requests until their answer is known, and
	// updates of SDK clients. It does not count goroutines that write: a peer may never
	// read.
	wg         sync.WaitGroup
	next       chan *request // unbuffered: takes a request to a goroutine that waits
	idle       chan struct{} // an element for each goroutine that waits for next
	opening    chan struct{} // an element for each path that is being opened, see maxOpening
	ended      chan struct{} // closed when Close has done its work
	stats      counters
	roots      announcer
	refusals   *flowcontrol.Tally[names.Kind] // see recordRefusal
	rejections flowcontrol.Budget             // counts the unsent answers of reject

	mu       sync.Mutex // guards the fields below
	inflight map[string]*request
	watches  map[string]*sessionWatch
	uploads  map[string]*sessionUpload
	revoked  map[string]guard.Path // paths of uploads that a change of their root has ended, by id; see maxRevoked
	peer     Sender                // nil before SetSender and after Close
	revision string                // of the protocol; "" until it is known
	server   string                // what the peer calls itself
	sharedBy string                // see ShareConsents
	elicitor Elicitor              // asks the person at the MCP host; nil: that person cannot be asked
	closed   bool
	clients  []*binding
}

// Limits of the refusals before the gate that get records of their own: refusalBurst at once, and
// then refusalsPerSecond in each second. A server at work causes a handful.
const (
	refusalBurst      = 1000
	refusalsPerSecond = 100
)

// recordRefusal records a refusal before the gate. If there are too many refusals, it records the
// number of each kind within a second.
func (s *Session) recordRefusal(kind names.Kind, detail string) {
	s.refusals.Add(kind, func(count int) {
		if count > 1 {
			detail = fmt.Sprintf("%d more within a second, the last: %s", count, names.Brief(detail))
		}
		_ = s.b.cfg.Registry.NoteRefusal(s.caller, kind, detail) // the request is refused in any case
	})
}

// Sender takes one encoded JSON-RPC message to the peer. It may be called concurrently. It
// may use the frame's capacity beyond its length, and must not keep the frame. It calls
// recheck, unless that is nil, immediately before it writes the frame. An error means that
// the connection is over.
type Sender func(ctx context.Context, frame []byte, recheck Recheck) error

// Recheck reports at the moment of the write whether the peer may have a frame. If not,
// replacement is written in its place; a nil replacement writes nothing.
type Recheck = jsonline.Recheck

// Session begins a session. Grants and audit records name the subject; empty means no
// server in particular.
func (b *Broker) Session(subject guard.Subject) *Session { return b.SessionFor(subject, b.cfg.Asker) }

// SessionFor begins a session that uses asker in the place of Config.Asker, for a connection
// whose questions go to other people.
func (b *Broker) SessionFor(subject guard.Subject, asker Asker) *Session {
	s := &Session{
		b: b, subject: subject, asker: asker, started: time.Now(),
		caller: guard.Caller{Subject: subject, Via: guard.ViaFiles, UID: b.cfg.UID, GID: b.cfg.GID},
		limits: newLimiter(b.cfg.Limits), rejections: flowcontrol.Budget{Count: maxRejections},
		refusals: flowcontrol.NewTally[names.Kind](refusalBurst, refusalsPerSecond, time.Second),
		next:     make(chan *request), idle: make(chan struct{}, maxIdle), opening: make(chan struct{}, maxOpening), ended: make(chan struct{}),
		inflight: map[string]*request{}, watches: map[string]*sessionWatch{}, uploads: map[string]*sessionUpload{}, revoked: map[string]guard.Path{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.roots.s, s.roots.wait = s, b.cfg.Debounce
	b.mu.Lock()
	defer b.mu.Unlock()
	s.limits.asks = b.asksLocked(subject)
	if b.closed {
		s.closed = true
		s.cancel()
		close(s.ended)
		return s
	}
	b.sessions[s] = true
	return s
}

// Subject returns the subject that the session serves.
func (s *Session) Subject() guard.Subject { return s.subject }

// Close ends the session: requests under way are cancelled, watches and uploads are given
// up. When it returns, only frames that the peer has not taken are left; the goroutines
// that write them end with the connection. A second caller waits for the first.
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
	s.watches, s.uploads = map[string]*sessionWatch{}, map[string]*sessionUpload{}
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
	s.refusals.Flush()
	s.b.mu.Lock()
	delete(s.b.sessions, s)
	s.b.mu.Unlock()
}

// notify sends a notification to the peer, if there is one. recheck is passed to the Sender.
func (s *Session) notify(method string, params any, recheck Recheck) {
	s.mu.Lock()
	send := s.peer
	s.mu.Unlock()
	if send == nil {
		return
	}
	_ = send(s.ctx, jsonline.AppendCall(nil, nil, method, params), recheck)
}

// SetSender sets the function that sends notifications of changed files and roots to the
// peer.
func (s *Session) SetSender(send Sender) {
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

// BeforeCall makes a checkpoint of the session's staged roots before its host calls a tool of
// the server. It does so for every tool: a tool that is marked read-only may write, too.
func (s *Session) BeforeCall(tool string) {
	if err := s.b.cfg.Tree.StageBeforeCall(s.ctx, s.subject, tool); err != nil {
		s.b.cfg.Log.Warn("no checkpoint before a tool call", "tool", names.Brief(tool), "error", err)
	}
}
