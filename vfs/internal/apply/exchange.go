package apply

import (
	"crypto/rand"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// A file is replaced in three steps. First, the new file is completed under a temporary name.
// Second, the new file and the old one exchange their names. Third, the old file is checked. If it
// is the file that Plan compared, and nobody waits to open it for writing, it is removed or moved to
// the trash. Otherwise the names are exchanged back. So an edit that the owner made in between is at
// its path again.

// tempName returns a new temporary name.
func tempName() string { return beneath.TempPrefix + strings.ToLower(rand.Text()) }

// exchange replaces the source's file.
func (p *placement) exchange() error {
	temp, err := p.makeTemp()
	if err != nil {
		return err
	}
	isAlone, end, err := p.blockWriters()
	if err != nil {
		return errors.Join(err, p.unmake(temp))
	}
	defer end()
	if err := atStep("exchange", p.c.Path.Raw()); err != nil {
		return err
	}
	if err := beneath.Rename(p.l, p.d, temp, p.d, p.base, unix.RENAME_EXCHANGE); err != nil {
		return errors.Join(err, p.unmake(temp))
	}
	if err := atStep("look", p.c.Path.Raw()); err != nil {
		return err
	}
	out, err := beneath.StatIn(p.d, temp)
	switch {
	case err != nil:
		return err
	case !equal(&out, &p.c.have.info):
		return p.exchangeBack(temp, errOwnerChanged)
	case !isAlone():
		return p.exchangeBack(temp, errOpen)
	}
	if err := p.retire(temp, &out); err != nil {
		return p.exchangeBack(temp, err)
	}
	if err := atStep("retired", p.c.Path.Raw()); err != nil {
		return err
	}
	return p.store.EndStep(p.c.Path.Raw())
}

// makeTemp makes the new file under a temporary name, and records that the new file is about to be
// exchanged with the old one.
func (p *placement) makeTemp() (string, error) {
	if p.info.IsRegular() {
		return p.namePrepared()
	}
	temp := tempName()
	if err := p.recordStep(temp, draft.Step{Making: true}); err != nil {
		return "", err
	}
	var err error
	if p.info.IsDir() {
		_, err = beneath.Mkdir(p.l, p.d, temp, p.c.mode&0o777|0o700, beneath.Owner{})
	} else {
		err = p.symlink(temp)
	}
	if err != nil {
		return "", errors.Join(err, p.store.EndStep(p.c.Path.Raw()))
	}
	info, err := beneath.StatIn(p.d, temp)
	if err != nil {
		return "", err
	}
	p.newBase = beneath.BaseOf(&info)
	return temp, p.recordStep(temp, draft.Step{New: p.newBase})
}

// blockWriters makes each open of the source's file for writing wait until end is called. isAlone
// reports whether no open is waiting. If the file is not regular or not readable, or the kernel
// refuses a lease, no open waits and isAlone always reports true. The error is errOpen or
// errOwnerChanged.
func (p *placement) blockWriters() (isAlone func() bool, end func(), err error) {
	always := func() bool { return true }
	if !p.c.have.info.IsRegular() {
		return always, func() {}, nil
	}
	h, info, err := beneath.OpenFile(nil, p.d, p.base, unix.O_RDONLY)
	if err == unix.EACCES { //nolint:errorlint // bare errno
		return always, func() {}, nil
	}
	if err != nil {
		return nil, nil, errOwnerChanged
	}
	if !equal(&info, &p.c.have.info) {
		h.Close()
		return nil, nil, errOwnerChanged
	}
	isAlone, release, err := beneath.BlockWriters(h.FD())
	if err != nil {
		h.Close()
		return nil, nil, errOpen
	}
	return isAlone, func() { release(); h.Close() }, nil
}

// retire removes the source's old file, which now has the name temp, or moves it to the trash. out
// describes the old file.
func (p *placement) retire(temp string, out *beneath.Info) error {
	p.old = p.st.KeepOld(p.l, p.d, temp)
	if err := p.noteForUndo(); err != nil {
		return err
	}
	if out.IsDir() {
		return beneath.Rmdir(p.l, p.d, temp)
	}
	open := p.Trash.Open
	if p.c.isTaken {
		open = p.Trash.OpenAlways
	}
	bin, err := open(p.ctx, p.l)
	if err != nil {
		return err
	}
	defer bin.Close()
	return bin.Unlink(p.l, p.d, temp, p.c.Path.Raw())
}

// exchangeBack exchanges the names back, because of the error why, and returns that error. If the
// owner has meanwhile replaced or changed the new file, two files hold data of the owner. Then one
// of the two stays under the temporary name, and p.why names it.
func (p *placement) exchangeBack(temp string, why error) error {
	if !p.isOurs(p.base) {
		return p.leave(temp, why)
	}
	if err := beneath.Rename(p.l, p.d, temp, p.d, p.base, unix.RENAME_EXCHANGE); err != nil {
		return errors.Join(why, err) // Recover tries again
	}
	if !p.isOurs(temp) || p.isUsed(temp, &p.newBase) {
		return p.leave(temp, why)
	}
	return errors.Join(why, p.rebase(), p.unmake(temp))
}

// isOurs reports whether a name refers to the new file.
func (p *placement) isOurs(name string) bool {
	info, err := beneath.StatIn(p.d, name)
	if err != nil {
		return false
	}
	now := beneath.BaseOf(&info)
	return isSameFile(&now, &p.newBase)
}

// isUsed reports whether the file with the name temp is in another state than the recorded one
// (then), or is open for writing. If the file cannot be examined, isUsed reports true.
func (p *placement) isUsed(temp string, then *draft.Base) bool {
	isAlone := func() bool { return true }
	if then.Kind == draft.File {
		h, _, err := beneath.OpenFile(nil, p.d, temp, unix.O_RDONLY)
		if err != nil && err != unix.EACCES { //nolint:errorlint // bare errno
			return true
		}
		if err == nil {
			defer h.Close()
			noneWaits, end, err := beneath.BlockWriters(h.FD())
			if err != nil {
				return true
			}
			defer end()
			isAlone = noneWaits
		}
	}
	info, err := beneath.StatIn(p.d, temp)
	if err != nil {
		return true
	}
	now := beneath.BaseOf(&info)
	return !isUnchanged(&now, then) || !isAlone()
}

// rebase records the new ctime of a file of the source that was moved and moved back. Without
// that, the file would look changed by the owner.
func (p *placement) rebase() error {
	now, err := beneath.StatIn(p.d, p.base)
	rec, ok := p.store.RecordOf(p.c.Path.Raw())
	if err != nil || !ok || !equal(&now, &p.c.have.info) || rec.Base.Ctime != p.c.have.info.ChangeNanos() {
		return nil //nolint:nilerr // the file then counts as changed
	}
	rec.Base.Ctime = now.ChangeNanos()
	return p.store.Replace(rec)
}

// tempPath quotes the path of a temporary name in the directory of path.
func tempPath(path, temp string) string {
	parent, _ := splitRel(path)
	return names.Quote(strings.TrimPrefix(parent+"/"+temp, "/"))
}

// leave leaves a file of the owner under the name temp, names its path in p.why, and returns the
// error why.
func (p *placement) leave(temp string, why error) error {
	p.why = why.Error() + "; what was there lies in " + tempPath(p.c.Path.Raw(), temp)
	return errors.Join(why, p.store.EndStep(p.c.Path.Raw()))
}

// remove removes the source's file.
func (p *placement) remove() error {
	if p.c.have.isDir() {
		p.old = p.st.KeepOld(p.l, p.d, p.base)
		if err := p.noteForUndo(); err != nil {
			return err
		}
		return beneath.Rmdir(p.l, p.d, p.base)
	}
	isAlone, end, err := p.blockWriters()
	if err != nil {
		return err
	}
	defer end()
	r, err := p.takePrepared()
	if err != nil {
		return err
	}
	temp := r.temp
	if err := atStep("move", p.c.Path.Raw()); err != nil {
		return err
	}
	if err := beneath.RenameNew(p.l, p.d, p.base, p.d, temp); err != nil {
		return errors.Join(err, p.store.EndStep(p.c.Path.Raw()))
	}
	if err := atStep("look", p.c.Path.Raw()); err != nil {
		return err
	}
	out, err := beneath.StatIn(p.d, temp)
	switch {
	case err != nil:
		return err
	case !equal(&out, &p.c.have.info):
		err = errOwnerChanged
	case !isAlone():
		err = errOpen
	default:
		err = p.retire(temp, &out)
	}
	if err == nil {
		return p.store.EndStep(p.c.Path.Raw())
	}
	switch back := beneath.RenameNew(p.l, p.d, temp, p.d, p.base); {
	case errors.Is(back, unix.EEXIST):
		return p.leave(temp, err)
	case back != nil:
		return errors.Join(err, back) // Recover tries again
	}
	return errors.Join(err, p.rebase(), p.store.EndStep(p.c.Path.Raw()))
}
