package session

import (
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
)

// history is the session's guard.History. A directory that cannot be put on record
// while the session starts fails the start later, after the audit log, which lies in
// the same place and says better what is wrong there.
type history struct {
	*written.Dirs

	mu      sync.Mutex // guards the fields below
	started bool
	err     error // the first one of the start
}

// Writable implements guard.History.
func (h *history) Writable(dir string) error {
	err := h.Dirs.Writable(dir)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || h.started {
		return err
	}
	if h.err == nil {
		h.err = err
	}
	return nil
}

// begin returns the error of the start. Nobody has used a root before it is called.
func (h *history) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = true
	return h.err
}
