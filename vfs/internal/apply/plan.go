package apply

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Request says which changes of a stage the caller wants.
type Request struct {
	Paths []string // below the root; none: everything
	// TakeStage makes conflicts and unsure changes replace the owner's files.
	TakeStage bool
	Links     bool // also apply links that leave the root
	// ForApply says that the changes are about to be applied. Files of the source that are open
	// for writing then get the class InUse. Changes in a directory in which this process may not
	// write get the class Refused.
	ForApply bool
}

// Needed returns the scope of an apply of paths, and so of its plan: the paths, the directories
// above them, and the whole of each .git that contains one of them.
func Needed(paths []string) draft.Scope {
	needed := slices.Clone(paths)
	for i, p := range needed {
		if unit, ok := gitUnit(p); ok {
			needed[i] = unit
		}
	}
	return draft.NewScope(needed)
}

// Plan returns the wanted changes, sorted by path. same has the changes that the source has by now,
// except for files that a program has open for writing. Plan compares only the wanted changes and
// those on which they depend (see Needed), because a comparison may read two files.
func (e Env) Plan(ctx context.Context, l *guard.Lease, req Request) (list, same []Change, err error) {
	a := e.begin(ctx, l)
	paths := map[string]bool{}
	needed := Needed(req.Paths)
	a.writables = map[string]writableResult{}
	walkErr := a.store.Walk(needed, func(rel string, _ *unix.Stat_t) { paths[rel] = true })
	for r := range a.store.Records() {
		if needed.Touches(r.Path) {
			paths[r.Path] = true
		}
	}
	delete(paths, "") // the attributes of the root itself are not applied
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if err := l.Life().Ended(ctx); err != nil {
			return nil, nil, err
		}
		if err := atStep("compare", path); err != nil {
			return nil, nil, err
		}
		c := a.classify(path)
		if selects(req.Paths, path) {
			a.settle(&c, &req)
		}
		if c.Class != Same {
			list = append(list, c)
		} else if !a.isOpen(&c) {
			c.appliedID = c.have.info.ID()
			same = append(same, c)
		}
	}
	leaveRemovals(list)
	leaveContents(list)
	leaveRepositories(list)
	a.markOutput(list)
	return slices.DeleteFunc(list, func(c Change) bool { return !selects(req.Paths, c.Path.Raw()) }), same, walkErr
}

// settle adjusts the class of one change to the request.
func (a *applier) settle(c *Change, req *Request) {
	if req.TakeStage && c.takeStage() {
		a.judgePolicy(c)
	}
	if req.Links && c.Class == Link {
		c.Class, c.Why = New, ""
		if c.have.exists {
			c.Class = Replaced
		}
	}
	if !req.ForApply || !c.Class.Applies() || c.Class == Mode {
		return
	}
	if dir, err := a.writable(c.Path.Raw()); err != nil && isRefused(err) {
		c.Class, c.Why = Refused, names.Text(whyClosed(dir, err))
		return
	}
	if !c.have.exists || !c.have.info.IsRegular() {
		return
	}
	p := placement{applier: *a, c: c}
	parent, base := splitRel(c.Path.Raw())
	d, err := a.st.Source(a.l).Below(parent, true)
	if err != nil {
		return // Apply says why
	}
	defer d.Close()
	p.d, p.base = d, base
	if _, end, err := p.blockWriters(); err == nil {
		end()
	} else if errors.Is(err, errOpen) {
		c.Class, c.Why = InUse, names.Text(err.Error())
	}
}

// takeStage makes a conflict, or an unsure change, replace the owner's file, which goes to the
// trash. It reports false, and changes nothing, for other classes, for a special file of the stage,
// and for a directory of the owner, which cannot be replaced.
func (c *Change) takeStage() bool {
	switch {
	case !c.want.exists:
		return c.takeRemoval()
	case c.Class != Unsure && c.Class != Conflict || c.have.isDir() || c.want.info.Special():
		return false
	}
	c.isTaken, c.mode, c.Why = c.have.exists, c.Mode, ""
	switch {
	case !c.have.exists:
		c.Class = New
	case c.want.info.Type() != c.have.info.Type():
		c.Class = Replaced
	default:
		c.Class = Changed
	}
	return true
}

