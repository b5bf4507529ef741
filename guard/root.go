package guard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Source is an opened root: its directory's descriptor and identity, and the answers about
// files in it that the gate needs (rules.Tree). An Opener makes it.
type Source interface {
	rules.Tree
	// FD is the directory's descriptor. Only a Lease hands it out.
	FD() int
	ID() rules.Identity
	// Resolved is the absolute path without links that the descriptor was
	// opened at.
	Resolved() string
	// FSType names the file system. Remote reports whether it can hang, or change without
	// inotify reporting that.
	FSType() string
	Remote() bool
	// Check reports whether the path still leads to the same, readable directory. It may block
	// if the file system does.
	Check() error
	Close() error
	// Free returns how many bytes are free for the owner. It may block if the file system does.
	Free() (int64, error)
	// CheckTrash returns why the root cannot have a trash, nil if it can.
	CheckTrash() error
	// Location returns the location of the directory or file (nesting.go), "" if it is not
	// known.
	Location() string
	// Links returns the links on the path by which the root was opened, in their order.
	Links() []rules.Link
	// LiesIn reports whether the directory is, or lies in, the one with this identity. It
	// checks by the descriptor, not by the path.
	LiesIn(top rules.Identity) bool
}

// Opener turns the path of a grant into a Source.
type Opener interface {
	OpenRoot(path string) (Source, error)
	// Trace resolves path as far as it exists. It returns the resolved path and
	// the links that it followed.
	Trace(path string) (resolved string, links []rules.Link, err error)
	// LocationOf returns the location of a path, "" if the location is not known. The path
	// need not exist.
	LocationOf(path string) string
	// Stage returns a source that shows src with the changes of the store g.Store, and keeps
	// further changes there. If g.Store is "", Stage chooses a store and sets it. The result
	// owns src. After an error, src is as it was.
	Stage(src Source, g *Grant) (Source, error)
}

// State is where a root is in its life.
type State uint32

// The states. Only a live root admits anything; an ended one never lives again.
const (
	Live State = iota
	RevokedState
	ExpiredState
	UnavailableState
	SpentState // granted for one use, which was made
)

// states is the one table of states: their names, and the record and event for a root that
// reaches the state.
var states = [...]struct {
	name  string
	op    Op
	event EventKind
}{
	Live:             {"live", names.OpNone, ""},
	RevokedState:     {"revoked", names.OpRevoke, EventRevoked},
	ExpiredState:     {"expired", names.OpExpire, EventExpired},
	UnavailableState: {"unavailable", names.OpUnavailable, EventUnavailable},
	SpentState:       {"spent", names.OpExpire, EventExpired},
}

func (s State) String() string { return states[s].name }

// root is a granted root. The registry's snapshots share it. Most fields that change during
// the root's life are atomic or have locks of their own. Registry.mu guards timer, and the lock
// changing guards report.
type root struct {
	name         RootName
	epoch        uint64
	grant        Grant
	src          Source
	location     string // see nesting.go; "": not known
	requestedDir string // the absolute path that was requested; "": it is grant.Resolved
	policy       atomic.Pointer[Policy]
	state        atomic.Uint32

	gen atomic.Pointer[generation] // the newest; written by drain
	// pins counts the users of src for which the ending of the root does not wait, such as a
	// request to a hung file system that was answered early. They keep src open.
	pins atomic.Int64
	// places holds a value for each operation that may still begin system calls, see
	// Lease.Run. leavePlace puts a value back.
	places     chan struct{}
	leavePlace func()

	dead chan struct{} // closed when the gate shuts
	// takenBack is closed when the root's operations were drained and the views invalidated, or
	// the time for that was over.
	takenBack chan struct{}
	// changing serialises changes of this root. It is a channel, so that waiting for it can be
	// given up: it is held during calls of views, which may take long.
	changing chan struct{}
	report   Ended

	waiting atomic.Int64 // operations that wait for the speed limit
	// flushing is > 0 while views flush dirty data for a change. Meanwhile no operation waits for
	// the speed limit or the limit of bytes in flight.
	flushing       atomic.Int32
	speed          *ledger.Speed
	bytes          *ledger.Budget
	ledger.Account // what has been written and created
	ops            atomic.Int64
	read           atomic.Int64
	refused        atomic.Int64
	nesting        atomic.Pointer[nesting]
	narrowed       atomic.Uint64   // grows when less may be read through the root, or its nesting changes, see Stamps
	timer          *time.Timer     // guarded by Registry.mu
	life           ledger.Lifetime // if it has no end, the root ends with the session
	endingOverdue  atomic.Bool     // the root is overdue, and is being ended
	created        rules.CreatedFiles
	facts          *rules.RootFacts
	moves          *moveLock
	recheckPending atomic.Bool  // a recheck waits, see recheckLater
	once           *ledger.Once // nil: any number of uses
}

