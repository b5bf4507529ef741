package apply

import (
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// WithoutNameless has the file systems have no files without names, until the result is called.
func WithoutNameless() (undo func()) {
	nameless = func(*guard.Lease, beneath.Dir, uint32, beneath.Owner) (beneath.Changeable, bool, error) {
		return beneath.Changeable{}, false, nil
	}
	return func() { nameless = beneath.Nameless }
}
