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

// nesting are the nested roots and tombstones inside a root, recognised by
// identity, so that no other name for them is a way around: a directory by its
// own, a single file by that of its directory and by its name, because it may be
// replaced by renaming. (A hard link of the file is another file to us, as it is
// anywhere.) gen grows with every change, for handles to notice.
type nesting struct {
	gen           uint64
	nested        []nestedRoot
	sameDirectory []nestedRoot // at the root's own directory, for single subjects
}

type nestedRoot struct {
	id    Identity // of the directory
	name  string   // in it, of a single-file root; else ""
	rel   string
	root  *root // nil: a tombstone, nothing passes
	whose Subject
	epoch uint64 // of a tombstone
}

// concerns reports whether callers of a subject meet the fence.
func (f *nestedRoot) concerns(who Subject) bool { return f.whose.Covers(who) }

func nestedRootOf(r *root, rel string) nestedRoot {
	return nestedRoot{id: r.src.ID(), name: r.src.File(), rel: rel, root: r, whose: r.grant.Subject}
}

func (t *tombstone) nestedRoot(rel string) nestedRoot {
	return nestedRoot{id: t.id, name: t.file, rel: rel, whose: t.whose, epoch: t.epoch}
}

// updateNesting recomputes the fences of every root that contains one of the changed
// roots or a tombstone, and returns those whose fences changed. The caller
// holds mu.
func (g *Registry) updateNesting(s *snapshot, changed []*root) []*root {
	var outers []*root
	mark := func(o *root) {
		if !slices.Contains(outers, o) {
			outers = append(outers, o)
		}
	}
	for _, c := range changed {
		s.eachOuter(c.grant.Resolved, c.location, mark)
		s.eachAt(c.grant.Resolved, c.location, mark)
	}
	for _, t := range g.tombs {
		s.eachOuter(t.dir, t.location, mark)
		s.eachAt(t.dir, t.location, mark)
	}
	if len(outers) == 0 {
		return nil
	}
	dirs, places := s.index.paths(byDir), s.index.paths(byLocation)
	var out []*root
	for _, o := range outers {
		if g.rebuildNesting(s, dirs, places, o) {
			out = append(out, o)
		}
	}
	return out
}

// rebuildNesting rebuilds one root's fences from the sorted paths and places of all
// roots and reports whether they changed.
func (g *Registry) rebuildNesting(s *snapshot, dirs, places []string, o *root) bool {
	next := &nesting{sameDirectory: g.sameDirectory(s, o)}
	mine := func(whose Subject) bool { return o.grant.Subject.Covers(whose) || whose.Covers(o.grant.Subject) }
	add := func(kind pathKind, at string, sorted []string) {
		first, _ := slices.BinarySearch(sorted, strings.TrimSuffix(at, "/")+"/")
		for _, d := range sorted[first:] {
			if !inside(at, d) {
				break
			}
			for _, r := range s.index[indexKey{kind, d}] {
				if r == o || !mine(r.grant.Subject) || slices.ContainsFunc(next.nested, func(f nestedRoot) bool { return f.root == r }) {
					continue
				}
				rel, _ := o.relativePath(r.grant.Resolved, r.location)
				next.nested = append(next.nested, nestedRootOf(r, rel))
			}
		}
	}
	add(byDir, o.grant.Resolved, dirs)
	if o.location != "" {
		add(byLocation, o.location, places)
	}
	for _, t := range g.tombs {
		if rel, ok := o.relativePath(t.dir, t.location); ok && mine(t.whose) {
			next.nested = append(next.nested, t.nestedRoot(rel))
		}
	}
	slices.SortStableFunc(next.nested, func(a, b nestedRoot) int {
		return cmp.Or(len(a.rel)-len(b.rel), cmp.Compare(a.rel, b.rel), cmp.Compare(a.whose, b.whose))
	})
	old := o.nesting.Load()
	if slices.Equal(old.nested, next.nested) && slices.Equal(old.sameDirectory, next.sameDirectory) {
		return false
	}
	next.gen = old.gen + 1
	o.nesting.Store(next)
	return true
}

