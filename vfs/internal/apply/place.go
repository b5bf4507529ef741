package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
)

// errOwnerChanged is the error if the owner has changed a file since it was compared.
var errOwnerChanged = errors.New("changed by you at this moment")

// errProgramChanged is the error if a program has changed a file of the stage since it was compared.
var errProgramChanged = errors.New("a program has changed it at this moment: try again")

// errOpen is the error for a file of the source that is open for writing.
var errOpen = errors.New("somebody has it open for writing: try again")

// Finish copies the mode and the other attributes of the stage's directory to the directory that
// Apply has made for c. It must be called last: after it, the directory may not be writable.
func (e Env) Finish(ctx context.Context, l *guard.Lease, c *Change) error {
	p := placement{applier: e.begin(ctx, l), c: c}
	parent, base := splitRel(c.Path.Raw())
	var err error
	if p.d, err = p.st.Source(l).Below(parent, true); err != nil {
		return err
	}
	defer p.d.Close()
	if p.up, err = p.st.Upper(c.Path.Raw(), true); beneath.IsAbsent(err) {
		return nil // a program has removed or moved the stage's directory meanwhile
	} else if err != nil {
		return err
	}
	defer p.up.Close()
	if p.info, err = p.up.Own(); err != nil {
		return err
	}
	return p.st.Readable(l, p.up, &p.info, func() error { return p.copyAttributes(p.up, &p.info, base, p.info.Mode) })
}

// Apply brings one change into the source. If that is no longer possible, Apply sets the class
// to Conflict, InUse or Refused, and returns no error.
func (e Env) Apply(ctx context.Context, l *guard.Lease, c *Change) (written int64, err error) {
	p := placement{applier: e.begin(ctx, l), c: c}
	defer func() { p.d.Close() }()
	parent, base := splitRel(c.Path.Raw())
	p.base = base
	if p.d, err = p.parent(parent); err == nil {
		err = p.run()
	}
	if err == nil && !p.isNoted {
		err = p.noteForUndo()
	}
	switch {
	case errors.Is(err, errOpen), errors.Is(err, errProgramChanged):
		c.Class, c.Why = InUse, names.Text(err.Error())
	case errors.Is(err, errOwnerChanged), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY):
		c.Class, c.Why = Conflict, names.Text(errOwnerChanged.Error())
	case errors.Is(err, unix.ELOOP) || beneath.IsAbsent(err):
		c.Class, c.Why = Conflict, "its directory in the source has gone"
	case isRefused(err):
		c.Class, c.Why = Refused, names.Text(p.whyRefused(err))
	default:
		return p.written, err
	}
	if p.why != "" {
		c.Why = names.Text(p.why)
	}
	return p.written, nil
}

// placement is one change that is being applied.
type placement struct {
	applier
	c       *Change
	d       beneath.Dir // the directory of the source that has, or gets, the file
	base    string      // the file's name in d
	up      beneath.Dir // the stage's file
	info    beneath.Info
	newBase draft.Base // describes the new file, once it has a name
	written int64
	why     string      // if not empty, replaces the error as Change.Why
	old     beneath.Old // for an undo: the file that the source had
	isNoted bool        // see noteForUndo
}

// parent opens a directory of the source. If only the stage has the directory, parent makes it.
func (p *placement) parent(rel string) (beneath.Dir, error) {
	d, err := p.st.Source(p.l).Below(rel, true)
	if err != unix.ENOENT || rel == "" { //nolint:errorlint // bare errno
		return d, err
	}
	up, err := p.lookUpper(rel)
	if err != nil || !up.isDir() {
		return beneath.Dir{}, unix.ENOENT
	}
	above, base := splitRel(rel)
	outer, err := p.parent(above)
	if err != nil {
		return beneath.Dir{}, err
	}
	defer outer.Close()
	if _, err := beneath.Mkdir(p.l, outer, base, up.info.Mode&0o777|0o700, beneath.Owner{}); err != nil && err != unix.EEXIST { //nolint:errorlint // bare errno
		return beneath.Dir{}, err
	}
	return outer.Below(base, true)
}

// makingMode is the mode of a directory that Apply has made, until Finish sets the final mode. It
// allows files to be made in the directory. Hardly any other directory has this mode, so
// classifyDoubleDir assumes that Apply has made every directory with this mode.
const makingMode = 0o1700

