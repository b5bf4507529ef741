package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// ChangeKind is the kind of a root's change, for a View.
type ChangeKind uint8

// The kinds of change.
const (
	// ChangeEnded: no file of the root may be reachable any more.
	ChangeEnded ChangeKind = iota + 1
	// ChangeNarrowed: the root lost rights, its patterns changed, a root inside it was granted,
	// narrowed or ended, or one of its subjects was suspended. Everything that was handed out
	// before has to be judged again.
	ChangeNarrowed
	// ChangeWidened and ChangeAdded take nothing away.
	ChangeWidened
	ChangeAdded
	// ChangePaused: the gate refuses everything for a while. What was handed out before is taken
	// back, but it lives: it works again after the pause.
	ChangePaused
)

// Change is one change of a root, as it is passed to views.
type Change struct {
	Root  RootName
	Epoch uint64
	Kind  ChangeKind
}

// View is a way in which the kernel or a peer sees a root: a mount, a watch hub, a brokered
// session. Invalidate takes back everything that was handed out before and that the change
// forbids, and returns when nothing of that can be used any more. If ctx ends earlier, it returns
// an error that says what could not be taken back.
type View interface {
	Invalidate(ctx context.Context, c Change) error
}

// Flusher is a View that may hold data not yet written. Flush is called while the gate is
// still open. No rate limit applies to the writes of Flush.
type Flusher interface {
	Flush(ctx context.Context, c Change) error
}

// Objector is a View that does not support every policy. Object is called before a grant (old is
// nil) or a change of a policy takes effect. An error of Object refuses the grant or change.
type Objector interface {
	Object(old *Policy, next Policy) error
}

// EventKind classifies events.
type EventKind string

// The kinds of events.
const (
	EventAdded       EventKind = "added"
	EventRevoked     EventKind = "revoked"
	EventExpired     EventKind = "expired"
	EventUnavailable EventKind = "unavailable"
	EventChanged     EventKind = "changed"
	EventRefusal     EventKind = "refusal"
	// EventRepository: a root's user has made a repository in the root.
	EventRepository EventKind = "repository"
	// EventAbuse: a subject was refused too often.
	EventAbuse EventKind = "abuse"
	// EventSuspended: a subject was suspended for its refusals. EventPaused: the gate refuses all
	// (pause.go). EventResumed: one of these has ended.
	EventSuspended EventKind = "suspended"
	EventPaused    EventKind = "paused"
	EventResumed   EventKind = "resumed"
	// EventUnrecorded: a file was closed, and the record of that was not taken. It is not
	// repeated until a close was recorded again.
	EventUnrecorded EventKind = "unrecorded"
)

// Event tells observers (Config.Observe) what has happened. Record is set for EventRefusal, which
// reports refused and failed operations.
type Event struct {
	Time   time.Time
	Kind   EventKind
	Root   RootName
	Detail string
	Record *Record
}

// Config configures a Registry. Opener is required.
type Config struct {
	Opener  Opener
	Auditor Auditor // nil: nothing is recorded
	Rules   rules.RootRules
	// Observe is called for every event, after the change; it must not block. Of the locks of
	// this package, only those that the package comment lists may be held during the call.
	Observe func(Event)
	// History remembers the directories that programs could write; nil: only this registry's
	// live roots count.
	History rules.History
	// Deadline bounds how long the end of a root, or another change of it, waits (default
	// EndDeadline).
	Deadline time.Duration
}

// EndDeadline is how long the end of a root waits for operations and views that hang.
const EndDeadline = 2 * time.Second

// Registry holds the grants. Readers see immutable snapshots.
type Registry struct {
	cfg    Config
	snap   atomic.Pointer[snapshot]
	epochs atomic.Uint64
	clock  ledger.Clock

	moves  moveLocks
	quotas ledger.Quotas

	offenders ledger.Offenders
	pauses    pauses

	closeLost atomic.Bool // the record of the latest close was not taken

	links atomic.Pointer[map[string]string] // see NoteLink; not changed but replaced

	mu    sync.Mutex // guards the fields below and the making of snapshots
	views []View
	past  map[RootName]Subject // subjects of the roots that have ended in this session
	tombs []tombstone
	rules rules.RootRules
	// closing has a channel for each staged root that has ended and whose store is not closed
	// yet. The channel is closed when the store is closed.
	closing map[*root]chan struct{}
}

// snapshot is one state of the registry. Only the atomics of its roots change.
type snapshot struct {
	version uint64
	byName  map[RootName]*root
	index   index
	longest int     // bytes; no path byDir or byRequested is longer
	staged  []*root // replaced, not changed: snapshots share it
}

// next returns a copy that the caller may change.
func (s *snapshot) next() *snapshot {
	return &snapshot{version: s.version + 1, longest: s.longest, staged: s.staged, byName: maps.Clone(s.byName), index: maps.Clone(s.index)}
}

