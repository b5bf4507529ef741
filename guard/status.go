package guard

import (
	"cmp"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Status describes a root for the owner.
type Status struct {
	Grant     Grant
	Epoch     uint64
	State     State
	FSType    string
	Remote    bool
	FileRoot  bool
	InFlight  int64
	Waiting   int64 // for the speed limit; not in flight
	Ops       int64
	Refused   int64
	BytesRead int64
	Written   int64
	Created   int64
	LastUse   time.Time // zero: never
	ID        rules.Identity
	Nested    []string // relative paths of nested roots and tombstones
	// Repos are the directories of the repositories that the root's users made, as paths below
	// the root; "" is the root itself. The hooks and the configuration of these repositories
	// are untrusted. A bare repository is listed by its own directory. So are .git/modules/NAME
	// and .git/worktrees/NAME in a repository that the root's users did not make.
	Repos []string
	// Once is the state of a root for one use: "unused", "in use" or "used". It is "" for
	// any other root.
	Once string
	// Stage describes the store of a staged root; nil for any other root.
	Stage *StageStatus
}

// Roots lists the roots, by name. The result is the caller's own. Like Lookup and RootsOf it
// answers from memory and accesses no file system: callers list the roots to revoke them, and a
// file system that hangs must not delay that.
func (g *Registry) Roots() []Status { return g.statuses(func(*root) bool { return true }) }

// RootsOf lists the roots that a subject may know of, by name: its own and everybody's. A live
// root for everybody is left out if the subject has a root of its own at the same directory, or
// had one that has ended. The result is the caller's own.
func (g *Registry) RootsOf(who Subject) []Status {
	own := func(f nestedRoot) bool { return f.whose.Covers(who) }
	return g.statuses(func(r *root) bool {
		return r.grant.Subject.Covers(who) && (State(r.state.Load()) != Live || !slices.ContainsFunc(r.nesting.Load().sameDirectory, own))
	})
}

// ShownRoots lists the roots that the broker and the tools show a subject: those of RootsOf
// that are live and not Implicit.
func (g *Registry) ShownRoots(who Subject) []Status {
	return slices.DeleteFunc(g.RootsOf(who), func(st Status) bool { return st.State != Live || st.Grant.Implicit })
}

func (g *Registry) statuses(which func(*root) bool) []Status {
	snap := g.snap.Load()
	out := make([]Status, 0, len(snap.byName))
	for _, r := range snap.byName {
		if which(r) {
			out = append(out, r.status())
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Grant.Root, b.Grant.Root) })
	return out
}

// Holds reports whether an absolute, clean path lies in a live root that a subject
// sees and that is not "/". Only the text of paths is compared.
func (g *Registry) Holds(who Subject, p string) bool {
	r, _, ok := g.snap.Load().find(who, p)
	return ok && r.grant.Resolved != "/"
}

// Free returns how many bytes are free on the file system of a live root; ok is false if that
// is not known. Free may block if the source hangs, but no ending of a root waits for it.
func (g *Registry) Free(name RootName) (n int64, ok bool) {
	r := g.snap.Load().byName[name]
	if r == nil {
		return 0, false
	}
	unpin, ok := r.pin()
	if !ok {
		return 0, false
	}
	defer unpin()
	n, err := r.src.Free()
	return n, err == nil
}

// fromRoot returns the result of get for a root; ok is false if there is no such root.
func fromRoot[T any](g *Registry, name RootName, get func(*root) T) (v T, ok bool) {
	r := g.snap.Load().byName[name]
	if r == nil {
		return v, false
	}
	return get(r), true
}

// Lookup returns one root's status.
func (g *Registry) Lookup(name RootName) (Status, bool) { return fromRoot(g, name, (*root).status) }

// Dir returns the resolved path of a root.
func (g *Registry) Dir(name RootName) (string, bool) {
	return fromRoot(g, name, func(r *root) string { return r.grant.Resolved })
}

// SubjectOf returns whom one root is granted to.
func (g *Registry) SubjectOf(name RootName) (Subject, bool) {
	return fromRoot(g, name, func(r *root) Subject { return r.grant.Subject })
}

// EpochOf returns the epoch of one root. It is cheap: one look-up in a map.
func (g *Registry) EpochOf(name RootName) (uint64, bool) {
	return fromRoot(g, name, func(r *root) uint64 { return r.epoch })
}

// Version returns the number of the current snapshot, which grows with every change of the set
// of roots.
func (g *Registry) Version() uint64 { return g.snap.Load().version }

func (r *root) status() Status {
	s := Status{
		Grant: r.grant, Epoch: r.epoch, State: State(r.state.Load()),
		FSType: r.src.FSType(), Remote: r.src.Remote(), FileRoot: r.src.File() != "",
		Waiting: r.waiting.Load(),
		Ops:     r.ops.Load(), Refused: r.refused.Load(), BytesRead: r.read.Load(),
		Written: r.Written(), Created: r.Account.Created(), ID: r.src.ID(),
	}
	s.InFlight, _ = r.gen.Load().counted()
	s.Grant.Policy = *r.policy.Load()
	s.Grant.Expires, s.LastUse = r.life.End(), r.life.LastUse()
	for _, f := range r.nesting.Load().nested {
		s.Nested = append(s.Nested, f.rel)
	}
	s.Repos = r.facts.Repos()
	if r.once != nil {
		s.Once = r.once.State()
	}
	if src, ok := r.src.(Staged); ok {
		stage := src.Staged()
		s.Stage = &stage
	}
	return s
}

// RulesOf returns the rules in force in a root, in the order in which they are judged; nil if
// there is no such root, or it has no rules.
func (g *Registry) RulesOf(name RootName) []*pattern.Rule {
	r := g.snap.Load().byName[name]
	if r == nil || r.policy.Load().Rules() == nil {
		return nil
	}
	return r.policy.Load().Rules().Rules()
}
