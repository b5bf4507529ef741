package guard

import (
	"errors"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A revocation of a root also covers answers that hold data of the root and that the peer has not
// received yet. An answer may wait long if the peer does not read, and a revocation does not wait
// for the peer.
// So the writer of the answer checks its Stamps at the moment of the write.

// Stamps are the roots that an answer is made from, each as it was when the request first
// named it. Add must not be called at the same time as another method.
type Stamps struct {
	registry *Registry
	who      Subject
	list     []stamp
}

// stamp is a root at the moment at which a request first named it.
type stamp struct {
	name     RootName
	root     *root // nil: there was no such root
	narrowed uint64
}

// Stamps returns the stamps of a request that has named no root yet.
func (g *Registry) Stamps(who Subject) Stamps { return Stamps{registry: g, who: who} }

// Add notes a root. The caller calls it before it reads anything in the root.
func (s *Stamps) Add(name RootName) {
	for i := range s.list {
		if s.list[i].name == name {
			return
		}
	}
	added := stamp{name: name, root: s.registry.snap.Load().byName[name]}
	if added.root != nil {
		added.narrowed = added.root.narrowed.Load()
	}
	s.list = append(s.list, added)
}

// Err returns nil while the subject may still get the data that was read in the roots since
// they were added. An error says which root has ended or was narrowed, or why the subject is
// barred. A root for one use (Policy.Once) may be spent, because the answer is part of the use.
func (s *Stamps) Err() error {
	for i := range s.list {
		at := &s.list[i]
		if at.root == nil {
			return at.refusal(&Error{Kind: names.Revoked})
		}
		state := State(at.root.state.Load())
		switch {
		case state != Live && state != SpentState, state == Live && s.registry.isOverdue(at.root, false):
			return at.refusal(at.root.endedError())
		case at.root.narrowed.Load() != at.narrowed:
			return at.refusal(&Error{Kind: names.Conflict, Err: errors.New("what may be read in the root, or in a root inside it, has changed meanwhile")})
		}
	}
	if len(s.list) > 0 {
		var barred *Error
		if errors.As(s.registry.Barred(s.who), &barred) {
			return s.list[0].refusal(barred)
		}
	}
	return nil
}

func (s *stamp) refusal(e *Error) error {
	e.Op, e.Path = names.OpRead, Path{Root: s.name}
	return e
}
