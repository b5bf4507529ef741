package guard

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A root can lie inside another one. When a file in the inner root is reached through the outer
// root, both policies judge it. An inner root that is revoked, expired or spent leaves a
// tombstone, so that the outer root refuses the files of the inner one. Each root has a list of
// the roots and tombstones in it (nesting).
//
// Several roots can have the same directory, if each is for a different subject. A nested root
// concerns only the callers that its subject covers. The root of a single subject counts as nested in a
// root for everybody at the same directory. With every operation through the root for everybody,
// the subject also enters its own root, so that its own grant bounds the operation, too.

// nesting lists what lies inside a root: other roots, and tombstones. They are recognised by
// identity, so that a second path to the same directory leads to the same judgement. A directory
// is recognised by its own identity. A single file is recognised by the identity of its directory
// and by the file's name, because a rename may replace the file. (A hard link of the file counts
// as another file, as everywhere.) gen grows with every change, so that holds become stale.
type nesting struct {
	gen           uint64
	nested        []nestedRoot // outermost first
	sameDirectory []nestedRoot // at the root's own directory, for narrower subjects
	scopes        []scope      // of the live directories in both lists; outermost first within each
}

type nestedRoot struct {
	id    rules.Identity // of the directory, or of the directory of a single file
	name  string         // of the single file, in that directory; "": it is a directory
	rel   string         // its path below the outer root
	root  *root          // nil: a tombstone, which refuses every operation
	whose Subject        // of the grant
	epoch uint64         // of a tombstone: roots that were granted later have greater ones
}

// scope is the part of the outer root in which the policy of a nested root applies, too:
// everything below one directory, for the callers that the nested root's grant covers.
type scope struct {
	root   *root
	prefix string // the directory; "" is the outer root's own
	whose  Subject
}

// below returns the path below the scope's directory for a path of the outer root. ok is
// false if the path does not lie below the directory.
func (s *scope) below(rel string) (inner string, ok bool) {
	if s.prefix == "" {
		return rel, true
	}
	if !names.Under(rel, s.prefix) || len(rel) == len(s.prefix) {
		return "", false
	}
	return rel[len(s.prefix)+1:], true
}

// concerns reports whether the nested root bounds the callers of a subject.
func (f *nestedRoot) concerns(who Subject) bool { return f.whose.Covers(who) }

func nestedRootOf(r *root, rel string) nestedRoot {
	return nestedRoot{id: r.src.ID(), name: r.src.File(), rel: rel, root: r, whose: r.grant.Subject}
}

func (t *tombstone) nestedRoot(rel string) nestedRoot {
	return nestedRoot{id: t.id, name: t.file, rel: rel, whose: t.whose, epoch: t.epoch}
}

// updateNesting rebuilds the nesting of every root that contains one of the changed roots or a
// tombstone, or has the same directory. It returns the roots whose nesting has changed. The caller
// holds g.mu.
func (g *Registry) updateNesting(s *snapshot, changed []*root) []*root {
	outers := map[*root]bool{}
	mark := func(o *root) { outers[o] = true }
	for _, c := range changed {
		s.eachAround(c.grant.Resolved, c.location, mark)
	}
	for _, t := range g.tombs {
		s.eachAround(t.dir, t.location, mark)
	}
	if len(outers) == 0 {
		return nil
	}
	sorted := [...][]string{byDir: s.index.paths(byDir), byLocation: s.index.paths(byLocation)}
	var out []*root
	for o := range outers {
		if g.rebuildNesting(s, sorted[:], o) {
			out = append(out, o)
		}
	}
	return out
}

// rebuildNesting rebuilds the nesting of o, from the sorted paths and locations of all
// roots, and reports whether it has changed.
func (g *Registry) rebuildNesting(s *snapshot, sorted [][]string, o *root) bool {
	next := &nesting{}
	own := o.grant.Subject
	concernsOwn := func(whose Subject) bool { return own.Covers(whose) || whose.Covers(own) }
	for kind, at := range [...]string{byDir: o.grant.Resolved, byLocation: o.location} {
		if at == "" {
			continue
		}
		first, _ := slices.BinarySearch(sorted[kind], strings.TrimSuffix(at, "/")+"/")
		for _, d := range sorted[kind][first:] {
			if !names.Under(d, at) {
				break
			}
			for _, r := range s.index[indexKey{pathKind(kind), d}] {
				if r != o && concernsOwn(r.grant.Subject) {
					rel, _ := o.relativePath(r.grant.Resolved, r.location)
					next.nested = append(next.nested, nestedRootOf(r, rel))
				}
			}
		}
	}
	s.eachAt(o.grant.Resolved, o.location, func(r *root) {
		if r.grant.Subject.IsNarrowerThan(own) {
			next.sameDirectory = append(next.sameDirectory, nestedRootOf(r, ""))
		}
	})
	for _, t := range g.tombs {
		if rel, ok := o.relativePath(t.dir, t.location); ok && concernsOwn(t.whose) {
			next.nested = append(next.nested, t.nestedRoot(rel))
		}
		if t.whose.IsNarrowerThan(own) && t.id == o.src.ID() && t.file == o.src.File() {
			next.sameDirectory = append(next.sameDirectory, t.nestedRoot(""))
		}
	}
	next.arrange()
	old := o.nesting.Load()
	if slices.Equal(old.nested, next.nested) && slices.Equal(old.sameDirectory, next.sameDirectory) {
		return false
	}
	next.gen = old.gen + 1
	o.nesting.Store(next)
	o.narrowed.Add(1)
	return true
}

