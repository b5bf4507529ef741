//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// maxWaitFactor bounds how long a storm of changes can put a refresh off, in
// debounce delays.
const maxWaitFactor = 4

// RootsOptions of a RootsService; the zero value of each field means its default.
type RootsOptions struct {
	// Broker whose connections ask for further pages. Without it, and for
	// sessions it did not connect, only the first page is seen, so that what lies
	// in the roots after it is denied.
	Broker *Broker
	// Debounce is how long changes must be quiet before the roots are read
	// again in the background; at most four times as long when they never are.
	// Default 250 ms. A Guard asked for meanwhile does not wait: it reads them.
	Debounce time.Duration
	// Timeout ends one reading of all pages. Default 60 s.
	Timeout time.Duration
	// MaxAge is how long roots of a client that does not announce changes are
	// believed. Default 30 s, negative: always.
	MaxAge time.Duration
	// IgnoreChanges switches the reaction to notifications/roots/list_changed
	// off; only Refresh reads the roots again then.
	IgnoreChanges bool
	// Platform says how to read a session's paths. Default: Local, always.
	Platform func(*mcp.ServerSession) Platform
	// OnRefresh is called after each reading that succeeded, without a lock
	// held, from a goroutine of the service. The snapshots of a session come in order.
	OnRefresh func(*mcp.ServerSession, Snapshot)
}

// Snapshot is a client's roots at one reading. It is not changed any more; treat
// Roots as read-only.
type Snapshot struct {
	Version uint64 // 1 for the first reading, then one more for each
	Roots   []wire.Root
	Guard   *Guard
}

// RootsService keeps the roots of each session: read once, shared by all who
// ask, read again when the client says they changed. Install it once:
//
//	server.AddReceivingMiddleware(roots.Middleware())
//
// RequireWithinRoots does what Middleware does, and refuses.
type RootsService struct {
	opts RootsOptions

	mu      sync.Mutex // guards entries
	entries map[*mcp.ServerSession]*entry
}

// entry is one session's state.
type entry struct {
	mu      sync.Mutex // guards the fields below
	snap    Snapshot   // Version 0: not read yet
	read    time.Time  // when snap was
	notices uint64     // changes announced
	seen    uint64     // of them, those before the reading of snap began
	failed  time.Time  // when the last reading failed; zero if it did not
	flight  *flight
	timer   *time.Timer // the debounce; nil: not running
	latest  time.Time   // when it fires at the latest
	gone    bool        // the session has ended
	pending []Snapshot  // not yet passed to OnRefresh, oldest first
	calling bool        // a goroutine passes pending to OnRefresh
}

// flight is one reading that several may wait for.
type flight struct {
	done chan struct{}
	err  error // after done
}