// takeRemoval is takeStage for a name that the stage has removed.
func (c *Change) takeRemoval() bool {
	if c.have.isDir() || c.Class != Conflict && c.Class != Unsure {
		return false
	}
	c.isTaken, c.Class, c.Why = c.have.exists, Removed, ""
	return true
}

// classify compares the file in the stage, the one in the source, and the one that the source
// had when a program first changed it.
func (a *applier) classify(path string) Change {
	c := Change{Path: names.Foreign(path)}
	var err error
	if c.want, err = a.lookUpper(path); err == nil {
		c.have, err = a.lookSource(path)
	}
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		err = nil // the source has nothing below a link, such as a link that was applied before
	}
	if c.want.exists {
		c.Mode, c.Size = c.want.info.Mode, c.want.info.Size
	}
	if c.have.exists {
		c.OldMode, c.OldSize = c.have.info.Mode, c.have.info.Size
	}
	rec, ok := a.store.RecordOf(path)
	if !ok {
		rec.Base = draft.Base{}
	}
	if err == unix.EACCES && c.want.isDir() && rec.Base.Kind == draft.Dir && !rec.Whiteout && rec.Base.Mode == c.Mode { //nolint:errorlint // bare errno
		return c // the source's directory cannot be reached, and the stage's copy has the old mode
	}
	if err == nil {
		switch {
		case !c.want.exists:
			err = a.classifyRemoval(&c, &rec)
		case c.want.isDir():
			err = a.classifyDir(&c, &rec)
		default:
			err = a.classifyFile(&c, &rec)
		}
	}
	if err != nil {
		c.Class, c.Why = Conflict, names.Text(whyError(err))
	}
	if c.Class.Applies() {
		a.judge(&c)
	}
	return c
}

func whyError(err error) string {
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		return "a directory on its path in the source is a link"
	}
	return "it cannot be compared: " + err.Error()
}

func (c *Change) conflict(format string, args ...any) error {
	c.Class, c.Why = Conflict, names.Textf(format, args...)
	return nil
}

// since returns the time at which the owner changed the source's file.
func (c *Change) since() string { return c.have.info.ModTime().Format("2006-01-02 15:04:05") }

// classifyRemoval is classify for a path that the stage has removed.
func (a *applier) classifyRemoval(c *Change, rec *draft.Record) error {
	if !rec.Whiteout || !c.have.exists {
		return nil
	}
	if c.have.isDir() && rec.Base.Kind == draft.Dir {
		return a.classifyEmptied(c, Removed)
	}
	isOld, err := a.isBase(c, &rec.Base)
	if err != nil {
		return err
	}
	if !isOld {
		return c.conflict("removed in the stage, and changed by you at %s", c.since())
	}
	c.Class = Removed
	return nil
}

// classifyEmptied sets the class of a source directory that is to be removed: class if the stage
// has removed all its contents, else Conflict.
func (a *applier) classifyEmptied(c *Change, class Class) error {
	d, err := a.st.Source(a.l).Below(c.Path.Raw(), true)
	if err != nil {
		return err
	}
	defer d.Close()
	c.Class = class
	return beneath.EachName(d, func(e *beneath.Entry) bool {
		if rec, _ := a.store.RecordOf(c.Path.Raw() + "/" + e.Name); !rec.Whiteout {
			_ = c.conflict("removed in the stage, and you made %s in it", names.Quote(e.Name))
		}
		return c.Class == class
	})
}

