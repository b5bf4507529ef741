package guard

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A root inside another one is judged by both policies, through either name, and
// leaves a tombstone when it is revoked: revocation never widens. The outer root
// knows what lies in it as fences. Several roots can be one directory, when each
// is another subject's; what is granted to one subject is no business of the
// others', so a fence concerns only the callers its root is for. For a root that
// is everybody's, the roots of single subjects at the same directory are fences,
// too, which such a subject passes with every operation: its own grant bounds
// what it can do there by any name.

// fences are the nested roots and tombstones inside a root, recognised by
// identity, so that no other name for them is a way around: a directory by its
// own, a single file by that of its directory and by its name, because it may be
// replaced by renaming. (A hard link of the file is another file to us, as it is
// anywhere.) gen grows with every change, for handles to notice.
type fences struct {
	gen   uint64
	list  []fence
	peers []fence // at the root's own directory, for single subjects
}

type fence struct {
	id    Identity // of the directory
	name  string   // in it, of a single-file root; else ""
	rel   string
	root  *root // nil: a tombstone, nothing passes
	whose Subject
	epoch uint64 // of a tombstone
}

// concerns reports whether callers of a subject meet the fence.
func (f *fence) concerns(who Subject) bool { return who.Of(f.whose) }

func fenceOf(r *root, rel string) fence {
	return fence{id: r.src.ID(), name: r.src.File(), rel: rel, root: r, whose: r.grant.Subject}
}

func (t *tombstone) fence(rel string) fence {
	return fence{id: t.id, name: t.file, rel: rel, whose: t.whose, epoch: t.epoch}
}

// fence recomputes the fences of every root that contains one of the changed
// roots or a tombstone, and returns those whose fences changed. The caller
// holds mu.
func (g *Registry) fence(s *snapshot, changed []*root) []*root {
	var outers []*root
	mark := func(o *root) {
		if !slices.Contains(outers, o) {
			outers = append(outers, o)
		}
	}
	for _, c := range changed {
		s.around(c.grant.Resolved, c.place, mark)
		s.beside(c.grant.Resolved, c.place, mark)
	}
	for _, t := range g.tombs {
		s.around(t.dir, t.place, mark)
		s.beside(t.dir, t.place, mark)
	}
	if len(outers) == 0 {
		return nil
	}
	dirs, places := s.index.paths(byDir), s.index.paths(byPlace)
	var out []*root
	for _, o := range outers {
		if g.refence(s, dirs, places, o) {
			out = append(out, o)
		}
	}
	return out
}

// refence rebuilds one root's fences from the sorted paths and places of all
// roots and reports whether they changed.
func (g *Registry) refence(s *snapshot, dirs, places []string, o *root) bool {
	next := &fences{peers: g.peers(s, o)}
	mine := func(whose Subject) bool { return whose.Of(o.grant.Subject) || o.grant.Subject.Of(whose) }
	add := func(kind pathKind, at string, sorted []string) {
		first, _ := slices.BinarySearch(sorted, strings.TrimSuffix(at, "/")+"/")
		for _, d := range sorted[first:] {
			if !inside(at, d) {
				break
			}
			for _, r := range s.index[indexKey{kind, d}] {
				if r == o || !mine(r.grant.Subject) || slices.ContainsFunc(next.list, func(f fence) bool { return f.root == r }) {
					continue
				}
				rel, _ := o.lies(r.grant.Resolved, r.place)
				next.list = append(next.list, fenceOf(r, rel))
			}
		}
	}
	add(byDir, o.grant.Resolved, dirs)
	if o.place != "" {
		add(byPlace, o.place, places)
	}
	for _, t := range g.tombs {
		if rel, ok := o.lies(t.dir, t.place); ok && mine(t.whose) {
			next.list = append(next.list, t.fence(rel))
		}
	}
	slices.SortStableFunc(next.list, func(a, b fence) int {
		return cmp.Or(len(a.rel)-len(b.rel), cmp.Compare(a.rel, b.rel), cmp.Compare(a.whose, b.whose))
	})
	old := o.fences.Load()
	if slices.Equal(old.list, next.list) && slices.Equal(old.peers, next.peers) {
		return false
	}
	next.gen = old.gen + 1
	o.fences.Store(next)
	return true
}

