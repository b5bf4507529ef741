package guard

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Notes collects facts that an operation finds out while it runs: for its record, for rules,
// and for the quotas.
type Notes struct{ l *Lease }

// Notes returns the notes of the operation.
func (l *Lease) Notes() Notes { return Notes{l} }

// notes are facts that an operation finds out while it runs. A detached part shares them with
// its lease.
type notes struct {
	repo    atomic.Pointer[string] // where a repository was made, below the root
	existed atomic.Bool            // the object existed already
	// openNeed has the rights for opening an object that existed and is not created
	// (Notes.ContinueAsOpen); otherwise it is 0.
	openNeed atomic.Uint32
	// What Charges.Add has reserved since admission.
	chargedBytes, chargedNames atomic.Int64

	uses []*root // whose one use began with the operation

	mu sync.Mutex // guards the fields below
	// chargedNested are the accounts of nested roots that are charged like the root's.
	chargedNested []*ledger.Account
	// resolved and resolved2 are where the links of the request's Path and Path2 led; zero if
	// there were no links.
	resolved, resolved2 Path
	remark              string
	target              string // see Notes.RefusedLink
}

// ensure returns the notes of the operation. The first call allocates them, because most
// operations need none.
func (n Notes) ensure() *notes {
	if n.l.notes == nil {
		n.l.notes = &notes{}
	}
	return n.l.notes
}

// Resolved records that the links of asked, which is the request's Path or Path2, led to q. The
// operation's record is then about q. The latest call counts.
func (n Notes) Resolved(asked, q Path) {
	if asked == n.l.req.Path {
		n.l.req.Dry.noteResolved(q)
	}
	n.ensure().mu.Lock()
	defer n.l.notes.mu.Unlock()
	if asked == n.l.req.Path {
		n.l.notes.resolved = q
	}
	if asked == n.l.req.Path2 {
		n.l.notes.resolved2 = q
	}
}

// addTo makes a record say which paths the links led to, and adds the requested paths and the
// remark to the detail. It also sets the record's Target.
func (n *notes) addTo(rec *Record) {
	if n == nil {
		return
	}
	n.mu.Lock()
	q, q2, remark := n.resolved, n.resolved2, n.remark
	rec.Target = names.Brief(n.target)
	n.mu.Unlock()
	var details []string
	if q.Root != "" && q != rec.Path {
		details = append(details, RequestedPath(rec.Path, q))
		rec.Path = q
	}
	if q2.Root != "" && q2 != rec.Path2 {
		details = append(details, RequestedPath(rec.Path2, q2))
		rec.Path2 = q2
	}
	for _, text := range []string{rec.Detail, remark} {
		if text != "" {
			details = append(details, text)
		}
	}
	rec.Detail = strings.Join(details, "; ")
}

// Remark sets a text that is added to the detail of the operation's record. It must hold no host
// path.
func (n Notes) Remark(text string) {
	n.ensure().mu.Lock()
	defer n.l.notes.mu.Unlock()
	n.l.notes.remark = text
}

// RefusedLink sets Record.Target, the text of the link that was refused.
func (n Notes) RefusedLink(target string) {
	n.ensure().mu.Lock()
	defer n.l.notes.mu.Unlock()
	n.l.notes.target = target
}

// Created records the file that the operation has made, so that Lease.MayChange permits changes of
// its attributes. With the right to write these are permitted for any file, and Created does
// nothing.
func (n Notes) Created(id rules.Identity) {
	if n.l.Narrowest()&Write == 0 {
		n.l.root.created.Add(id)
	}
}

// Link notes a link that the resolution has met, for a dry run. isRefused says that it leaves
// the root.
func (n Notes) Link(link MetLink, isRefused bool) {
	if n.l.req.Dry != nil {
		n.l.req.Dry.note(Step{Kind: StepLink, Root: n.l.root.name, Link: link, Refused: isRefused})
	}
}

