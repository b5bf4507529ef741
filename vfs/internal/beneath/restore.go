package beneath

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// If the process is killed during an undo, the whole undo is repeated, so for a crash the order of
// the steps does not matter. The order matters for running programs: if both states have a file at
// a path, programs see it replaced in one step. Other files appear or disappear.

// restoration brings the stage from one state to another.
type restoration struct {
	st        *staged
	l         *guard.Lease
	now, want *stateIndex
	// raised has directories that stay in the upper directory, although they have no changes
	// any more, because programs may be working in them.
	raised []string
}

// stateIndex is a state by path.
type stateIndex struct {
	*draft.State
	nodes   map[string]*draft.Node
	records map[string]draft.Record
}

func indexOf(s *draft.State) *stateIndex {
	x := &stateIndex{s, map[string]*draft.Node{}, map[string]draft.Record{}}
	for i := range s.Nodes {
		x.nodes[string(s.Nodes[i].Path)] = &s.Nodes[i]
	}
	for _, r := range s.Records {
		x.records[r.Path] = r
	}
	return x
}

// sorted returns the state that the maps of the index describe now.
func (x *stateIndex) sorted() (out draft.State) {
	for _, rel := range slices.Sorted(maps.Keys(x.nodes)) {
		out.Nodes = append(out.Nodes, *x.nodes[rel])
	}
	for _, rel := range slices.Sorted(maps.Keys(x.records)) {
		out.Records = append(out.Records, x.records[rel])
	}
	return out
}

// showsSource reports whether a state shows the source's file at a path: no whiteout hides the file,
// and the upper directory has nothing but directories at the path and above it.
func (x *stateIndex) showsSource(rel string) bool {
	if n := x.nodes[rel]; n != nil && n.Object != 0 {
		return false
	}
	for at := rel; at != ""; at, _ = splitRel(at) {
		if n := x.nodes[at]; x.records[at].Whiteout || at != rel && n != nil && n.Object != 0 {
			return false
		}
	}
	return true
}

// restore brings the stage to a state. The caller holds staged.mu.
func (st *staged) restore(l *guard.Lease, now, want *draft.State) error {
	r := restoration{st: st, l: l, now: indexOf(now), want: indexOf(want)}
	if err := atStep("undoing"); err != nil {
		return err
	}
	for _, step := range []func() error{r.openDirs, r.remove, r.record, r.place, r.setDirs} {
		if err := step(); err != nil {
			return err
		}
		if err := atStep("undoing"); err != nil {
			return err
		}
	}
	st.frozen.writes.Lock()
	st.frozen.generation.Add(1) // open files may be objects now
	st.frozen.writes.Unlock()
	return st.updateGone()
}

