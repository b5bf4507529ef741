package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Changeable is the descriptor of a file that an operation may change. It is what every
// call takes that changes a file or its attributes. Only this package makes one: for a file
// that it has created, or that Change or Handle.Change allows to be changed. So a descriptor
// that must not be written through cannot be passed to such a call by mistake: that does not
// compile.
type Changeable struct {
	// next is the descriptor plus one, so that the zero Changeable refers to no file.
	next int
}

func changeable(fd int) Changeable { return Changeable{fd + 1} }

// FD is the descriptor, for calls that change nothing; -1 for the zero Changeable.
func (w Changeable) FD() int { return w.next - 1 }

// Handle makes the descriptor one that is kept.
func (w Changeable) Handle() Handle { return Handle{w.FD()} }

// Close closes the descriptor. On the zero Changeable it does nothing.
func (w Changeable) Close() {
	if w.next > 0 {
		_ = unix.Close(w.FD())
	}
}

// Change allows what d refers to to be changed.
func Change(_ *guard.Lease, d *Dir) (Changeable, error) { return changeable(d.fd), nil }

// Handle is the descriptor of a file, open or a reference (O_PATH), that may be kept between
// operations.
type Handle struct{ fd int }

// FD is the descriptor, for calls that change nothing.
func (h *Handle) FD() int { return h.fd }

// Change allows the file to be changed.
func (h *Handle) Change(_ *guard.Lease) (Changeable, error) { return changeable(h.fd), nil }

// Hold says whether the handle may be kept; if not, it is closed.
func (h *Handle) Hold() error { return Hold(h.fd) }

// Close closes the descriptor.
func (h *Handle) Close() { _ = unix.Close(h.fd) }

// Open opens what d refers to once more, see Reopen.
func (d Dir) Open(flags int) (Handle, error) {
	fd, err := Reopen(d.fd, flags)
	return Handle{fd}, err
}

// Reopen opens the file once more, see the function Reopen.
func (h *Handle) Reopen(_ *guard.Lease, flags int) (Handle, error) {
	fd, err := Reopen(h.fd, flags)
	return Handle{fd}, err
}
