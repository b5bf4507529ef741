package beneath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// MostAutomatic is the largest number of changes for which a checkpoint is made before a tool
// call or a session: each new file takes about 40 microseconds.
const MostAutomatic = 10_000

// The causes of checkpoints that the stage makes itself.
const (
	CauseSession = "session" // before a session continues the stage
	CauseUndo    = "undo"
)

// noObject stands for the object of a file that is not frozen.
const noObject = ^uint64(0)

// Checkpoint makes a checkpoint of the stage, or only of c.Paths. If the stage equals the latest
// checkpoint, and c has no name, Checkpoint makes none: isNew is then false, and made is the latest.
// Checkpoint also makes none if nothing is staged, no checkpoint exists and the owner did not ask
// for one: made is then the start.
func (s Stage) Checkpoint(l *guard.Lease, c draft.Checkpoint) (made draft.Checkpoint, isNew bool, err error) {
	st := s.st
	st.frozen.checkpointMu.Lock()
	defer st.frozen.checkpointMu.Unlock()
	if list := st.store.Checkpoints(); len(list) > 0 && c.Name == "" && !st.store.IsTouched() {
		return list[len(list)-1], false, nil
	}
	st.mu.Lock()
	state, err := st.freezeAll(l, c.Scope())
	st.mu.Unlock()
	if err == nil {
		made, isNew, err = st.addCheckpoint(c, &state)
	}
	if err != nil {
		// The next Checkpoint must compare the states again, so the store is marked as touched.
		_ = st.store.WillWrite(0)
	}
	return made, isNew, errors.Join(err, st.prune(l))
}

// addCheckpoint is the second part of Checkpoint, after the files were frozen. The caller holds
// frozen.checkpointMu.
func (st *staged) addCheckpoint(c draft.Checkpoint, state *draft.State) (made draft.Checkpoint, isNew bool, err error) {
	if err := atStep("frozen"); err != nil {
		return c, false, err
	}
	if list := st.store.Checkpoints(); len(list) > 0 && c.Name == "" {
		latest := list[len(list)-1]
		if last, err := st.store.State(latest.Number); err == nil && latest.SameScope(&c) && last.Equal(state) {
			return latest, false, nil
		}
	}
	c.Time, c.Changed = time.Now().Round(0), changedIn(state)
	if c.Changed == 0 && c.Cause != draft.CauseAsked && len(st.store.Checkpoints()) == 0 {
		return draft.Checkpoint{Cause: draft.CauseStart}, false, nil // the start, which every stage has
	}
	made, err = st.store.AddCheckpoint(c, state)
	return made, err == nil, errors.Join(err, atStep("kept"))
}

// changedIn counts the names in a state that differ from the source.
func changedIn(state *draft.State) (n int) {
	bases := map[string]draft.Record{}
	for _, r := range state.Records {
		bases[r.Path] = r
	}
	for i := range state.Nodes {
		node := &state.Nodes[i]
		r, ok := bases[string(node.Path)]
		if len(node.Path) > 0 && (node.Object != 0 || !ok || r.Whiteout || r.Base.Mode != node.Mode) {
			n++
		}
		delete(bases, string(node.Path))
	}
	for _, r := range bases {
		if r.Whiteout {
			n++
		}
	}
	return n
}

// prune removes excess checkpoints, and objects that no checkpoint uses. The caller holds
// frozen.checkpointMu.
func (st *staged) prune(l *guard.Lease) error {
	pruned := false
	for {
		number, ok := st.store.Excess(draft.MaxCheckpoints)
		if !ok {
			break
		}
		if err := st.store.Forget(number); err != nil {
			return err
		}
		pruned = true
	}
	if !pruned && st.frozen.isSwept {
		return nil
	}
	st.frozen.isSwept = true // objects that an earlier process left are removed
	return st.sweep(l)
}

// freezeAll freezes the files of a scope in the upper directory, and returns their state. The
// caller holds staged.mu.
func (st *staged) freezeAll(l *guard.Lease, in draft.Scope) (draft.State, error) {
	st.frozen.writes.Lock()
	defer st.frozen.writes.Unlock()
	st.frozen.generation.Add(1)
	state, err := st.gather(l, in, true)
	if err == nil && len(in) == 0 {
		st.store.SetUntouched()
	}
	return state, err
}

