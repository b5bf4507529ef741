package guard

import (
	"fmt"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A root may keep removed files: a file that is unlinked, replaced or truncated to nothing is
// moved (or copied) to a directory of the root that no front end shows. This file chooses the root
// whose trash keeps a file; package vfs moves or copies the file.

// checkTrash refuses a trash that could not keep removed files: the trash of a single-file
// root, or a trash that the source refuses (Source.CheckTrash). It checks only roots whose files
// can be changed.
func checkTrash(t rules.Trash, src Source, resolved string, rights Rights) error {
	if !t.On || !rights.Mutating() {
		return nil
	}
	if src.File() == "" {
		if err := src.CheckTrash(); err != nil {
			return &Error{Kind: names.Reason(err), Err: fmt.Errorf("%s cannot have a trash: %w", names.Quote(resolved), err)}
		}
		return nil
	}
	return &Error{Kind: names.Invalid, Err: fmt.Errorf("%s is a single file, and such a root has no trash: "+
		"name its directory, make it read-only (:ro), or turn its trash off (no --trash; trash = { on = false } in its [[root]] block)", names.Quote(resolved))}
}

// Trash finds the root whose trash keeps the files that the operation removes. Of the roots that
// the operation has entered and that have a trash, it is the innermost. Trash returns the
// descriptor of that root's directory, valid as long as the lease, the directory's path below the
// lease's root, and the settings of the trash. ok is false if no root has a trash.
func (l *Lease) Trash() (dir int, below string, t rules.Trash, ok bool) {
	for i := len(l.crossed) - 1; i >= 0; i-- {
		r := l.crossed[i].root
		if p := r.policy.Load(); r.keepsTrash(l, p) {
			return r.src.FD(), l.nesting.prefixOf(r), p.Trash, true
		}
	}
	if l.root.keepsTrash(l, l.policy) {
		return l.root.src.FD(), "", l.policy.Trash, true
	}
	return -1, "", rules.Trash{}, false
}

// keepsTrash reports whether files that the operation removes in the root go to the root's
// trash. In a staged root only the owner's apply (OpApply) removes files of the root's directory.
func (r *root) keepsTrash(l *Lease, p *Policy) bool {
	return p.Trash.On && r.src.File() == "" && (!p.Rights.Staged() || l.req.Op == names.OpApply)
}

// prefixOf returns the path of a nested root below the outer one; "" for a root at the same
// directory.
func (n *nesting) prefixOf(r *root) string {
	for i := range n.scopes {
		if s := &n.scopes[i]; s.root == r {
			return s.prefix
		}
	}
	return ""
}

// PathBelow turns rel, a path below the lease's root, into one below the directory dir of that
// root.
func PathBelow(dir, rel string) string {
	if dir == "" {
		return rel
	}
	return strings.TrimPrefix(strings.TrimPrefix(rel, dir), "/")
}