// NewRootsService makes a service; nil means the defaults.
func NewRootsService(opts *RootsOptions) *RootsService {
	s := &RootsService{entries: map[*mcp.ServerSession]*entry{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Debounce <= 0 {
		s.opts.Debounce = 250 * time.Millisecond
	}
	if s.opts.Timeout <= 0 {
		s.opts.Timeout = 60 * time.Second
	}
	if s.opts.MaxAge == 0 {
		s.opts.MaxAge = 30 * time.Second
	}
	return s
}

// Guard returns the guard of a session's roots, reading them if they were not
// read yet or a change was announced since. If that reading fails, the last
// state is kept and answers; if there is none, the error is returned, and the
// caller must deny. ErrNotSupported: the client has no roots.
//
// Under revision 2026-07-28 the roots come with the request itself: a handler
// that is told ErrInputRequired returns that error, the middleware asks the
// client, and the handler is called again. ctx must be the handler's.
func (s *RootsService) Guard(ctx context.Context, ss *mcp.ServerSession) (*Guard, error) {
	snap, err := s.Snapshot(ctx, ss)
	return snap.Guard, err
}

// Snapshot is Guard with the roots themselves. The zero Snapshot comes with
// every error; its nil Guard denies everything.
func (s *RootsService) Snapshot(ctx context.Context, ss *mcp.ServerSession) (Snapshot, error) {
	caps := s.capability(ss)
	if !caps.Roots {
		return Snapshot{}, &NotSupportedError{What: "the client did not declare the roots capability, so no path is inside its roots"}
	}
	if s.mrtr(ss) {
		if snap, ok := ctx.Value(answerKey{s}).(Snapshot); ok {
			return snap, nil
		}
		return Snapshot{}, ErrInputRequired
	}
	return s.current(ctx, ss, caps)
}

// current returns a snapshot that holds all announced changes, where it can.
func (s *RootsService) current(ctx context.Context, ss *mcp.ServerSession, caps Capability) (Snapshot, error) {
	e := s.entry(ss)
	// A change announced while reading asks for another reading. A client that
	// never stops gets the last one: no caller waits forever.
	for range maxWaitFactor {
		e.mu.Lock()
		if !s.staleLocked(e, caps) {
			defer e.mu.Unlock()
			return e.snap, nil
		}
		f := s.startLocked(ctx, e, ss)
		e.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		}
		if f.err != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.snap.Version == 0 {
				return Snapshot{}, f.err
			}
			return e.snap, nil
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snap, nil
}

// staleLocked reports whether the roots must be read. After a failure the last
// state answers for a while, so that a broken client is not asked at each call.
func (s *RootsService) staleLocked(e *entry, caps Capability) bool {
	if e.snap.Version == 0 {
		return true
	}
	if !e.failed.IsZero() && time.Since(e.failed) < maxWaitFactor*s.opts.Debounce {
		return false
	}
	aged := !caps.ListChanged && s.opts.MaxAge > 0 && time.Since(e.read) > s.opts.MaxAge
	return e.notices != e.seen || aged
}

// startLocked joins the reading that is under way, or starts one. It does not
// end with the caller's request, because others may wait for it.
func (s *RootsService) startLocked(ctx context.Context, e *entry, ss *mcp.ServerSession) *flight {
	if e.flight != nil {
		return e.flight
	}
	f := &flight{done: make(chan struct{})}
	e.flight = f
	notices := e.notices
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	go func() {
		defer stop()
		roots, err := s.list(ctx, ss)
		s.land(e, ss, f, notices, roots, err)
	}()
	return f
}

func (s *RootsService) land(e *entry, ss *mcp.ServerSession, f *flight, notices uint64, roots []wire.Root, err error) {
	var guard *Guard
	if err == nil {
		guard = NewGuard(s.platform(ss), roots) // looks at the disk: not under the lock
	}
	e.mu.Lock()
	f.err, e.flight = err, nil
	if err != nil {
		e.failed = time.Now()
	} else {
		e.failed, e.read, e.seen = time.Time{}, time.Now(), notices
		e.snap = Snapshot{Version: e.snap.Version + 1, Roots: roots, Guard: guard}
	}
	if err == nil {
		e.pending = append(e.pending, e.snap)
	}
	e.mu.Unlock()
	close(f.done)
	s.callOnRefresh(ss, e)
}

// callOnRefresh passes the pending snapshots to OnRefresh, unless another goroutine
// does so already.
func (s *RootsService) callOnRefresh(ss *mcp.ServerSession, e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calling {
		return
	}
	e.calling = true
	for len(e.pending) > 0 {
		snap := e.pending[0]
		e.pending = e.pending[1:]
		if s.opts.OnRefresh != nil {
			e.mu.Unlock()
			s.opts.OnRefresh(ss, snap)
			e.mu.Lock()
		}
	}
	e.calling = false
}

// Refresh reads the roots now, whatever was announced. Under revision
// 2026-07-28 it is ErrInputRequired outside a request that carries them.
func (s *RootsService) Refresh(ctx context.Context, ss *mcp.ServerSession) error {
	if !s.capability(ss).Roots || s.mrtr(ss) {
		_, err := s.Snapshot(ctx, ss)
		return err
	}
	e := s.entry(ss)
	e.mu.Lock()
	joined := e.flight
	f := s.startLocked(ctx, e, ss)
	e.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.done:
		}
		if joined == nil {
			return f.err
		}
		// That reading began before this call; one more is of now.
		joined = nil
		e.mu.Lock()
		f = s.startLocked(ctx, e, ss)
		e.mu.Unlock()
	}
}