// gather returns the state of a scope of the stage, with noObject for files that are not frozen.
// The caller holds staged.mu and, to freeze the files, frozen.writes.
func (st *staged) gather(l *guard.Lease, in draft.Scope, freezes bool) (state draft.State, err error) {
	g := gatherer{st: st, l: l, freezes: freezes, dir: -1}
	defer g.close()
	top, err := g.upperNode("", st.up)
	if err != nil {
		return state, err
	}
	g.nodes = append(g.nodes, top)
	err = st.store.Walk(in, func(rel string, info *unix.Stat_t) {
		if g.err == nil {
			g.err = g.visit(rel, info)
		}
	})
	slices.SortFunc(g.nodes, func(a, b draft.Node) int { return bytes.Compare(a.Path, b.Path) })
	state.Nodes = g.nodes
	for r := range st.store.Records() {
		if in.Touches(r.Path) {
			state.Records = append(state.Records, r)
		}
	}
	return state, errors.Join(err, g.err)
}

// gatherer collects the names of the upper directory.
type gatherer struct {
	st      *staged
	l       *guard.Lease
	freezes bool
	nodes   []draft.Node
	err     error
	dir     int // descriptor of parent, -1: none
	parent  string
}

func (g *gatherer) close() {
	if g.dir >= 0 {
		_ = unix.Close(g.dir)
	}
}

func (g *gatherer) visit(rel string, info *unix.Stat_t) error {
	if info.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := g.st.openUpperDir(rel)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		node, err := g.upperNode(rel, fd)
		g.nodes = append(g.nodes, node)
		return err
	}
	parent, base := splitRel(rel)
	if g.dir < 0 || g.parent != parent {
		g.close()
		var err error
		if g.dir, err = g.st.openUpperDir(parent); err != nil {
			g.dir = -1
			return err
		}
		g.parent = parent
	}
	node := draft.Node{Path: []byte(rel), Object: noObject}
	id := inode{g.st.ids.upperDev, info.Ino}
	var err error
	if g.freezes {
		node.Object, err = g.st.freeze(g.l, g.dir, base, id)
	} else {
		g.st.frozen.mu.RLock()
		if o := g.st.frozen.files[id]; o != nil {
			node.Object = o.number
		}
		g.st.frozen.mu.RUnlock()
	}
	g.nodes = append(g.nodes, node)
	return err
}

// upperNode is dirNode for a directory of the upper directory. If the mode of the directory does
// not let its owner read it, upperNode sets the read bit while it reads the extended attributes.
func (g *gatherer) upperNode(rel string, fd int) (draft.Node, error) {
	node, err := g.dirNode(rel, fd)
	if uid := unix.Geteuid(); err != nil || node.Mode&0o400 != 0 || uid == 0 || int(node.UID) != uid {
		return node, err
	}
	return node, g.st.withBits(g.l, fd, 0o400, func() error {
		node.Attrs = attrsOf(fd)
		return nil
	})
}

func (g *gatherer) dirNode(rel string, fd int) (draft.Node, error) {
	info, err := stat(fd)
	return draft.Node{Path: []byte(rel), Mode: info.Mode, UID: info.UID, GID: info.GID, Mtime: nanos(info.Mtime), Attrs: attrsOf(fd)}, err
}

// Undone describes an undo, done or only planned.
type Undone struct {
	To     draft.Checkpoint
	Before *draft.Checkpoint // made before the undo; nil: the latest is equal, or the undo is only planned
	Seen   []SeenChange      // sorted by path
	// Applied is the number of paths that the undo stages to reverse changes that the owner has
	// applied since the checkpoint.
	Applied int
}

// SeenChange is a change of what programs see at a path.
type SeenChange struct {
	Path          string
	Before, After bool // programs see a file there before the undo, and after it
}

