package mount

import (
	"os"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// Copy returns a copy of a detached mount, for a process that is to attach it
// (move_mount(2)), and to close. The error wraps mountpoint.ErrNotDetached when the mount
// is not, or not any more.
func (m *Mount) Copy() (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detached == nil {
		return nil, &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: mountpoint.ErrNotDetached}
	}
	return mountpoint.Copy(m.detached)
}

// Attach puts a detached mount at a point, an existing, empty directory, resolved; there
// it is like one that was made there.
func (m *Mount) Attach(point string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detached == nil {
		return &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: mountpoint.ErrNotDetached}
	}
	info, err := mountpoint.Move(m.detached, point)
	if err != nil {
		return err
	}
	_ = m.detached.Close()
	m.detached = nil
	m.at.Store(&info)
	return nil
}

// LetGo lets go of a detached mount: from then on it is there for as long as somebody
// has a copy. Nobody should keep it who serves it, once there is something to be
// written in it: a process that is killed while it holds the last copy waits for
// itself (see Options.Outside).
func (m *Mount) LetGo() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detached != nil {
		_ = m.detached.Close()
		m.detached = nil
	}
}