// Changed notes that a session's roots changed. The middleware calls it for
// notifications/roots/list_changed.
func (s *RootsService) Changed(ss *mcp.ServerSession) {
	if s.opts.IgnoreChanges || !s.capability(ss).Roots {
		return
	}
	standalone := !s.mrtr(ss)
	e := s.entry(ss)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notices++
	e.failed = time.Time{} // it is worth asking again
	if !standalone || e.gone {
		return // the next request asks
	}
	now := time.Now()
	if e.timer == nil {
		e.latest = now.Add(maxWaitFactor * s.opts.Debounce)
		e.timer = time.AfterFunc(s.opts.Debounce, func() { s.quiet(e, ss) })
		return
	}
	e.timer.Reset(max(0, min(s.opts.Debounce, e.latest.Sub(now))))
}

// quiet is the end of the debounce.
func (s *RootsService) quiet(e *entry, ss *mcp.ServerSession) {
	e.mu.Lock()
	e.timer = nil
	if e.gone || e.notices == e.seen {
		e.mu.Unlock()
		return // somebody asked meanwhile
	}
	// A reading under way may have begun before the last change.
	joined := e.flight
	f := s.startLocked(context.Background(), e, ss)
	e.mu.Unlock()
	if joined == nil {
		return
	}
	<-f.done
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.gone && e.notices != e.seen {
		s.startLocked(context.Background(), e, ss)
	}
}

// Version is the version of the session's last snapshot; 0: none.
func (s *RootsService) Version(ss *mcp.ServerSession) uint64 {
	s.mu.Lock()
	e := s.entries[ss]
	s.mu.Unlock()
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snap.Version
}

// Sessions is the number of sessions remembered; ended ones are forgotten.
func (s *RootsService) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

func (s *RootsService) entry(ss *mcp.ServerSession) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[ss]; e != nil {
		return e
	}
	e := &entry{}
	s.entries[ss] = e
	go func() {
		_ = ss.Wait() // how it ended does not matter
		s.forget(ss, e)
	}()
	return e
}

func (s *RootsService) forget(ss *mcp.ServerSession, e *entry) {
	s.mu.Lock()
	delete(s.entries, ss)
	s.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

func (s *RootsService) platform(ss *mcp.ServerSession) Platform {
	if s.opts.Platform != nil {
		return s.opts.Platform(ss)
	}
	return Local
}

// capability is what the client declared, from our connection or, for a session
// of another transport, from what the SDK kept of it.
func (s *RootsService) capability(ss *mcp.ServerSession) Capability {
	if c := s.opts.Broker.of(ss); c != nil {
		return c.capability()
	}
	p := ss.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.RootsV2 == nil {
		return Capability{}
	}
	return Capability{Roots: true, ListChanged: p.Capabilities.RootsV2.ListChanged}
}

// mrtr reports whether the session's revision forbids standalone requests.
func (s *RootsService) mrtr(ss *mcp.ServerSession) bool {
	if c := s.opts.Broker.of(ss); c != nil {
		return c.capability().insideOnly
	}
	p := ss.InitializeParams()
	return p != nil && p.ProtocolVersion >= revisionMRTR
}

// ErrInputRequired says that the roots must come with the request: return it
// from the handler, and the middleware asks for them.
var ErrInputRequired = errors.New("the client's roots are not known yet; asking for them")