// Opened says that the operation has opened a file. In a root for one use, the use lasts at least
// until Registry.Closed is called for the file.
func (n Notes) Opened() {
	if n.l.root.once != nil {
		n.l.root.once.AddOpen()
	}
	for _, c := range n.l.crossed {
		if c.root.once != nil {
			c.root.once.AddOpen()
		}
	}
}

// Existing says that the object to be created exists already: the name that was reserved
// for it is refunded, and success leaves no record.
func (n Notes) Existing() { n.ensure().existed.Store(true) }

// ContinueAsOpen turns a create operation whose file exists already into an open operation.
// It calls Existing, checks the rights that the opening takes, and makes the record one
// of an opening.
func (n Notes) ContinueAsOpen(need Rights) error {
	n.Existing()
	n.l.notes.openNeed.Store(uint32(need))
	n.l.req.becomeOpen(need)
	if lacks := rules.Lacked(n.l.req.Op, need, n.l.Narrowest()); lacks != 0 {
		return n.l.Denied(lacks)
	}
	return nil
}

// Name records the name of a file or directory that the operation has created.
func (n Notes) Name(dirRel, name string, id rules.Identity, dir bool) {
	n.Part(dirRel, name, id, dir)
	n.NewName(dirRel, name)
}

// Part records that the operation has given a name to a file or directory, perhaps in the place
// of another one. If that begins a repository, Part notes that the root's users made it. Part does
// this in roots without protections, too, because new repositories are reported to the owner.
func (n Notes) Part(dirRel, name string, id rules.Identity, dir bool) {
	if !builtin.MayBePart(dirRel, name) {
		return
	}
	_ = n.l.Judge().eachRoot(rules.Join(dirRel, name), func(r *root, rel string) error {
		if top, ok := r.facts.NotePart(rel, id, dir); ok {
			n.repository(r, top)
		}
		return nil
	})
}

// NewName records that a name exists now that did not exist before, for example by a rename or
// a link. With that name its directory may have become a bare repository. Name calls NewName.
func (n Notes) NewName(dirRel, name string) {
	if !builtin.MayMakeBare(name) {
		return
	}
	_ = n.l.Judge().eachRoot(rules.Join(dirRel, name), func(r *root, rel string) error {
		if top, ok := r.facts.NoteNewName(rel); ok {
			n.repository(r, top)
		}
		return nil
	})
}

// repository stores, for the record, that the operation has made a repository at top, if r is the
// operation's root.
func (n Notes) repository(r *root, top string) {
	if r == n.l.root {
		n.ensure().repo.Store(&top)
	}
}

// untrusted is the text in the record of a new repository.
const untrusted = "a repository created by the server: its hooks and configuration are untrusted"

// Removed records that the operation has removed a name.
func (n Notes) Removed(rel string) {
	_ = n.l.Judge().eachRoot(rel, func(r *root, rel string) error { r.facts.NoteRemoved(rel); return nil })
}

// Moved records that the operation has moved a name, or with exchange has swapped two.
func (n Notes) Moved(from, to string, exchange bool) {
	n.l.root.facts.NoteMoved(from, to, exchange)
	for i := range n.l.nesting.scopes {
		s := &n.l.nesting.scopes[i]
		f, moved := s.below(from)
		t, inside := s.below(to)
		if moved && inside {
			s.root.facts.NoteMoved(f, t, exchange)
		}
	}
}

func (n Notes) madeRepo() bool { return n.l.notes != nil && n.l.notes.repo.Load() != nil }

// notifyRepository tells the owner of the repository that the operation has made, if there is one.
func (n Notes) notifyRepository() {
	if n.madeRepo() {
		at, _ := names.NewPath(n.l.root.name, *n.l.notes.repo.Load())
		n.l.reg.notify(Event{Kind: EventRepository, Root: n.l.root.name, Detail: names.Escape(at.String()) + ": " + untrusted})
	}
}
