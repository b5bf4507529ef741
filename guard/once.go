package guard

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A grant for one use (Policy.Once) is of a single file. Looking at the file (its name, its
// attributes) does not count as a use. The use begins with the first operation that reads or
// changes the file, and belongs to the subject and the front end of that operation:
//
//   - The use of an opening lasts until the last copy of the descriptor and the last
//     mapping are closed. What the subject does to the file meanwhile is part of the use,
//     except opening the file again.
//   - Any other operation, such as a server's files/read or files/write, is the whole use.
//     An operation that fails without having moved a byte does not count.
//
// During the use an operation that would begin another is refused. After the use the root
// ends as by a revocation. Until it has ended, taken stays true, so that no second use
// begins. Watching such a file is refused.

// once is the one use of a root.
type once struct {
	mu    sync.Mutex // guards the fields below
	taken bool       // the use has begun
	done  bool       // the use is over
	open  int        // open files that belong to the use
	who   Subject    // whose use it is
	via   Via        // the front end it came through
}

var (
	errUsed    = errors.New("the file is granted for one use, which has begun; for another use the owner has to grant it again")
	errNoWatch = errors.New("a file that is granted for one use cannot be watched; read it instead")
)

// take admits or refuses an operation. began reports whether the use begins with it.
func (o *once) take(req *Request) (began bool, err error) {
	if rules.OnlyLooks(req.Op) {
		return false, nil
	}
	if req.Op == names.OpWatch {
		return false, &Error{Kind: names.Permission, Err: errNoWatch}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.done:
		return false, &Error{Kind: names.Revoked}
	case !o.taken && req.Dry != nil:
		return false, nil
	case !o.taken:
		o.taken, o.who, o.via = true, req.Caller.Subject, req.Caller.Via
		return true, nil
	case o.open > 0 && o.who == req.Caller.Subject && o.via == req.Caller.Via && (req.Op != names.OpOpen || req.Quiet):
		return false, nil
	}
	return false, &Error{Kind: names.Permission, Err: errUsed}
}

// opened counts one more open file. The use lasts at least until closed is called for it.
func (o *once) opened() {
	o.mu.Lock()
	o.open++
	o.mu.Unlock()
}

// closed counts one open file less. done reports that the use is over.
func (o *once) closed() (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == 0 {
		return false
	}
	o.open--
	o.done = o.open == 0
	return o.done
}

// end ends the operation that began the use. If used is false, the operation does not count
// as a use. done reports that the use is over.
func (o *once) end(used bool) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !used:
		o.taken = false
	case o.open == 0:
		o.done = true
	}
	return o.done
}

// state returns the use's state as `rootsfs status` shows it.
func (o *once) state() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.done:
		return "used"
	case o.taken:
		return "in use"
	}
	return "unused"
}

// useOnce admits the operation on a root for one use, or refuses it. If the use begins with
// the operation, the lease notes the root for endUses.
func (c Charges) useOnce(r *root) error {
	if c.l.notes != nil && slices.Contains(c.l.notes.uses, r) {
		return nil // admitted already, before it waited
	}
	began, err := r.once.take(&c.l.req)
	if began {
		c.l.Notes().ensure().uses = append(c.l.notes.uses, r)
	}
	return err
}

// endUses calls once.end for the uses that began with the operation.
func (c Charges) endUses(used bool) {
	if c.l.notes == nil || len(c.l.notes.uses) == 0 {
		return
	}
	for _, r := range c.l.notes.uses {
		if r.once.end(used) {
			c.l.reg.spend(r)
		}
	}
	c.l.notes.uses = nil
}

// closed counts a file as closed in the roots for one use that it was opened through.
func (g *Registry) closed(h *Hold) {
	for _, r := range append([]*root{h.root}, h.crossed...) {
		if r.once != nil && r.once.closed() {
			g.spend(r)
		}
	}
}

// spend ends a root whose one use is over. It does not wait for the end of the root, which
// waits for the caller's operation.
func (g *Registry) spend(r *root) {
	go func() { _, _ = g.end(context.Background(), r, SpentState) }() // its failure is in the event and the record
}
