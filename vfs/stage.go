package vfs

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// TempPrefix begins the names of files that are not finished.
const TempPrefix = beneath.TempPrefix

// Journal is told of the temporary names that Replace and uploads make, so that
// what a daemon left that was killed, or whose root had ended, can be removed by the
// next one (CleanTemp). Begin is
// called before the name exists, and has it on disk when it returns; done is
// called when the name is gone. Both may be called concurrently. Most writes
// need no temporary name at all, and are not journalled.
type Journal interface {
	Begin(p guard.Path) (done func())
}

type journalling struct{ to atomic.Pointer[Journal] }

// SetJournal names the journal; it must be called before the tree is used.
func (t *Tree) SetJournal(j Journal) { t.journal.to.Store(&j) }

func (j *journalling) begin(p guard.Path) (done func()) {
	if to := j.to.Load(); to != nil && *to != nil {
		return (*to).Begin(p)
	}
	return func() {}
}

// staged is a file's new contents before they have the file's name.
type staged struct {
	fd   int
	mode uint32 // it was made with
	temp string // its name meanwhile, "" when it has none
	done func() // of the journal, for temp
}

// stage makes a file in d, which lies at dir, without a name if possible.
func (t *Tree) stage(l *guard.Lease, d beneath.Dir, dir guard.Path, mode uint32, o beneath.Owner) (*staged, error) {
	s := &staged{fd: -1, mode: mode}
	fd, ok, err := beneath.Nameless(l, d, mode, o)
	if err != nil {
		return nil, err
	}
	if ok {
		s.fd = fd
		return s, nil
	}
	err = t.name(s, dir, func(temp string) (err error) {
		s.fd, _, err = beneath.CreateFile(l, d, temp, unix.O_RDWR, mode, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// name finds a temporary name, journals it, and has make make it.
func (t *Tree) name(s *staged, dir guard.Path, make func(temp string) error) error {
	for range 100 {
		temp := TempPrefix + strings.ToLower(rand.Text())
		p, err := dir.Join(temp)
		if err != nil {
			return err
		}
		done := t.journal.begin(p)
		err = make(temp)
		if err == nil {
			s.temp, s.done = temp, done
			return nil
		}
		done()
		if err != unix.EEXIST { //nolint:errorlint // bare errno
			return err
		}
	}
	return unix.EEXIST
}

// publish gives the staged file its name: that of the file it replaces, or one
// that must be free.
func (t *Tree) publish(l *guard.Lease, s *staged, d beneath.Dir, dir guard.Path, base string, replaces bool) error {
	link := func(name string) error { return beneath.Name(l, s.fd, d, name) }
	if s.temp == "" {
		if !replaces {
			return link(base)
		}
		if err := t.name(s, dir, link); err != nil {
			return err
		}
	}
	var err error
	if replaces {
		err = beneath.Rename(l, d, s.temp, d, base, 0)
	} else {
		err = beneath.RenameNew(l, d, s.temp, d, base)
	}
	if err == nil {
		s.temp = ""
		s.done()
	}
	return err
}

// drop ends the staging: what did not take its name vanishes.
func (s *staged) drop(l *guard.Lease, d beneath.Dir) {
	s.removeTemp(l, d)
	beneath.Close(s.fd)
}

// removeTemp removes the temporary name, if the file has one. If that fails, or the
// lease is dead, the journal keeps the name for the next session.
func (s *staged) removeTemp(l *guard.Lease, d beneath.Dir) {
	if s.temp == "" {
		return
	}
	if absent(beneath.Unlink(l, d, s.temp)) == nil {
		s.done()
	}
}

// CleanTemp removes what another daemon left at a path that its Journal names:
// a regular file whose name begins with TempPrefix. Anything else it leaves
// alone, and refuses (Invalid); that nothing is there is no error. It asks for
// no right, because the litter is ours; a root that is read-only by now is
// cleaned too. What was removed is on record.
func (t *Tree) CleanTemp(ctx context.Context, p guard.Path) error {
	req := guard.Request{Caller: t.ownerOf(p.Root), Op: names.OpGetattr, Path: p}
	removed, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (bool, int64, error) {
		dir, base := p.Split()
		if !strings.HasPrefix(base, TempPrefix) {
			return false, 0, &guard.Error{Kind: names.Invalid}
		}
		d, err := beneath.OpenDir(l, dir.Rel())
		if l.File() != "" && dir.IsRoot() {
			// The temporary sibling of a single-file root.
			d, err = beneath.In(l, l.Dir()), nil
		}
		if err != nil {
			return false, 0, absent(err)
		}
		defer d.Close()
		info, err := beneath.StatIn(d, base)
		if err != nil {
			return false, 0, absent(err)
		}
		if !info.IsRegular() {
			return false, 0, &guard.Error{Kind: names.Invalid}
		}
		return true, 0, beneath.Unlink(l, d, base)
	})
	if err != nil || !removed {
		return err
	}
	return t.reg.Note(names.OpUnlink, p.Root, guard.Allowed, "removed the unfinished file "+names.Quote(p.String()))
}

// ownerOf is the caller of the owner's own operations on a root.
func (t *Tree) ownerOf(root guard.RootName) guard.Caller {
	who, _ := t.reg.SubjectOf(root)
	return guard.Caller{Via: guard.ViaControl, Subject: who}
}

// absent is no error when there is nothing to remove.
func absent(err error) error {
	if err == unix.ENOENT { //nolint:errorlint // bare errno
		return nil
	}
	return err
}