// classifyDir is classify for a directory of the stage.
func (a *applier) classifyDir(c *Change, rec *draft.Record) error {
	wasDir := rec.Base.Kind == draft.Dir
	switch {
	case !c.have.exists && wasDir && !rec.Whiteout:
		return nil // the owner removed it; changes in it are conflicts of their own
	case !c.have.exists && rec.Base.Kind != draft.Nothing && !rec.Whiteout:
		return c.conflict("you removed it, and it was replaced in the stage")
	case !c.have.exists:
		c.Class, c.mode = New, c.Mode
		return nil
	case c.have.isDir() && rec.Base.Kind == draft.Nothing:
		c.classifyDoubleDir()
		return nil
	case c.have.isDir():
		return a.compareAttributes(c, &rec.Base, Same)
	}
	isOld, err := a.isBase(c, &rec.Base)
	if err != nil {
		return err
	}
	if !isOld {
		return c.conflict("a directory in the stage, and something else of yours since %s", c.since())
	}
	c.Class, c.mode = Replaced, c.Mode
	return nil
}

// classifyDoubleDir classifies a directory that both sides have made. The source's directory keeps
// its mode, unless Apply has made that directory and was killed before Finish.
func (c *Change) classifyDoubleDir() {
	if c.Mode&0o7777 != makingMode && c.OldMode&0o1777 == makingMode {
		c.Class, c.mode = Mode, c.Mode
	}
}

// classifyFile is classify for any other file of the stage.
func (a *applier) classifyFile(c *Change, rec *draft.Record) error {
	switch {
	case c.want.info.Special():
		c.Class, c.Why = Special, "a device, FIFO or socket stays in the stage"
		return nil
	case !c.have.exists && rec.Base.Kind != draft.Nothing && !rec.Whiteout:
		return c.conflict("you removed it, and it was changed in the stage")
	case !c.have.exists:
		c.Class, c.mode = New, c.Mode
		return nil
	case c.have.isDir() && rec.Base.Kind == draft.Dir: // a program removed or exchanged it
		c.mode = c.Mode
		return a.classifyEmptied(c, Replaced)
	case c.have.isDir():
		return c.conflict("a file in the stage, and a directory of yours")
	}
	isSame, err := a.isSame(c)
	if err != nil {
		return err
	}
	isRegular := c.want.info.IsRegular()
	switch {
	case isSame && (!isRegular || rec.Base.Kind == draft.Nothing):
		return nil
	case isSame:
		return a.compareAttributes(c, &rec.Base, Same)
	case rec.Base.Kind == draft.Nothing:
		return c.conflict("made in the stage, and by you at %s", c.since())
	}
	isOld, err := a.isBase(c, &rec.Base)
	switch {
	case err != nil:
		return err
	case !isOld:
		return c.conflict("changed in the stage, and by you at %s", c.since())
	case c.want.info.Type() != c.have.info.Type():
		c.Class, c.mode = Replaced, c.Mode
		return nil
	}
	return a.compareAttributes(c, &rec.Base, Changed)
}