// peers are the roots of single subjects, and what is left of such, at the
// directory of a root that is everybody's; and those of a subject's sessions at
// one that is the subject's.
func (g *Registry) peers(s *snapshot, o *root) (list []fence) {
	s.beside(o.grant.Resolved, o.place, func(r *root) {
		if r.grant.Subject.below(o.grant.Subject) && !slices.ContainsFunc(list, func(f fence) bool { return f.root == r }) {
			list = append(list, fenceOf(r, ""))
		}
	})
	for _, t := range g.tombs {
		if t.whose.below(o.grant.Subject) && t.id == o.src.ID() && t.file == o.src.File() {
			list = append(list, t.fence(""))
		}
	}
	slices.SortStableFunc(list, func(a, b fence) int { return cmp.Compare(a.whose, b.whose) })
	return list
}

// Fenced reports whether other roots or tombstones lie inside this one, so that
// every directory on the way has to be shown to Cross.
func (l *Lease) Fenced() bool { return len(l.fences.list) > 0 }

// RootID is the identity of the directory Dir refers to.
func (l *Lease) RootID() Identity { return l.root.src.ID() }

// Cross is told the identity of each directory a resolution passes.
// If it is a nested root, the operation needs that root's consent too; a
// tombstone refuses. It returns a number for the domain entered, 0 for none:
// two names in different domains are on different sides of a boundary (EXDEV).
func (l *Lease) Cross(id Identity) (domain uint64, err error) { return l.crossAt(id, "") }

// CrossName is told each name a resolution passes, and the identity of the
// directory it is in: a single-file root is that. Otherwise it is as Cross.
func (l *Lease) CrossName(dir Identity, name string) (domain uint64, err error) {
	return l.crossAt(dir, name)
}

func (l *Lease) crossAt(id Identity, name string) (domain uint64, err error) {
	who := l.req.Caller.Subject
	for i := range l.fences.list {
		f := &l.fences.list[i]
		if f.id != id || f.name != name || !f.concerns(who) {
			continue
		}
		if f.root == nil {
			if f.whose != who && l.grantedSince(f, who) {
				continue
			}
			return domain, &Error{Kind: names.Revoked}
		}
		if err := l.cross(f.root, false); err != nil {
			return f.root.epoch, err
		}
		if domain == 0 {
			domain = f.root.epoch
		}
	}
	return domain, nil
}

// grantedSince reports whether a subject got a directory for itself after it had
// been taken from everybody.
func (l *Lease) grantedSince(t *fence, who Subject) bool {
	return slices.ContainsFunc(l.fences.list, func(f fence) bool {
		return f.id == t.id && f.name == t.name && f.root != nil && who.Of(f.whose) && f.whose.below(t.whose) && f.root.epoch > t.epoch
	})
}

// meetPeers makes a subject's own grant of the directory take part in an
// operation through the root that is everybody's.
func (l *Lease) meetPeers() error {
	for _, p := range l.fences.peers {
		if !l.req.Caller.Subject.Of(p.whose) {
			continue
		}
		if p.root == nil {
			return &Error{Kind: names.Revoked}
		}
		if err := l.cross(p.root, true); err != nil {
			return err
		}
	}
	return nil
}

// cross takes part in a nested root, or a peer, for the rest of the operation.
func (l *Lease) cross(c *root, peer bool) error {
	if !slices.ContainsFunc(l.crossed, func(x crossing) bool { return x.root == c }) {
		gen, ok := c.acquire()
		if !ok {
			return c.gone()
		}
		if l.pinned {
			c.pins.Add(1)
			l.detached.cross(gen)
		}
		l.crossed = append(l.crossed, crossing{c, gen, peer})
		if c.once != nil {
			if err := l.use(c); err != nil {
				return err
			}
		}
		if err := l.pass(c); err != nil {
			return err
		}
	}
	have := c.policy.Load().Rights
	if lacks, ok := missing(l.req.Op, l.req.Need, have); !ok {
		return denied(lacks, have)
	}
	c.lastUse.Store(l.start.UnixNano())
	return nil
}