// openDirs adds the mode bits 0700 to all directories of the present state, so that this process
// can change them if it is not root. setDirs restores their modes.
func (r *restoration) openDirs() error {
	if unix.Geteuid() == 0 {
		return nil
	}
	for i := range r.now.Nodes {
		n := &r.now.Nodes[i]
		if n.Object != 0 || n.Mode&0o700 == 0o700 {
			continue
		}
		fd, err := r.st.openUpperDir(string(n.Path))
		if err != nil {
			return err
		}
		err = Chmod(r.l, changeable(fd), n.Mode&0o7777|0o700)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// remove removes the names that the wanted state does not have, and the names that are a directory
// in one of the two states and another file in the other. It removes contents before their
// directory, and keeps the directories that stay raised.
func (r *restoration) remove() error {
	for i := range slices.Backward(r.now.Nodes) {
		n := &r.now.Nodes[i]
		rel := string(n.Path)
		want := r.want.nodes[rel]
		isDir := n.Object == 0
		switch {
		case rel == "", want != nil && isDir == (want.Object == 0):
			continue
		case want == nil && isDir && r.staysRaised(rel):
			r.raised = append(r.raised, rel)
			continue
		}
		if err := r.st.removeUpper(r.l, rel); err != nil {
			return err
		}
		if err := atStep("undoing"); err != nil {
			return err
		}
	}
	return nil
}

// staysRaised reports whether programs see the same directory of the source at a path before
// and after the undo.
func (r *restoration) staysRaised(rel string) bool {
	if !r.now.showsSource(rel) || !r.want.showsSource(rel) {
		return false
	}
	fd, err := r.st.openLowerDir(rel)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// record gives the store the records of the wanted state, and keeps those of the directories that
// stay raised.
func (r *restoration) record() error {
	list := slices.Clone(r.want.Records)
	for _, rel := range r.raised {
		if rec, ok := r.now.records[rel]; ok && r.want.records[rel].Path != rel {
			list = append(list, rec)
		}
	}
	return r.st.store.SetRecords(list)
}

// place makes the names of the wanted state that are missing or refer to another file now. It makes
// directories before their contents.
func (r *restoration) place() error {
	for i := range r.want.Nodes {
		n := &r.want.Nodes[i]
		rel := string(n.Path)
		now := r.now.nodes[rel]
		var err error
		if parent, _ := splitRel(rel); rel != "" {
			if err := r.ensureDir(parent); err != nil {
				return err
			}
		}
		switch {
		case rel == "", now != nil && now.Object == n.Object:
			continue
		case n.Object == 0:
			err = r.mkdir(rel)
		case n.Apart:
			err = r.placeCopy(rel, n.Object)
		default:
			err = r.placeObject(rel, n.Object)
		}
		if err == nil {
			err = atStep("undoing")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ensureDir makes the directory rel in the upper directory, unless it exists there. The wanted state
// may lack the directory of a file that was applied since: the undo stages that file again, and the
// file needs its directory.
func (r *restoration) ensureDir(rel string) error {
	if r.st.isRaised(rel) {
		return nil
	}
	parent, base := splitRel(rel)
	if err := r.ensureDir(parent); err != nil {
		return err
	}
	if err := r.mkdir(rel); err != nil {
		return err
	}
	if r.want.showsSource(rel) {
		if fd, err := r.st.openLowerDir(rel); err == nil {
			_ = unix.Close(fd)
			return nil // it has the mode of the source's directory
		}
	}
	dir, err := r.st.openUpperDir(parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := open(dir, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return Chmod(r.l, changeable(fd), 0o755)
}

func (r *restoration) mkdir(rel string) error {
	st := r.st
	if r.want.showsSource(rel) {
		if fd, err := st.openLowerDir(rel); err == nil {
			_ = unix.Close(fd)
			return st.raise(r.l, rel) // it keeps the identity of the source's directory
		}
	}
	parent, base := splitRel(rel)
	dir, err := st.openUpperDir(parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	st.store.AddUpper(rel, false)
	err = st.withAccess(r.l, dir, func() error {
		return mkdirPrivate(r.l, dir, base)
	})
	if err != nil {
		return err
	}
	st.store.AddUpper(rel, true)
	made, err := lookAt(dir, base)
	if err == nil {
		st.ids.forget(made.info.ID())
	}
	return err
}

// placeObject gives an object a name in the upper directory, in the place of any other file.
func (r *restoration) placeObject(rel string, number uint64) error {
	st := r.st
	parent, base := splitRel(rel)
	dir, err := st.openUpperDir(parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	temp, objects := st.tempName(), st.store.Objects()
	err = change(r.l, func() error { return unix.Linkat(objects, draft.ObjectName(number), st.tmp, temp, 0) })
	if err == unix.ENOENT && r.l == nil { //nolint:errorlint // bare errno
		return nil // only recovery has no lease: a power loss has lost the object
	}
	if err != nil {
		return err
	}
	st.store.AddUpper(rel, false)
	err = st.withAccess(r.l, dir, func() error {
		return change(r.l, func() error { return unix.Renameat2(st.tmp, temp, dir, base, 0) })
	})
	// The kernel leaves both names if they are one file's.
	return errors.Join(err, IgnoreAbsent(change(r.l, func() error { return unix.Unlinkat(st.tmp, temp, 0) })))
}

// placeCopy is placeObject for a copy of the object.
func (r *restoration) placeCopy(rel string, number uint64) error {
	st := r.st
	from, err := open(st.store.Objects(), draft.ObjectName(number), unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	was, err := stat(from)
	if err != nil {
		return err
	}
	c := &upCopy{st: st, l: r.l, name: st.tempName()}
	defer c.drop()
	copies := func() error {
		info, err := stat(from)
		if info.Mode = was.Mode; err != nil {
			return err
		}
		return c.prepare(from, &info, false)
	}
	if unix.Geteuid() == 0 {
		err = copies()
	} else {
		err = st.withBits(r.l, from, 0o400, copies)
	}
	if err != nil {
		return err
	}
	parent, base := splitRel(rel)
	dir, err := st.openUpperDir(parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	st.store.AddUpper(rel, false)
	err = st.withAccess(r.l, dir, func() error {
		return change(r.l, func() error { return unix.Renameat2(st.tmp, c.name, dir, base, 0) })
	})
	c.named = err != nil
	return err
}

// setDirs gives the directories their attributes, inner ones first. The directories that stay
// raised get those of the source's directories.
func (r *restoration) setDirs() error {
	for i := range slices.Backward(r.want.Nodes) {
		if n := &r.want.Nodes[i]; n.Object == 0 {
			if err := r.setDir(n); err != nil {
				return err
			}
		}
	}
	for _, rel := range r.raised { // from the inside out, too
		if _, err := r.st.discardDir(r.l, rel); err != nil {
			return err
		}
	}
	return nil
}

func (r *restoration) setDir(n *draft.Node) error {
	fd, err := r.st.openUpperDir(string(n.Path))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	w := changeable(fd)
	info, err := stat(fd)
	if err != nil {
		return err
	}
	have := attrsOf(fd)
	if info.Mode == n.Mode && info.UID == n.UID && info.GID == n.GID && nanos(info.Mtime) == n.Mtime && maps.EqualFunc(have, n.Attrs, bytes.Equal) {
		return nil
	}
	if err := Chown(r.l, w, int(n.UID), int(n.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
		return err
	}
	for name := range have {
		if _, ok := n.Attrs[name]; !ok {
			if err := Removexattr(r.l, w, name); err != nil {
				return err
			}
		}
	}
	for name, value := range n.Attrs {
		if err := Setxattr(r.l, w, name, value, 0); err != nil {
			return err
		}
	}
	if err := Chmod(r.l, w, n.Mode&0o7777); err != nil {
		return err
	}
	return Utimes(r.l, w, Omit, At(time.Unix(0, n.Mtime)))
}

// updateGone updates, for open files of the source, whether they have a name in the stage.
func (st *staged) updateGone() error {
	st.swaps.Lock()
	defer st.swaps.Unlock()
	for id, list := range st.tracked {
		for _, f := range list {
			if !f.isLower.Load() {
				continue
			}
			isGone := true
			if fd, lower, err := st.open(f.rel, unix.O_PATH|unix.O_NOFOLLOW); err == nil {
				info, serr := stat(fd)
				isGone = serr != nil || !lower || info.ID() != id
				_ = unix.Close(fd)
			}
			f.gone.Store(isGone)
		}
	}
	return nil
}

// seenChanges returns the paths at which two states show different files.
func (st *staged) seenChanges(now, want *draft.State) (out []SeenChange) {
	a, b := indexOf(now), indexOf(want)
	paths := map[string]bool{}
	for _, x := range []*stateIndex{a, b} {
		for p := range x.nodes {
			paths[p] = true
		}
		for p := range x.records {
			paths[p] = true
		}
	}
	delete(paths, "")
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		x, y := st.seenIn(a, p), st.seenIn(b, p)
		switch {
		case x == "source" && a.nodes[p] == nil && b.nodes[p] != nil && st.looksLikeSource(b.nodes[p].Object, p):
		case y == "source" && b.nodes[p] == nil && a.nodes[p] != nil && st.looksLikeSource(a.nodes[p].Object, p):
		case x != y:
			out = append(out, SeenChange{p, x != "", y != ""})
		}
	}
	return out
}

// seenIn describes the file that a state shows at a path, "" if there is none.
func (st *staged) seenIn(x *stateIndex, rel string) string {
	if n := x.nodes[rel]; n != nil && n.Object != 0 {
		return draft.ObjectName(n.Object)
	} else if n != nil {
		return directoryText(n.Mode)
	}
	if !x.showsSource(rel) {
		return ""
	}
	parent, base := splitRel(rel)
	dir, err := st.openLowerDir(parent)
	if err != nil {
		return ""
	}
	defer unix.Close(dir)
	low, err := lookAt(dir, base)
	switch {
	case err != nil || !low.exists:
		return ""
	case low.info.IsDir():
		return directoryText(low.info.Mode)
	}
	return "source"
}

func directoryText(mode uint32) string { return "directory " + strconv.FormatUint(uint64(mode), 8) }