// sameDirectory are the roots of single subjects, and what is left of such, at the
// directory of a root that is everybody's; and those of a subject's sessions at
// one that is the subject's.
func (g *Registry) sameDirectory(s *snapshot, o *root) (list []nestedRoot) {
	s.eachAt(o.grant.Resolved, o.location, func(r *root) {
		if r.grant.Subject.isNarrowerThan(o.grant.Subject) && !slices.ContainsFunc(list, func(f nestedRoot) bool { return f.root == r }) {
			list = append(list, nestedRootOf(r, ""))
		}
	})
	for _, t := range g.tombs {
		if t.whose.isNarrowerThan(o.grant.Subject) && t.id == o.src.ID() && t.file == o.src.File() {
			list = append(list, t.nestedRoot(""))
		}
	}
	slices.SortStableFunc(list, func(a, b nestedRoot) int { return cmp.Compare(a.whose, b.whose) })
	return list
}

// HasNested reports whether other roots or tombstones lie inside this one, so that
// every directory on the way has to be shown to Cross.
func (l *Lease) HasNested() bool { return len(l.nesting.nested) > 0 }

// RootID is the identity of the directory Dir refers to.
func (l *Lease) RootID() Identity { return l.root.src.ID() }

// EnterNested is told the identity of each directory a resolution passes.
// If it is a nested root, the operation needs that root's consent too; a
// tombstone refuses. It returns a number for the domain entered, 0 for none:
// two names in different domains are on different sides of a boundary (EXDEV).
func (l *Lease) EnterNested(id Identity) (domain uint64, err error) { return l.enterNestedAt(id, "") }

// EnterNestedName is told each name a resolution passes, and the identity of the
// directory it is in: a single-file root is that. Otherwise it is as Cross.
func (l *Lease) EnterNestedName(dir Identity, name string) (domain uint64, err error) {
	return l.enterNestedAt(dir, name)
}

func (l *Lease) enterNestedAt(id Identity, name string) (domain uint64, err error) {
	who := l.req.Caller.Subject
	for i := range l.nesting.nested {
		f := &l.nesting.nested[i]
		if f.id != id || f.name != name || !f.concerns(who) {
			continue
		}
		if f.root == nil {
			if f.whose != who && l.grantedSince(f, who) {
				continue
			}
			return domain, &Error{Kind: names.Revoked}
		}
		if err := l.enterRoot(f.root, false); err != nil {
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
func (l *Lease) grantedSince(t *nestedRoot, who Subject) bool {
	return slices.ContainsFunc(l.nesting.nested, func(f nestedRoot) bool {
		return f.id == t.id && f.name == t.name && f.root != nil && f.whose.Covers(who) && f.whose.isNarrowerThan(t.whose) && f.root.epoch > t.epoch
	})
}

// enterSameDirectory makes a subject's own grant of the directory take part in an
// operation through the root that is everybody's.
func (l *Lease) enterSameDirectory() error {
	for _, p := range l.nesting.sameDirectory {
		if !p.whose.Covers(l.req.Caller.Subject) {
			continue
		}
		if p.root == nil {
			return &Error{Kind: names.Revoked}
		}
		if err := l.enterRoot(p.root, true); err != nil {
			return err
		}
	}
	return nil
}

// enterRoot takes part in a nested root, or a peer, for the rest of the operation.
func (l *Lease) enterRoot(c *root, peer bool) error {
	if !slices.ContainsFunc(l.crossed, func(x crossing) bool { return x.root == c }) {
		gen, ok := c.acquire()
		if !ok {
			return c.endedError()
		}
		if l.pinned {
			c.pins.Add(1)
			l.detached.cross(gen)
		}
		l.crossed = append(l.crossed, crossing{c, gen, peer})
		if c.once != nil {
			if err := l.useOnce(c); err != nil {
				return err
			}
		}
		if err := l.chargeNested(c); err != nil {
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