// isBase reports whether the source's file is the one that a program first changed, or has the same
// contents.
func (a *applier) isBase(c *Change, base *draft.Base) (bool, error) {
	now := beneath.BaseOf(&c.have.info)
	now.Hash = base.Hash
	switch {
	case now == *base:
		return true, nil
	case now.Kind != base.Kind || base.Hash == [32]byte{}:
		return false, nil
	}
	// A checkout, for example, writes the same contents to a new file.
	d, err := a.st.Source(a.l).Below(c.Path.Raw(), false)
	if err != nil {
		return false, err
	}
	defer d.Close()
	if sum, ok := beneath.EntriesHash(c.Path.Raw(), d.FD()); ok {
		return sum == base.Hash, nil
	}
	if now.Size != base.Size {
		return false, nil
	}
	if now.Kind == draft.Link {
		target, err := beneath.Readlink(d.FD())
		return sha256.Sum256([]byte(target)) == base.Hash, err
	}
	fd, err := beneath.Reopen(d.FD(), unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer beneath.Close(fd)
	sum, err := beneath.HashOf(fd)
	return sum == base.Hash, err
}

// isSame reports whether both sides have files of one kind with equal contents.
func (a *applier) isSame(c *Change) (bool, error) {
	want, have := &c.want.info, &c.have.info
	if want.Type() != have.Type() || want.Size != have.Size {
		return false, nil
	}
	up, err := a.st.Upper(c.Path.Raw(), false)
	if err != nil {
		return false, err
	}
	defer up.Close()
	low, err := a.st.Source(a.l).Below(c.Path.Raw(), false)
	if err != nil {
		return false, err
	}
	defer low.Close()
	if want.Type() == unix.S_IFLNK {
		x, err1 := beneath.Readlink(up.FD())
		y, err2 := beneath.Readlink(low.FD())
		return x == y, errors.Join(err1, err2)
	}
	x := -1
	err = a.st.Readable(a.l, up, want, func() (err error) { x, err = beneath.Reopen(up.FD(), unix.O_RDONLY); return err })
	if err != nil {
		return false, err
	}
	defer beneath.Close(x)
	y, err := beneath.Reopen(low.FD(), unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer beneath.Close(y)
	return a.equalFiles(x, y)
}

// equalFiles reports whether two open files have equal contents.
func (a *applier) equalFiles(x, y int) (bool, error) {
	p, q := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); ; {
		n, err1 := beneath.Pread(x, p, off)
		m, err2 := beneath.Pread(y, q, off)
		if err := cmp.Or(err1, err2, a.l.Life().Ended(a.ctx)); err != nil {
			return false, err
		}
		if !bytes.Equal(p[:n], q[:m]) || n == 0 {
			return bytes.Equal(p[:n], q[:m]), nil
		}
		off += int64(n)
	}
}

// judge changes the class of a change that must not be applied.
func (a *applier) judge(c *Change) {
	if a.store.Unsure(c.Path.Raw(), c.want.info.Ino) {
		c.Class, c.Why = Unsure, "written shortly before the machine stopped: look at it"
		return
	}
	a.judgePolicy(c)
}

// judgePolicy is judge without the check for unsure changes.
func (a *applier) judgePolicy(c *Change) {
	dir, base := splitRel(c.Path.Raw())
	access, kind := rules.ToChange, pattern.Other
	if c.Class == New || c.Class == Replaced {
		access = rules.ToMake
	}
	if c.want.isDir() || !c.want.exists && c.have.isDir() {
		kind = pattern.Dir
	} else if c.want.exists && c.want.info.Type() == unix.S_IFLNK {
		kind = pattern.Link
	}
	judge := a.l.Judge()
	err := judge.Dir(dir)
	if err == nil {
		err = judge.As(access, dir, base, kind)
	}
	if err != nil {
		c.Class, c.Why = Protected, "refused by the policy of now"
		if r := (*rules.Refusal)(nil); errors.As(err, &r) {
			c.Why += names.Text(": " + r.Why())
		}
		return
	}
	if c.want.exists {
		a.judgeUpper(c, dir, kind)
	}
}

// isOpen reports whether a program has the stage's file open for writing.
func (a *applier) isOpen(c *Change) bool {
	if !c.want.exists || !c.want.info.IsRegular() {
		return false
	}
	up, err := a.st.Upper(c.Path.Raw(), false)
	if err != nil {
		return false
	}
	defer up.Close()
	shown, err := beneath.Stat(a.l, up.FD())
	return err == nil && a.IsWritten(shown.ID())
}

// judgeUpper is the part of judgePolicy that reads the upper directory.
func (a *applier) judgeUpper(c *Change, dir string, kind pattern.Type) {
	up, err := a.st.Upper(c.Path.Raw(), false)
	if err != nil {
		c.Class, c.Why = Conflict, names.Text(whyError(err))
		return
	}
	defer up.Close()
	if a.isOpen(c) {
		c.Class, c.Why = InUse, "a program has it open for writing: try again"
		return
	}
	if kind != pattern.Link {
		return
	}
	at, err := guard.NewPath(a.Root, dir)
	target := ""
	if err == nil {
		if target, err = beneath.Readlink(up.FD()); err == nil {
			err = a.StaysInside(a.l, at, target)
		}
	}
	if err != nil {
		c.Class, c.Why = Link, names.Text("it leads out of the root, to "+names.Quote(target))
	}
}
