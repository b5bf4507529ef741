//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
)

const (
	// maxWaitFactor bounds two times, in debounce delays: how long a storm of changes can put a
	// refresh off, and how long callers get the last state after a reading that failed.
	maxWaitFactor = 4
	// maxReadings bounds how many readings a caller waits for while changes are announced.
	maxReadings = 4
)

// RootsOptions are the options of a RootsService. The zero value of each field means its default.
type RootsOptions struct {
	// Broker is the Broker whose connections ask for further pages. Without a Broker, and for
	// sessions that the Broker did not connect, only the first page is read, and paths in roots
	// on later pages are denied.
	Broker *Broker
	// Debounce is how long the announcements of changes must pause before the roots are read
	// again in the background. If the announcements never pause, the roots are read after four
	// times as long. Default 250 ms. A call of Guard does not wait for the pause: it reads the
	// roots itself.
	Debounce time.Duration
	// Timeout ends one reading of all pages. Default 60 s.
	Timeout time.Duration
	// MaxAge is how long roots of a client that does not announce changes are used.
	// Default 30 s, negative: without a limit.
	MaxAge time.Duration
	// IgnoreChanges switches the reaction to notifications/roots/list_changed
	// off. The roots are then read again only by Refresh and, if the client does not
	// announce changes, after MaxAge.
	IgnoreChanges bool
	// Platform says how to read a session's paths. Default: Local, always.
	Platform func(*mcp.ServerSession) Platform
	// OnRefresh is called with each new Snapshot, also with one of roots that came with a
	// request, without a lock held, from a goroutine of the service. The Snapshots of a session
	// come in order.
	OnRefresh func(*mcp.ServerSession, Snapshot)
}

// Snapshot is a client's roots at one moment. The service does not change a Snapshot that it
// has returned. Treat Roots as read-only.
type Snapshot struct {
	Version uint64 // 1 for the session's first Snapshot; each further Snapshot adds 1
	Roots   []wire.Root
	Guard   *Guard
}

// RootsService keeps the roots of each session. It reads them once, shares them among all
// callers, and reads them again when the client says they changed. Install its middleware once:
//
//	server.AddReceivingMiddleware(roots.Middleware())
//
// RequireWithinRoots includes Middleware, and also refuses paths outside the roots.
type RootsService struct {
	opts RootsOptions

	mu      sync.Mutex // guards entries
	entries map[*mcp.ServerSession]*entry
}

// entry is one session's state. Its readings have numbers, from 1.
type entry struct {
	mu       sync.Mutex // guards the fields below
	snap     Snapshot   // Version 0: none yet
	readAt   time.Time  // when snap was read
	failedAt time.Time  // when the last reading failed; zero if it succeeded or a change came since
	reading  *reading   // in progress; nil: none
	begun    uint64     // number of the last reading that has begun
	snapFrom uint64     // number of the reading that snap comes from
	needed   uint64     // number of the first reading that shows all changes announced so far

	debounce  *time.Timer   // nil: no change waits for a reading in the background
	latest    time.Time     // when debounce fires at the latest
	refreshed chan struct{} // closed when OnRefresh has returned for snap; nil: OnRefresh was not called yet
}

// reading is one walk over the client's list of roots. Several callers may wait for it.
type reading struct {
	number uint64
	done   chan struct{}
	err    error // set before done is closed
}