func newRoot(g Grant, src Source, epoch uint64, moves *moveLock, now ledger.Instant) *root {
	r := &root{
		name: g.Root, epoch: epoch, grant: g, src: src, location: src.Location(), requestedDir: requestedDir(&g),
		dead: make(chan struct{}), takenBack: make(chan struct{}), changing: make(chan struct{}, 1),
		moves: moves, facts: rules.NewRootFacts(src, g.Policy.OtherFileSystems),
	}
	r.places = make(chan struct{}, MaxRunning)
	r.leavePlace = func() { r.places <- struct{}{} }
	for range MaxRunning {
		r.leavePlace()
	}
	r.gen.Store(&generation{})
	p := g.Policy
	r.policy.Store(&p)
	r.SetQuota(ledger.QuotaOf(&p.Limits))
	r.life.SetEnd(g.Expires, now)
	r.nesting.Store(&nesting{})
	if p.Once {
		r.once = &ledger.Once{}
	}
	r.speed = ledger.SpeedOf(&p.Limits)
	if p.Limits.BytesInFlight > 0 {
		r.bytes = ledger.NewBudget(p.Limits.BytesInFlight)
	}
	return r
}

// pin keeps the source of a live root open until unpin is called. The ending of the root does
// not wait for that.
func (r *root) pin() (unpin func(), ok bool) {
	gen, ok := r.acquire()
	if !ok {
		return nil, false
	}
	r.pins.Add(1)
	gen.release()
	return func() { r.pins.Add(-1) }, true
}

// closeWhenUnused closes the source when the root has neither operations nor pins any more.
func (r *root) closeWhenUnused() {
	inUse := func() bool {
		running, _ := r.gen.Load().counted()
		return running != 0 || r.pins.Load() != 0
	}
	wait := time.Millisecond
	for inUse() {
		time.Sleep(wait)
		wait = min(2*wait, time.Second)
	}
	_ = r.src.Close() // an O_PATH descriptor: nothing to lose
}

// changeContext is the context of a change. A change that has begun is finished even if its
// caller goes away: a revocation must not stop halfway. The context ends after Config.Deadline,
// so the change does not wait for others longer than that.
func (g *Registry) changeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), g.cfg.Deadline)
}

// lockChanges waits for the right to change a root, which the caller has until it calls unlock.
// lockChanges returns the context of the change. It returns an error if ended is closed, or that
// context ends, while it waits.
func (g *Registry) lockChanges(ctx context.Context, r *root, ended <-chan struct{}) (_ context.Context, unlock func(), _ error) {
	ctx, cancel := g.changeContext(ctx)
	unlock = func() { r.unlockChanges(); cancel() }
	select {
	case r.changing <- struct{}{}: // no other change is in progress; do not fail even if ctx has ended
		return ctx, unlock, nil
	default:
	}
	select {
	case r.changing <- struct{}{}:
		return ctx, unlock, nil
	case <-ended:
		cancel()
		return nil, nil, r.endedError()
	case <-ctx.Done():
		cancel()
		return nil, nil, fmt.Errorf("root %s is being changed: %w", r.name, ctx.Err())
	}
}

func (r *root) unlockChanges() { <-r.changing }

// lockLiveChanges is lockChanges for a root that has to be live. If the root is being ended,
// lockLiveChanges waits until everything is taken back through this root. It does not wait until
// the roots around this one are narrowed, because that step may be waiting for the caller.
func (g *Registry) lockLiveChanges(ctx context.Context, r *root) (_ context.Context, unlock func(), _ error) {
	ctx, unlock, err := g.lockChanges(ctx, r, r.takenBack)
	if err == nil && State(r.state.Load()) != Live {
		unlock()
		return nil, nil, r.endedError()
	}
	return ctx, unlock, err
}

// tryLockLive takes the right to change a root if it is live and nobody else changes it.
func (r *root) tryLockLive() bool {
	select {
	case r.changing <- struct{}{}:
	default:
		return false
	}
	if State(r.state.Load()) == Live {
		return true
	}
	r.unlockChanges()
	return false
}

// NoRoot is the error for a name that no root has.
func NoRoot(name RootName) error {
	return &Error{Op: names.OpSet, Kind: names.NotExist, Err: fmt.Errorf("no root is named %s; see: rootsfs roots list", names.Quote(string(name)))}
}

// endedError returns the error for an operation on a root that is overdue or not live.
func (r *root) endedError() *Error {
	if State(r.state.Load()) == UnavailableState {
		return &Error{Kind: names.Unavailable}
	}
	return &Error{Kind: names.Revoked}
}