// arrange sorts the lists, outermost first, drops roots that were found twice (by path and
// by location), and fills in the scopes.
func (n *nesting) arrange() {
	for _, list := range []*[]nestedRoot{&n.nested, &n.sameDirectory} {
		slices.SortStableFunc(*list, func(a, b nestedRoot) int {
			return cmp.Or(len(a.rel)-len(b.rel), cmp.Compare(a.rel, b.rel), cmp.Compare(a.whose, b.whose))
		})
		*list = slices.Compact(*list)
		for _, r := range *list {
			if r.root != nil && r.name == "" {
				n.scopes = append(n.scopes, scope{r.root, r.rel, r.whose})
			}
		}
	}
}

// HasNested reports whether other roots or tombstones lie inside the lease's root. If so, the
// caller has to call EnterIfNested for every directory on a path.
func (l *Lease) HasNested() bool { return len(l.nesting.nested) > 0 }

// EnterIfNested is called for each directory that a resolution passes, with the directory's
// identity and name "". It is also called for each name that the resolution passes, with the
// identity of the directory that has the name, because a single-file root is recognised by both. If
// a nested root is there, it has to permit the operation, too. A tombstone refuses the operation.
// EnterIfNested returns a number for the domain that was entered, 0 for none. No rename or
// link is possible between two names in different domains (EXDEV).
func (l *Lease) EnterIfNested(id rules.Identity, name string) (domain uint64, err error) {
	who := l.req.Caller.Subject
	for i := range l.nesting.nested {
		f := &l.nesting.nested[i]
		if f.id != id || f.name != name || !f.concerns(who) {
			continue
		}
		if f.root == nil {
			if f.whose != who && l.nesting.grantedSince(f, who) {
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

// grantedSince reports whether the directory of the tombstone t was granted to who after the root
// of t had ended. Only grants for a narrower subject than that of t count.
func (n *nesting) grantedSince(t *nestedRoot, who Subject) bool {
	return slices.ContainsFunc(n.nested, func(f nestedRoot) bool {
		return f.id == t.id && f.name == t.name && f.root != nil && f.whose.Covers(who) && f.whose.IsNarrowerThan(t.whose) && f.root.epoch > t.epoch
	})
}

// enterSameDirectory enters the roots that are granted at the same directory to narrower subjects,
// if they concern the caller. If such a root has ended, it refuses the operation.
func (l *Lease) enterSameDirectory() error {
	for i := range l.nesting.sameDirectory {
		p := &l.nesting.sameDirectory[i]
		if !p.concerns(l.req.Caller.Subject) {
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

// enterRoot makes the rights and the quota of c apply to the rest of the operation, too. c is a
// nested root, or with sameDirectory a root at the same directory.
func (l *Lease) enterRoot(c *root, sameDirectory bool) error {
	if !slices.ContainsFunc(l.crossed, func(x crossing) bool { return x.root == c }) {
		l.req.Dry.note(Step{Kind: StepRoot, Root: c.name})
		gen, ok := c.acquire()
		if !ok {
			return c.endedError()
		}
		if l.pinned {
			c.pins.Add(1)
			l.detached.cross(gen)
		}
		l.crossed = append(l.crossed, crossing{c, gen, sameDirectory})
		if c.once != nil {
			if err := l.Charges().useOnce(c); err != nil {
				return err
			}
		}
		if err := l.Charges().chargeNested(c); err != nil {
			return err
		}
	}
	have := c.policy.Load().Rights
	if lacks := rules.Lacked(l.req.Op, l.req.Need, have); lacks != 0 {
		return l.denied(c, lacks, have)
	}
	if l.req.Dry == nil {
		c.life.Use(l.start)
	}
	return nil
}

// A directory can have several paths, by bind mounts of it or of a directory above it.
// Whether one directory lies in another is therefore judged by paths and by locations. A
// location is the file system and the path in it, written as a path ("/8:1/home/u"). It is
// the same through every mount.
//
// The following is not noticed:
//   - that another path leads to a system directory (rules.RootRules);
//   - that two paths lead to one directory on a network or FUSE file system: its locations are
//     not reliable, so only paths are judged;
//   - that the kernel knows one file system as two, such as an overlay and its layers;
//   - that a bind mount is made after the grant. Outside a root it only gives a second path to
//     the directory that was granted. Inside a root it is another mount, which operations enter
//     only with Policy.OtherFileSystems.

// eachOuter calls f for every root of the snapshot above a directory with that path or
// location. It calls f twice for a root that is above by both.
func (s *snapshot) eachOuter(dir, location string, f func(*root)) {
	for _, from := range [...]indexKey{{byDir, dir}, {byLocation, location}} {
		for at := from; at.path != ""; {
			at.path = filepath.Dir(at.path)
			for _, o := range s.index[at] {
				f(o)
			}
			if at.path == "/" || at.path == "." {
				break
			}
		}
	}
}

// eachAround calls eachOuter and eachAt.
func (s *snapshot) eachAround(dir, location string, f func(*root)) {
	s.eachOuter(dir, location, f)
	s.eachAt(dir, location, f)
}

// eachAt calls f for every root of the snapshot that has that path or location itself. It
// calls f twice for a root that has both.
func (s *snapshot) eachAt(dir, location string, f func(*root)) {
	for _, at := range [...]indexKey{{byDir, dir}, {byLocation, location}} {
		for _, o := range s.index[at] { // put indexes no root by an empty path
			f(o)
		}
	}
}

// put adds a root to a snapshot that is not stored yet.
func (s *snapshot) put(r *root) {
	s.byName[r.name] = r
	if have := s.index.of(indexKey{byRequested, r.requestedDir}, r.grant.Subject); have != nil {
		// have was approved by the same path, through a link that leads elsewhere by now.
		s.index.drop(indexKey{byRequested, r.requestedDir}, have)
	}
	for _, at := range r.keys() {
		s.index.put(at, r)
	}
	s.longest = max(s.longest, len(r.grant.Resolved), len(r.requestedDir))
	if r.isStaged() {
		s.staged = append(slices.Clone(s.staged), r)
	}
}

// drop removes a root from a snapshot that is not stored yet.
func (s *snapshot) drop(r *root) {
	if s.byName[r.name] == r {
		delete(s.byName, r.name)
	}
	for _, at := range r.keys() {
		s.index.drop(at, r)
	}
	if r.isStaged() {
		s.staged = slices.DeleteFunc(slices.Clone(s.staged), func(have *root) bool { return have == r })
	}
}

// relativePath returns the path below o of a directory with that path or location. ok is
// false if the directory does not lie below that of o.
func (o *root) relativePath(dir, location string) (rel string, ok bool) {
	switch {
	case dir != o.grant.Resolved && names.Under(dir, o.grant.Resolved):
		rel, _ = filepath.Rel(o.grant.Resolved, dir)
	case o.location != "" && location != o.location && names.Under(location, o.location):
		rel = strings.TrimPrefix(location, o.location+"/")
	default:
		return "", false
	}
	return rel, true
}

// index finds roots by a path of one of three kinds. Several roots can share a path, each
// for a different subject or for everybody. put and drop replace the slices and never change
// them, because snapshots share them.
type index map[indexKey][]*root

type indexKey struct {
	kind pathKind
	path string
}

type pathKind uint8

const (
	byDir       pathKind = iota // the resolved path, of a single-file root that of the file
	byLocation                  // the location
	byRequested                 // the path that was requested, if it differs from the resolved one
)

// keys are the index keys of a root.
func (r *root) keys() [3]indexKey {
	return [...]indexKey{{byDir, r.grant.Resolved}, {byLocation, r.location}, {byRequested, r.requestedDir}}
}

func (m index) put(at indexKey, r *root) {
	if at.path != "" {
		m[at] = append(slices.Clone(m[at]), r)
	}
}

func (m index) drop(at indexKey, r *root) {
	left := slices.DeleteFunc(slices.Clone(m[at]), func(have *root) bool { return have == r })
	if len(left) == 0 {
		delete(m, at)
	} else {
		m[at] = left
	}
}

// of returns the root at a path that is granted to exactly this subject.
func (m index) of(at indexKey, who Subject) *root {
	for _, r := range m[at] {
		if r.grant.Subject == who {
			return r
		}
	}
	return nil
}

// live returns the live root at a path that is granted to a subject: of several, the one with the
// narrowest subject.
func (m index) live(at indexKey, who Subject) *root {
	var found *root
	for _, r := range m[at] {
		if State(r.state.Load()) == Live && r.grant.Subject.Covers(who) && (found == nil || r.grant.Subject.IsNarrowerThan(found.grant.Subject)) {
			found = r
		}
	}
	return found
}

// paths returns all paths of one kind, sorted.
func (m index) paths(kind pathKind) (out []string) {
	for at := range m {
		if at.kind == kind {
			out = append(out, at.path)
		}
	}
	slices.Sort(out)
	return out
}

// requestedDir returns the absolute form of the grant's Dir, or "" if there is none or it equals
// the resolved path.
func requestedDir(g *Grant) string {
	if g.Dir == "" {
		return ""
	}
	abs, err := filepath.Abs(g.Dir.Raw())
	if err != nil || abs == g.Resolved {
		return ""
	}
	return abs
}
