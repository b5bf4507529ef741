package beneath

import (
	"bytes"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Old is a file of the source that an apply is about to replace or remove.
type Old struct {
	node   draft.Node
	exists bool
	lost   bool // the file could not be kept
}

// KeepOld keeps a file of the source for an undo, if there is a checkpoint that could need it.
// If the file cannot be kept, for example for want of room in the store, the apply goes on
// nevertheless.
func (s Stage) KeepOld(l *guard.Lease, d Dir, name string) Old {
	old := Old{exists: true}
	var err error
	if old.node, err = s.st.keepOld(l, d, name); err != nil {
		old.lost = true
	}
	return old
}

func (st *staged) keepOld(l *guard.Lease, d Dir, name string) (draft.Node, error) {
	if len(st.store.Checkpoints()) == 0 {
		return draft.Node{}, nil
	}
	fd, err := open(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return draft.Node{}, err
	}
	defer unix.Close(fd)
	info, err := stat(fd)
	if err != nil {
		return draft.Node{}, err
	}
	if info.IsDir() {
		g := gatherer{st: st}
		node, err := g.dirNode("", fd)
		return node, err
	}
	number, err := st.store.NewObject()
	if err != nil || !st.store.PinObject(number) {
		return draft.Node{}, err
	}
	c := &upCopy{st: st, l: l, name: st.tempName()}
	defer c.drop()
	if err := c.prepare(fd, &info, false); err != nil {
		return draft.Node{}, err
	}
	return draft.Node{Object: number}, st.nameObject(l, number, c)
}

// nameObject gives a copy the name of a new object.
func (st *staged) nameObject(l *guard.Lease, number uint64, c *upCopy) error {
	ref, err := open(st.tmp, c.name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(ref)
	made, err := stat(ref)
	if err != nil {
		return err
	}
	st.frozen.add(inodeOf(made.ID()), &object{number: number})
	objects := st.store.Objects()
	err = change(l, func() error { return unix.Renameat2(st.tmp, c.name, objects, draft.ObjectName(number), 0) })
	c.named = err != nil
	return err
}

// NoteApplied records for an undo that an apply has changed a path of the source. d and name
// locate the path. made describes the file that the apply has put there; zero: none. If the owner
// has changed that file since, NoteApplied records a description that matches no file, and the next
// apply finds a conflict.
func (s Stage) NoteApplied(path string, old Old, made draft.Base, d Dir, name string) error {
	a := draft.Applied{Path: path, Existed: old.exists, Old: old.node, Lost: old.lost, New: made}
	if made.Kind == draft.Nothing {
		return s.st.store.NoteApplied(a)
	}
	a.New.Ctime = 0 // no file has this time
	if now, err := lookAt(d.fd, name); err == nil && now.exists {
		at := baseOf(&now.info)
		isSame := at.Kind == made.Kind && at.Ino == made.Ino && at.Birth == made.Birth
		if isSame && (made.Kind != draft.File || at.Size == made.Size && at.Mtime == made.Mtime && at.Mode == made.Mode) {
			a.New = at
			a.New.Hash = indexHash(path, d.fd, name, at)
		}
	}
	return s.st.store.NoteApplied(a)
}

// indexHash returns the hash of the git index at a path. With this hash, an index that the owner's
// git refreshes after the apply counts as unchanged. The hash is zero if the path is no git index,
// or has another file than at describes.
func indexHash(path string, dir int, name string, at draft.Base) (sum [32]byte) {
	if !isGitIndex(path) {
		return sum
	}
	fd, err := open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return sum
	}
	defer unix.Close(fd)
	sum, _ = EntriesHash(path, fd)
	if info, err := stat(fd); err != nil || baseOf(&info) != at {
		return [32]byte{} // the owner's git has written it meanwhile
	}
	return sum
}

// reverse changes the state of a checkpoint so that programs see the files of that time,
// although the owner has applied changes since. count is how many paths are staged for that.
func (st *staged) reverse(state draft.State, applied []draft.Applied) (out draft.State, count int, err error) {
	if len(applied) == 0 {
		return state, 0, nil
	}
	have, err := st.store.ObjectInodes()
	if err != nil {
		return state, 0, err
	}
	first, last := map[string]draft.Applied{}, map[string]draft.Applied{}
	for _, a := range applied {
		if _, ok := first[a.Path]; !ok {
			first[a.Path] = a
		}
		last[a.Path] = a
	}
	was := indexOf(&state)
	is := stateIndex{nil, maps.Clone(was.nodes), maps.Clone(was.records)}
	nodes, records := is.nodes, is.records
	for path := range first {
		old, now := first[path], last[path].New
		if _, ok := have[old.Old.Object]; old.Old.Object != 0 && !ok {
			old.Lost = true
		}
		rec, seen := records[path], was.showsSource(path)
		rec.Path = path
		switch {
		case nodes[path] != nil: // the change of that time is now a change of the source's present file
		case !seen || !old.Existed:
			rec.Whiteout = true
		case old.Lost:
			continue
		default:
			node := old.Old
			node.Path = []byte(path)
			nodes[path] = &node
			count++
		}
		if rec.Whiteout && nodes[path] == nil && seen && now.Kind != draft.Nothing {
			count++
		}
		if rec.Base = now; now.Kind == draft.Nothing {
			delete(records, path)
		} else {
			records[path] = rec
		}
	}
	return is.sorted(), count, nil
}

// looksLikeSource reports whether an object, or noObject for the file in the upper directory, has
// the contents, mode and attributes of a file of the source.
func (st *staged) looksLikeSource(object uint64, rel string) bool {
	low, err := openLong(st.fd, rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer unix.Close(low)
	top, name := st.store.Objects(), draft.ObjectName(object)
	if object == noObject {
		top, name = st.up, rel
	}
	up, err := openLong(top, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer unix.Close(up)
	x, err := stat(low)
	y, yErr := stat(up)
	if err != nil || yErr != nil || x.Mode != y.Mode || x.Size != y.Size || !SameXattrs(low, up) {
		return false
	}
	switch x.Type() {
	case unix.S_IFLNK:
		a, err := Readlink(low)
		b, bErr := Readlink(up)
		return err == nil && bErr == nil && a == b
	case unix.S_IFREG:
		a, aOK := hashQuietly(low)
		b, bOK := hashQuietly(up)
		return aOK && bOK && bytes.Equal(a[:], b[:])
	}
	return false
}

func hashQuietly(ref int) (sum [32]byte, ok bool) {
	fd, err := reopenQuietly(ref)
	if err != nil {
		return sum, false
	}
	defer unix.Close(fd)
	sum, err = hashOf(fd)
	return sum, err == nil
}
