package vfs

import (
	"context"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

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

// recordWrite leaves the record of a successful whole-file write where the gate
// leaves none: the gate suppresses it when the name existed (Lease.NotMade is
// meant for opening), and sums plain writes into the record of a close. One
// record with the bytes is what every such write leaves: of the file at q, to
// which the links of asked led.
func (t *Tree) recordWrite(h *guard.Hold, c guard.Caller, asked, q guard.Path, n int64) {
	t.reg.Closed(h, c, q, 0, n, guard.RequestedPath(asked, q), 0)
}
