package vfs

import (
	"context"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
)

// TempPrefix begins the temporary names of unfinished files.
const TempPrefix = beneath.TempPrefix

// Journal notes the temporary names that Replace and uploads make, so that the next session can
// remove leftover ones (CleanTemp); see wholefile.Journal.
type Journal = wholefile.Journal

// SetJournal sets the journal; it must be called before the tree is used.
func (t *Tree) SetJournal(j Journal) { t.preparer.SetJournal(j) }

// CleanTemp removes an unfinished file that another daemon left, at a path that its Journal
// names. The file must be regular, and its name must begin with TempPrefix; else it stays, and the
// error is Invalid. It is no error if the path does not exist. CleanTemp needs no right,
// because rootsfs made the file, so it also works in a root that has become read-only. The
// removal is recorded.
func (t *Tree) CleanTemp(ctx context.Context, p guard.Path) error {
	req := guard.Request{Caller: t.ownerOf(p.Root), Op: names.OpGetattr, Path: p}
	removed, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (bool, int64, error) {
		dir, base := p.Split()
		if !strings.HasPrefix(base, TempPrefix) {
			return false, 0, &guard.Error{Kind: names.Invalid}
		}
		d, err := beneath.OpenDir(l, dir.Rel())
		if l.Source().File() != "" && dir.IsRoot() {
			// The temporary sibling of a single-file root.
			d, err = beneath.Root(l), nil
		}
		if err != nil {
			return false, 0, beneath.IgnoreAbsent(err)
		}
		defer d.Close()
		info, err := beneath.StatIn(d, base)
		if err != nil {
			return false, 0, beneath.IgnoreAbsent(err)
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

// ownerOf returns the caller for the owner's own operations on a root.
func (t *Tree) ownerOf(root guard.RootName) guard.Caller {
	who, _ := t.reg.SubjectOf(root)
	return guard.Caller{Via: guard.ViaControl, Subject: who}
}