// tombstone says that a nested root was revoked, expired or spent, so that the root around it
// does not reach the files of the nested root again.
type tombstone struct {
	dir      string // where the root was; of a single-file root, the file's path
	location string
	id       rules.Identity
	file     string // of a single-file root, its name
	whose    Subject
	epoch    uint64 // the registry's latest, when the root ended
}

// NewRegistry returns an empty registry: it denies everything.
func NewRegistry(cfg Config) *Registry {
	if cfg.Deadline <= 0 {
		cfg.Deadline = EndDeadline
	}
	g := &Registry{cfg: cfg, clock: ledger.NewClock(), past: map[RootName]Subject{}, rules: cfg.Rules}
	g.snap.Store(&snapshot{byName: map[RootName]*root{}, index: index{}})
	return g
}

// AddView makes the registry call v for every change from now on.
func (g *Registry) AddView(v View) {
	g.mu.Lock()
	g.views = append(slices.Clone(g.views), v)
	g.mu.Unlock()
}

// RemoveView undoes AddView. A change in progress may still call v.
func (g *Registry) RemoveView(v View) {
	g.mu.Lock()
	g.views = slices.DeleteFunc(slices.Clone(g.views), func(have View) bool { return have == v })
	g.mu.Unlock()
}

// ReservePaths adds files and directories of rootsfs itself, which no root may contain or lie in.
func (g *Registry) ReservePaths(k ...rules.ReservedPath) {
	g.mu.Lock()
	g.rules.ReservedPaths = append(slices.Clone(g.rules.ReservedPaths), k...)
	g.mu.Unlock()
}

// rootRules returns the rules in force about which directories may be roots.
func (g *Registry) rootRules() rules.RootRules {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rules
}

// objection returns the first objection of a view.
func (g *Registry) objection(old *Policy, next Policy) error {
	g.mu.Lock()
	views := g.views
	g.mu.Unlock()
	for _, v := range views {
		if o, ok := v.(Objector); ok {
			if err := o.Object(old, next); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit makes the new roots part of a new snapshot, or changes nothing. outers are the
// roots whose nesting has changed.
func (g *Registry) commit(added []*root) (outers []*root, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := g.snap.Load().next()
	for _, r := range added {
		// The ceilings may have been lowered meanwhile.
		if err := g.rules.CheckCeilings(r.grant.Resolved, r.grant.Policy.Rights); err != nil {
			return nil, err
		}
		if !g.rules.End(r.grant.Expires, r.life.EndSetAt()).Equal(r.grant.Expires) {
			return nil, &Error{Kind: names.Permission, Err: errors.New("the ceiling of this machine was lowered at this moment; ask again")}
		}
		if have := next.byName[r.name]; have != nil {
			if State(have.state.Load()) != UnavailableState {
				return nil, &Error{Kind: names.Exist, Err: fmt.Errorf(
					"the name %s is taken by %s; give this root another one: NAME=%s",
					names.Quote(string(r.name)), names.Quote(have.grant.Resolved), names.Escape(r.grant.Dir))}
			}
			next.drop(have) // it has ended already
		}
		have := next.index.of(indexKey{byDir, r.grant.Resolved}, r.grant.Subject)
		if have == nil && r.location != "" {
			have = next.index.of(indexKey{byLocation, r.location}, r.grant.Subject) // by another path
		}
		if have != nil {
			return nil, &Error{Kind: names.Exist, Err: fmt.Errorf(
				"%s is already the root %s; change it with: rootsfs roots set %s MODE",
				names.Quote(r.grant.Resolved), names.Quote(string(have.name)), names.ShellWord(string(have.name)))}
		}
		if err := next.checkStagedNesting(r); err != nil {
			return nil, err
		}
		next.put(r)
	}
	for _, r := range added { // after the last error
		delete(g.past, r.name)
		g.tombs = slices.DeleteFunc(g.tombs, func(t tombstone) bool {
			return t.id == r.src.ID() && t.file == r.src.File() && r.grant.Subject.Covers(t.whose)
		})
	}
	outers = g.updateNesting(next, added)
	g.snap.Store(next)
	return outers, nil
}

// WasRevoked reports whether a root of this name was granted to the subject, or to everybody, and
// has ended. For any other subject it is as if the root had never existed. The grant of another
// root with this name makes WasRevoked forget the ended one.
func (g *Registry) WasRevoked(name RootName, who Subject) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	whose, ok := g.past[name]
	return ok && whose.Covers(who)
}

// invalidateViews passes a change to every view, all at once, and joins their errors.
func (g *Registry) invalidateViews(ctx context.Context, c Change) error {
	return g.eachView(func(v View) error { return v.Invalidate(ctx, c) })
}

func (g *Registry) eachView(f func(View) error) error {
	g.mu.Lock()
	views := g.views
	g.mu.Unlock()
	errs := make([]error, len(views))
	var wg sync.WaitGroup
	for i, v := range views {
		wg.Go(func() { errs[i] = f(v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (g *Registry) notify(e Event) {
	if g.cfg.Observe == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	g.cfg.Observe(e)
}