// Undo brings the stage back to a checkpoint. to is the number or name of the checkpoint, or "" for
// the latest checkpoint at which programs saw other files than now. Undo makes a checkpoint first,
// so that the undo can be undone. If dry is set, Undo changes nothing, and only returns what it
// would do.
func (s Stage) Undo(l *guard.Lease, to string, dry bool) (Undone, error) {
	st := s.st
	st.frozen.checkpointMu.Lock()
	defer st.frozen.checkpointMu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	var now draft.State
	var err error
	if dry {
		now, err = st.gather(l, nil, false)
	} else {
		now, err = st.freezeAll(l, nil)
	}
	if err != nil {
		return Undone{}, err
	}
	u, want, err := st.choose(to, &now)
	if err != nil || dry {
		return u, err
	}
	if err := st.checkObjects(u.To, &want); err != nil {
		return Undone{}, err
	}
	before, isNew, err := st.addCheckpoint(draft.Checkpoint{Cause: CauseUndo}, &now)
	if err != nil {
		return Undone{}, err
	}
	if isNew {
		u.Before = &before
	}
	if err := st.store.BeginUndo(u.To.Number); err != nil {
		return Undone{}, err
	}
	if err := st.restore(l, &now, &want); err != nil {
		return Undone{}, errors.Join(err, st.cancelUndo(l, &now))
	}
	return u, errors.Join(st.store.EndUndo(), st.prune(l))
}

// cancelUndo takes back an undo that has failed, for example by an error of the disk: running
// programs see again the files that they saw before. If the root has ended, cancelUndo changes
// nothing, and finishUndo finishes the undo when the store is opened again.
func (st *staged) cancelUndo(l *guard.Lease, before *draft.State) error {
	if err := atStep("undoing"); err != nil {
		return err
	}
	if l.Life().Ended(context.Background()) != nil {
		return nil
	}
	now, err := st.gather(l, nil, false)
	if err == nil {
		err = st.restore(l, &now, before)
	}
	return errors.Join(err, st.store.EndUndo())
}

func noCheckpoint(format string, args ...any) error {
	return &guard.Error{Kind: names.NotExist, Err: fmt.Errorf(format, args...)}
}

// stateOf returns the state that an undo to a checkpoint brings back. now is the present state.
// reversed is the number of paths that the undo stages to reverse changes that the owner has
// applied since the checkpoint.
func (st *staged) stateOf(number int, now *draft.State) (state draft.State, reversed int, err error) {
	if number == 0 {
		state.Nodes = now.Nodes[:1:1] // the top directory, which stays as it is
	} else if state, err = st.stateAt(number, now); err != nil {
		return state, 0, err
	}
	applied, err := st.store.AppliedSince(number)
	if err != nil {
		return state, 0, err
	}
	return st.reverse(state, applied)
}

// stateAt returns the state of the whole stage at a checkpoint. If the checkpoint has only some
// paths, the other paths get the state of the next checkpoint that has them, or their present state.
func (st *staged) stateAt(number int, now *draft.State) (draft.State, error) {
	var parts []draft.Checkpoint
	state, isWhole := *now, false
	for _, c := range st.store.Checkpoints() {
		if c.Number < number || isWhole {
			continue
		}
		if isWhole = len(c.Paths) == 0; !isWhole {
			parts = append(parts, c)
			continue
		}
		var err error
		if state, err = st.store.State(c.Number); err != nil {
			return state, err
		}
	}
	for _, c := range slices.Backward(parts) {
		part, err := st.store.State(c.Number)
		if err != nil {
			return state, err
		}
		state = overlay(&state, &part, c.Scope())
	}
	return state, nil
}