func (p *placement) run() error {
	c := p.c
	if err := atStep("begin", c.Path.Raw()); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	if !c.want.exists {
		if now, err := p.lookUpper(c.Path.Raw()); err != nil || now.exists {
			return cmp.Or(err, errProgramChanged)
		}
		return p.remove()
	}
	var err error
	if p.up, err = p.st.Upper(c.Path.Raw(), false); beneath.IsAbsent(err) {
		return errProgramChanged
	} else if err != nil {
		return err
	}
	defer p.up.Close()
	if p.info, err = p.up.Own(); err != nil {
		return err
	}
	if !p.st.IsUnchanged(&p.info, &c.want.info) {
		return errProgramChanged
	}
	switch {
	case c.Class == Mode:
		return p.chmod()
	case c.have.exists:
		return p.exchange()
	case p.info.IsDir():
		made, err := beneath.Mkdir(p.l, p.d, p.base, makingMode, beneath.Owner{})
		p.newBase = beneath.BaseOf(&made)
		return err
	default:
		return p.create()
	}
}

// noteForUndo records the change for an undo. It must be called before a file of the owner is
// removed or moved to the trash. If the change does neither, it must be called after the change.
func (p *placement) noteForUndo() error {
	p.isNoted = true
	return p.st.NoteApplied(p.c.Path.Raw(), p.old, p.newBase, p.d, p.base)
}

// check refuses the change if the source's file has changed since the comparison.
func (p *placement) check() error {
	now, err := beneath.StatIn(p.d, p.base)
	switch {
	case beneath.IsAbsent(err) && !p.c.have.exists:
		return nil
	case beneath.IsAbsent(err):
		return errOwnerChanged
	case err != nil:
		return err
	case !p.c.have.exists || !equal(&now, &p.c.have.info) || !now.IsDir() && now.Ctime != p.c.have.info.Ctime:
		return errOwnerChanged
	}
	return nil
}

// equal reports whether a file is the one that was compared, and unchanged. It ignores the
// number of names and the ctime, which a change of the names advances. It also ignores the contents
// of a directory.
func equal(now, then *beneath.Info) bool {
	if now.ID() != then.ID() || now.Mode != then.Mode {
		return false
	}
	return now.IsDir() || now.Size == then.Size && now.Mtime == then.Mtime
}

// chmod changes the mode, the ACL and the user attributes in place.
func (p *placement) chmod() error {
	at, err := beneath.OpenChild(p.d, p.base)
	if err != nil {
		return err
	}
	defer at.Close()
	now, err := at.Own()
	if err != nil {
		return err
	}
	if !equal(&now, &p.c.have.info) {
		return errOwnerChanged
	}
	w, err := at.Change(p.l)
	if err != nil {
		return err
	}
	p.c.appliedID = now.ID()
	p.old, p.newBase = p.st.KeepOld(p.l, p.d, p.base), beneath.BaseOf(&now)
	p.newBase.Mode = now.Mode&^0o7777 | p.c.mode&0o7777
	err = p.st.Readable(p.l, p.up, &p.info, func() error { return beneath.CopyXattrs(p.l, p.up.FD(), w) })
	if err != nil {
		return err
	}
	return beneath.Chmod(p.l, w, p.c.mode&0o7777)
}

// create makes a file at a name that is free.
func (p *placement) create() error {
	if p.info.Type() == unix.S_IFLNK {
		return p.symlink(p.base)
	}
	r, err := p.takePrepared()
	if err != nil {
		return err
	}
	defer r.w.Close()
	info, err := r.w.Own()
	if err != nil {
		return err
	}
	p.c.appliedID, p.newBase = info.ID(), beneath.BaseOf(&info)
	if !r.isNamed {
		return beneath.Link(p.l, r.w, p.d, p.base)
	}
	if err = beneath.RenameNew(p.l, p.d, r.temp, p.d, p.base); err == nil {
		return p.store.EndStep(p.c.Path.Raw())
	}
	return errors.Join(err, p.unmake(r.temp))
}

// unmake removes a temporary file that this package has made, and ends the recorded step.
func (p *placement) unmake(temp string) error {
	info, err := beneath.StatIn(p.d, temp)
	if err == nil && info.IsDir() {
		err = beneath.Rmdir(p.l, p.d, temp)
	} else if err == nil {
		err = beneath.Unlink(p.l, p.d, temp)
	}
	if err = beneath.IgnoreAbsent(err); err != nil {
		return err
	}
	return p.store.EndStep(p.c.Path.Raw())
}