// NewRootsService makes a service. Nil opts mean the defaults.
func NewRootsService(opts *RootsOptions) *RootsService {
	s := &RootsService{entries: map[*mcp.ServerSession]*entry{}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Platform == nil {
		s.opts.Platform = func(*mcp.ServerSession) Platform { return Local }
	}
	s.opts.Debounce = positiveOr(s.opts.Debounce, 250*time.Millisecond)
	s.opts.Timeout = positiveOr(s.opts.Timeout, 60*time.Second)
	s.opts.MaxAge = cmp.Or(s.opts.MaxAge, 30*time.Second)
	return s
}

// Guard returns the guard of a session's roots. It reads the roots if they were not read yet, if a
// change was announced since, or if MaxAge has passed. If that reading fails, Guard returns the
// guard of the last reading that succeeded. If none has, or ctx has ended, Guard returns the error of
// this reading. The caller must then deny.
// ErrNotSupported: the client has no roots.
//
// Under revision 2026-07-28 the roots come with the request itself: a handler
// that gets ErrInputRequired returns that error, the middleware asks the
// client, and the handler is called again. ctx must be the handler's.
func (s *RootsService) Guard(ctx context.Context, ss *mcp.ServerSession) (*Guard, error) {
	snap, err := s.Snapshot(ctx, ss)
	return snap.Guard, err
}

// Snapshot does what Guard does, and returns the roots together with the guard. The zero
// Snapshot comes with every error; its nil Guard denies everything.
func (s *RootsService) Snapshot(ctx context.Context, ss *mcp.ServerSession) (Snapshot, error) {
	caps := s.capability(ss)
	if !caps.Roots {
		return Snapshot{}, &NotSupportedError{What: "the client did not declare the roots capability, so no path is inside its roots"}
	}
	if caps.insideOnly {
		if snap, ok := ctx.Value(answerKey{s}).(Snapshot); ok {
			return snap, nil
		}
		return Snapshot{}, ErrInputRequired
	}
	e := s.entry(ss)
	var err error
	// A change that is announced during a reading asks for another reading. The number of
	// readings is bounded, so that a client that announces changes all the time cannot block
	// the caller.
	for range maxReadings {
		e.mu.Lock()
		needed, stale := e.needed, s.staleLocked(e, caps)
		e.mu.Unlock()
		if !stale {
			break
		}
		if err = s.read(ctx, e, ss, needed); err != nil {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.snap.Version == 0 || err != nil && ctx.Err() != nil {
		return Snapshot{}, err
	}
	return e.snap, nil
}

// staleLocked reports whether the roots must be read. After a failure the last
// state answers for a while, so that a broken client is not asked at each call.
func (s *RootsService) staleLocked(e *entry, caps Capability) bool {
	switch {
	case e.snap.Version == 0:
		return true
	case !e.failedAt.IsZero() && time.Since(e.failedAt) < maxWaitFactor*s.opts.Debounce:
		return false
	case e.snapFrom < e.needed:
		return true
	}
	return !caps.ListChanged && s.opts.MaxAge > 0 && time.Since(e.readAt) > s.opts.MaxAge
}

// read waits for the end of a reading whose number is needed or higher. It joins the
// reading in progress, or begins one.
func (s *RootsService) read(ctx context.Context, e *entry, ss *mcp.ServerSession, needed uint64) error {
	for {
		e.mu.Lock()
		if e.reading == nil {
			s.beginLocked(ctx, e, ss)
		}
		r := e.reading
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.done:
		}
		if r.number >= needed {
			return r.err
		}
	}
}

// beginLocked begins a reading. The reading does not end with the caller's request, because
// other callers may wait for the reading.
func (s *RootsService) beginLocked(ctx context.Context, e *entry, ss *mcp.ServerSession) {
	e.begun++
	r := &reading{number: e.begun, done: make(chan struct{})}
	e.reading = r
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	go func() {
		defer stop()
		var guard *Guard
		roots, err := s.list(ctx, ss)
		if err == nil {
			guard = NewGuard(s.opts.Platform(ss), roots) // looks at the disk: not under the lock
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if err == nil {
			e.snapFrom, e.failedAt = r.number, time.Time{}
			s.setLocked(e, ss, roots, guard)
		} else {
			e.failedAt = time.Now()
		}
		e.reading, r.err = nil, err
		close(r.done)
	}()
}

// setLocked stores the session's next snapshot and returns it. A goroutine calls OnRefresh with
// the snapshot, after the calls for earlier snapshots.
func (s *RootsService) setLocked(e *entry, ss *mcp.ServerSession, roots []wire.Root, guard *Guard) Snapshot {
	snap := Snapshot{Version: e.snap.Version + 1, Roots: roots, Guard: guard}
	e.snap, e.readAt = snap, time.Now()
	if s.opts.OnRefresh == nil {
		return snap
	}
	before, refreshed := e.refreshed, make(chan struct{})
	e.refreshed = refreshed
	go func() {
		defer close(refreshed)
		if before != nil {
			<-before
		}
		s.opts.OnRefresh(ss, snap)
	}()
	return snap
}

// Refresh reads the roots now, whatever was announced. Under revision 2026-07-28 it returns
// ErrInputRequired outside a request that carries the roots.
func (s *RootsService) Refresh(ctx context.Context, ss *mcp.ServerSession) error {
	if caps := s.capability(ss); !caps.Roots || caps.insideOnly {
		_, err := s.Snapshot(ctx, ss)
		return err
	}
	e := s.entry(ss)
	e.mu.Lock()
	next := e.begun + 1 // the reading in progress began before this call
	e.mu.Unlock()
	return s.read(ctx, e, ss, next)
}

// Changed notes that a session's roots changed. The middleware calls it for
// notifications/roots/list_changed.
func (s *RootsService) Changed(ss *mcp.ServerSession) {
	caps := s.capability(ss)
	if s.opts.IgnoreChanges || !caps.Roots || caps.insideOnly { // insideOnly: the next request asks
		return
	}
	e := s.entry(ss)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.needed = e.begun + 1
	e.failedAt = time.Time{} // the next reading may succeed
	now := time.Now()
	if e.debounce == nil {
		e.latest = now.Add(maxWaitFactor * s.opts.Debounce)
		e.debounce = time.AfterFunc(s.opts.Debounce, func() { s.readDebounced(e, ss) })
		return
	}
	e.debounce.Reset(max(0, min(s.opts.Debounce, e.latest.Sub(now))))
}

// readDebounced reads the roots at the end of a debounce, unless they were read meanwhile.
func (s *RootsService) readDebounced(e *entry, ss *mcp.ServerSession) {
	e.mu.Lock()
	e.debounce = nil
	needed, snapFrom := e.needed, e.snapFrom
	e.mu.Unlock()
	if snapFrom < needed {
		_ = s.read(context.Background(), e, ss, needed) // after an error, a later call of Guard reads again
	}
}

// Version returns the version of the session's last snapshot; 0: none.
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

// Sessions returns the number of sessions that have an entry. An entry ends with its session.
func (s *RootsService) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// entry returns the entry of a session, which lasts until the session ends.
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
		s.mu.Lock()
		delete(s.entries, ss)
		s.mu.Unlock()
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.debounce != nil {
			e.debounce.Stop()
		}
	}()
	return e
}

// capability returns the client's declarations: from the Broker's connection or, for a session
// of another transport, from the SDK.
func (s *RootsService) capability(ss *mcp.ServerSession) Capability {
	if c := s.opts.Broker.connOf(ss); c != nil {
		return c.capability()
	}
	p := ss.InitializeParams()
	if p == nil || p.Capabilities == nil {
		return Capability{}
	}
	c := Capability{insideOnly: p.ProtocolVersion >= revisionMRTR}
	if roots := p.Capabilities.RootsV2; roots != nil {
		c.Roots, c.ListChanged = true, roots.ListChanged
	}
	return c
}

// ErrInputRequired says that the roots must come with the request: return it
// from the handler, and the middleware asks for them.
var ErrInputRequired = errors.New("the client's roots are not known yet; asking for them")
