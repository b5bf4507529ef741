package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// pruneEvery is how long pruneTrashes waits between two searches of the trashes. Kept files become
// too old, and kept files that are still open grow, even if programs remove nothing.
const pruneEvery = time.Minute

// pruneTrashes keeps the trashes within their bounds until ctx ends.
func (s *Session) pruneTrashes(ctx context.Context) {
	for {
		for _, root := range trashRoots(s.reg) {
			if err := s.tree.TrashPrune(ctx, root); err != nil && ctx.Err() == nil {
				s.log.Warn("the trash of a root cannot be kept within its bounds", "root", root, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pruneEvery):
		}
	}
}

// trashRoots returns the live roots of a registry that keep removed files. A staged root keeps no
// removed files, because its programs remove no file of its directory.
func trashRoots(reg *guard.Registry) (out []guard.RootName) {
	for _, st := range reg.Roots() {
		if st.State == guard.Live && st.Grant.Policy.Trash.On && !st.FileRoot && st.Stage == nil {
			out = append(out, st.Grant.Root)
		}
	}
	return out
}

// selectTrashRoots returns the root called name or, if name is "", all roots of trashRoots.
func selectTrashRoots(reg *guard.Registry, name string) ([]guard.RootName, error) {
	if name == "" {
		return trashRoots(reg), nil
	}
	st, ok := reg.Lookup(guard.RootName(name))
	if !ok {
		return nil, guard.NoRoot(guard.RootName(name))
	}
	if st.Stage != nil {
		return nil, invalid("root %s is staged, so nothing of its directory is removed while it lives; the trash of the directory: rootsfs trash list --root %s",
			names.Quote(name), names.ShellWord(st.Grant.Resolved))
	}
	return []guard.RootName{guard.RootName(name)}, nil
}

// onTree returns a handler for a verb that calls f with the session's registry and tree.
func onTree[In, Out any](s *Session, f func(context.Context, *guard.Registry, *vfs.Tree, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) { return f(ctx, s.reg, s.tree, in) }
}

// ListTrash lists the files in the trashes of a registry's roots.
func ListTrash(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.TrashRequest) (control.TrashAnswer, error) {
	a := control.TrashAnswer{Files: []vfs.Trashed{}}
	which, err := selectTrashRoots(reg, req.Root)
	for _, root := range which {
		list, lerr := tree.TrashList(ctx, root)
		a.Files, err = append(a.Files, list...), errors.Join(err, lerr)
	}
	return a, err
}

// RestoreTrash restores a file from the trash.
func RestoreTrash(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.RestoreRequest) (control.RestoreAnswer, error) {
	which, err := selectTrashRoots(reg, req.Root)
	if err != nil {
		return control.RestoreAnswer{}, err
	}
	err = &guard.Error{Op: names.OpRestore, Kind: names.NotExist, Err: fmt.Errorf("no trash has %s; see: rootsfs trash list", names.Quote(req.ID))}
	for _, root := range which {
		if req.Root == "" && !inTrash(ctx, tree, root, req.ID) {
			continue
		}
		p, rerr := tree.TrashRestore(ctx, root, req.ID, req.To)
		return control.RestoreAnswer{Root: names.Foreign(p.Root), Path: names.Text(names.Escape(p.Rel()))}, rerr
	}
	return control.RestoreAnswer{}, err
}

func inTrash(ctx context.Context, tree *vfs.Tree, root guard.RootName, id string) bool {
	list, err := tree.TrashList(ctx, root)
	for i := range list {
		if err == nil && list[i].HasID(id) {
			return true
		}
	}
	return false
}

// EmptyTrash removes files from the trashes for good.
func EmptyTrash(ctx context.Context, reg *guard.Registry, tree *vfs.Tree, req control.EmptyRequest) (vfs.Emptied, error) {
	var sum vfs.Emptied
	if req.OlderThanMS < 0 || req.OlderThanMS > config.MaxFor.Milliseconds() {
		return sum, invalid("an age is between 0 and %v", config.MaxFor)
	}
	which, err := selectTrashRoots(reg, req.Root)
	if err != nil {
		return sum, err
	}
	before := time.Now().Add(-time.Duration(req.OlderThanMS) * time.Millisecond)
	left := req.IDs
	for _, root := range which {
		var mine, others []string
		for _, id := range left {
			if req.Root != "" || inTrash(ctx, tree, root, id) {
				mine = append(mine, id)
			} else {
				others = append(others, id)
			}
		}
		left = others
		if len(req.IDs) > 0 && len(mine) == 0 {
			continue
		}
		e, err := tree.TrashEmpty(ctx, root, mine, before)
		sum.Files, sum.Bytes = sum.Files+e.Files, sum.Bytes+e.Bytes
		if err != nil {
			return sum, err
		}
	}
	if len(left) > 0 {
		return sum, &guard.Error{Op: names.OpEmpty, Kind: names.NotExist, Err: fmt.Errorf("no trash has %s; see: rootsfs trash list", names.Quote(left[0]))}
	}
	return sum, nil
}