func (p *placement) symlink(name string) error {
	target, err := beneath.Readlink(p.up.FD())
	if err != nil {
		return err
	}
	made, err := beneath.Symlink(p.l, target, p.d, name, beneath.Owner{})
	if err != nil {
		return err
	}
	p.newBase = beneath.BaseOf(&made)
	return p.copyAttributes(p.up, &p.info, name, 0)
}

// copyAttributes copies the attributes of a file of the stage to a name of the source.
func (p *placement) copyAttributes(up beneath.Dir, info *beneath.Info, name string, mode uint32) error {
	at, err := beneath.OpenChild(p.d, name)
	if err != nil {
		return err
	}
	defer at.Close()
	now, err := at.Own()
	if err != nil {
		return err
	}
	if now.Type() != info.Type() {
		return errOwnerChanged
	}
	w, err := at.Change(p.l)
	if err != nil {
		return err
	}
	return beneath.CopyAttributes(p.l, up.FD(), info, w, mode)
}

// fill gives the new file contents and attributes.
func (p *placement) fill(w beneath.Changeable) error {
	in := -1
	err := p.st.Readable(p.l, p.up, &p.info, func() (err error) { in, err = beneath.Reopen(p.up.FD(), unix.O_RDONLY); return err })
	if err != nil {
		return err
	}
	defer beneath.Close(in)
	to := wholefile.Copier{Ctx: p.ctx, Lease: p.l, To: w}
	if err := to.Copy(&wholefile.Source{FD: in, Info: p.info}, p.info.Size, func(int64) {}); err != nil {
		return err
	}
	p.written = p.info.Size
	err = p.st.Readable(p.l, p.up, &p.info, func() error {
		if err := p.keepXattrs(in, w); err != nil {
			return err
		}
		return beneath.CopyAttributes(p.l, in, &p.info, w, p.c.mode)
	})
	if err != nil {
		return err
	}
	if p.c.have.exists { // the file keeps its owner, if this process may give files away
		if err := beneath.Chown(p.l, w, int(p.c.have.info.UID), int(p.c.have.info.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
			return err
		}
	}
	return nil
}

// keepXattrs copies attributes of the source's old file to the new file w: those that the stage's
// file, open as in, cannot have because its file system does not support them.
func (p *placement) keepXattrs(in int, w beneath.Changeable) error {
	if !p.c.have.exists || !p.c.have.info.IsRegular() {
		return nil
	}
	old, err := beneath.OpenChild(p.d, p.base)
	if err != nil {
		return err
	}
	defer old.Close()
	return beneath.CopyUnsupportedXattrs(p.l, old.FD(), in, w)
}

// A file system can refuse a change: a permission or room is missing, or the file is too large.
// Such a change is no conflict: no side is newer, and taking the stage's file would be refused as
// well.

// isRefused reports whether an error is such a refusal.
func isRefused(err error) bool {
	for _, errno := range []error{unix.EACCES, unix.EPERM, unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// writable returns the innermost directory above a path that the source has, and the error that this
// process would get for a new name in that directory. An apply of the path makes its first new name
// there.
func (a *applier) writable(path string) (dir string, err error) {
	above, _ := splitRel(path)
	if got, ok := a.writables[above]; ok {
		return got.dir, got.err
	}
	dir = above
	d, err := a.st.Source(a.l).Below(dir, true)
	if beneath.IsAbsent(err) && dir != "" {
		dir, err = a.writable(dir)
	} else if err == nil {
		err = d.Writable()
		d.Close()
	}
	if a.writables != nil {
		a.writables[above] = writableResult{dir, err}
	}
	return dir, err
}

// writableResult is a result of writable.
type writableResult struct {
	dir string
	err error
}

// whyClosed says why nothing can be changed in a directory.
func whyClosed(dir string, err error) string {
	if !errors.Is(err, unix.EACCES) {
		return "the file system refuses it: " + err.Error()
	}
	if dir == "" {
		return "permission denied: you may not write in the directory of the root; chmod u+w it"
	}
	return fmt.Sprintf("permission denied: you may not write in directory %s; chmod u+w it", names.Quote(dir))
}

// whyRefused says why the file system refused a change.
func (p *placement) whyRefused(err error) string {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return "no room on the file system; make some"
	}
	if errors.Is(err, unix.EFBIG) {
		return "it is larger than a file may be: see ulimit -f"
	}
	if dir, closed := p.writable(p.c.Path.Raw()); closed != nil {
		return whyClosed(dir, closed)
	}
	return "the file system refuses it: " + err.Error()
}
