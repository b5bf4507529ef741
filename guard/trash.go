package guard

import (
	"fmt"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A root may keep what is removed in it: a file that is unlinked, replaced or truncated to
// nothing is moved (or copied) to a directory of the root that no front end shows. This file
// says which directory that is; package vfs keeps the file.

// TrashName is the name of that directory, at the top of the root. The name is
// hidden anywhere in a root, by a rule that no Allow lifts: always where the root
// keeps a trash, and otherwise unless the built-in rules are off.
const TrashName = ".rootsfs-trash"

// Trash says whether a root keeps what is removed, and how much of it. The zero
// value keeps nothing. A single-file root has no directory to keep files in, so a grant of one
// that is writable and has a trash is refused.
type Trash struct {
	On   bool          `json:"on,omitempty"`
	Size int64         `json:"size,omitempty"` // bytes; beyond it the oldest are removed; 0: DefaultTrashSize
	Age  time.Duration `json:"age,omitempty"`  // older files are removed; 0: DefaultTrashAge
}

// The bounds of a trash that names none.
const (
	DefaultTrashSize = 1 << 30
	DefaultTrashAge  = 30 * 24 * time.Hour
)

// Bounds are how much is kept, in bytes, and for how long.
func (t Trash) Bounds() (size int64, age time.Duration) {
	size, age = t.Size, t.Age
	if size <= 0 {
		size = DefaultTrashSize
	}
	if age <= 0 {
		age = DefaultTrashAge
	}
	return size, age
}

// check refuses, for a root whose files can be removed, a trash that could not keep them:
// that of a single file, or one whose name is taken by something else.
func (t Trash) check(src Source, resolved string, rights Rights) error {
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

// Trash returns the root whose trash keeps the files that the operation removes: the
// descriptor of the root's directory, which is valid as long as Dir's, and the path of that
// directory below the lease's root. It is the innermost root that the operation has entered
// and that has a trash. ok is false if none has.
func (l *Lease) Trash() (dir int, below string, t Trash, ok bool) {
	for i := len(l.crossed) - 1; i >= 0; i-- {
		r := l.crossed[i].root
		if p := r.policy.Load(); r.keepsTrash(l, p) {
			return r.src.FD(), l.pathOf(r), p.Trash, true
		}
	}
	if l.root.keepsTrash(l, l.policy) {
		return l.root.src.FD(), "", l.policy.Trash, true
	}
	return -1, "", Trash{}, false
}

// keepsTrash reports whether what the operation removes in the root goes to the root's trash.
// In a staged root only the owner's apply removes something for good.
func (r *root) keepsTrash(l *Lease, p *Policy) bool {
	return p.Trash.On && r.src.File() == "" && (!p.Rights.Staged() || l.req.Op == names.OpApply)
}

// pathOf is the path of a nested root below the lease's; "" of one at the same directory.
func (l *Lease) pathOf(r *root) string {
	for i := range l.nesting.scopes {
		if s := &l.nesting.scopes[i]; s.root == r {
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