// overlay returns a copy of state in which the paths of the scope are as part has them. An undo
// places copies of these files (Node.Apart): outside of the scope, a file of part may have another
// name by now, or another file may show the identity of the file. If part shows a directory above
// the paths, the result shows one, too. Other names that were removed from that directory stay
// hidden, because each of them has a whiteout of its own.
func overlay(state, part *draft.State, in draft.Scope) draft.State {
	old, from := indexOf(state), indexOf(part)
	out := indexOf(&draft.State{})
	for _, x := range []*stateIndex{old, from} {
		for rel, n := range x.nodes {
			if in.Has(rel) == (x == from) {
				n.Apart = n.Apart || x == from
				out.nodes[rel] = n
			}
		}
		for rel, r := range x.records {
			if in.Has(rel) == (x == from) {
				out.records[rel] = r
			}
		}
	}
	for _, p := range in {
		for at, c := range p {
			if rel := p[:at]; c == '/' && from.showsDir(rel) {
				out.showDir(rel, from)
			}
		}
	}
	return out.sorted()
}

// showsDir reports whether a state may show a directory at a path.
func (x *stateIndex) showsDir(rel string) bool {
	n := x.nodes[rel]
	return n != nil && n.Object == 0 || n == nil && x.showsSource(rel)
}

// showDir makes x show a directory at rel, because other shows one there. If other shows the
// source's contents in the directory, x shows them, too.
func (x *stateIndex) showDir(rel string, other *stateIndex) {
	rec, ok := other.records[rel]
	if x.showsDir(rel) {
		if have := x.records[rel]; have.Whiteout && !rec.Whiteout {
			have.Whiteout = false
			x.records[rel] = have
		}
		return
	}
	delete(x.nodes, rel)
	if n := other.nodes[rel]; n != nil {
		x.nodes[rel] = n
	}
	delete(x.records, rel)
	if ok {
		x.records[rel] = rec
	}
}

// choose finds the checkpoint of an undo, and the state that it brings back.
func (st *staged) choose(to string, now *draft.State) (Undone, draft.State, error) {
	number, err := strconv.Atoi(to)
	if err != nil {
		number = -1
	}
	list := append([]draft.Checkpoint{{Cause: draft.CauseStart, Time: st.store.Meta().Created}}, st.store.Checkpoints()...)
	for _, c := range slices.Backward(list) {
		if to != "" && c.Name != to && c.Number != number {
			continue
		}
		state, reversed, err := st.stateOf(c.Number, now)
		if err != nil {
			return Undone{}, state, err
		}
		if seen := st.seenChanges(now, &state); to != "" || len(seen) > 0 {
			return Undone{To: c, Seen: seen, Applied: reversed}, state, nil
		}
	}
	if to == "" {
		return Undone{}, draft.State{}, noCheckpoint("there is nothing to undo: nothing is staged, and all checkpoints are equal to that")
	}
	return Undone{}, draft.State{}, noCheckpoint("the stage has no checkpoint %s: see rootsfs stage list -v", names.Quote(to))
}

// checkObjects refuses a checkpoint with missing contents.
func (st *staged) checkObjects(c draft.Checkpoint, want *draft.State) error {
	have, err := st.store.ObjectInodes()
	if err != nil {
		return err
	}
	for i := range want.Nodes {
		n := &want.Nodes[i]
		if _, ok := have[n.Object]; n.Object != 0 && !ok {
			return &guard.Error{Kind: names.Internal, Err: fmt.Errorf("checkpoint %d has lost the contents of %s", c.Number, names.Quote(string(n.Path)))}
		}
	}
	return nil
}

// finishUndo finishes an undo that has begun but not ended, for example because the process was
// killed. The caller calls finishUndo before the root is used.
func (st *staged) finishUndo() error {
	number, ok := st.store.Undoing()
	if !ok {
		return nil
	}
	now, err := st.gather(nil, nil, false)
	if err != nil {
		return err
	}
	if want, _, err := st.stateOf(number, &now); err == nil {
		if err := st.restore(nil, &now, &want); err != nil {
			return err
		}
	}
	return st.store.EndUndo()
}

// beginSession makes a checkpoint of the changes of earlier sessions. If there are more than
// MostAutomatic, or the checkpoint fails, the session begins without it.
func (st *staged) beginSession() {
	changed, _ := st.store.Size()
	if (changed > 0 || len(st.store.Checkpoints()) > 0) && changed <= MostAutomatic {
		_, _, _ = Stage{st}.Checkpoint(nil, draft.Checkpoint{Cause: CauseSession})
	}
}
