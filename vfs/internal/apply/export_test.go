package apply

import (
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// WithoutNameless makes the package behave as if no file system supported files without names
// (O_TMPFILE), until undo is called.
func WithoutNameless() (undo func()) {
	nameless = func(*guard.Lease, beneath.Dir, uint32, beneath.Owner) (beneath.Changeable, bool, error) {
		return beneath.Changeable{}, false, nil
	}
	return func() { nameless = beneath.Nameless }
}
