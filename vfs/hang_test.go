package vfs_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/hangfs"
	"github.com/rootsfs/rootsfs/vfs"
)

// hangBed is a bed over a source whose requests hang when they are told to.
type hangBed struct {
	*bed
	fs     *hangfs.FS
	closed chan struct{} // by the last user of the source, after its root has ended
}

func newHangBed(t *testing.T, p guard.Policy) *hangBed {
	t.Helper()
	h := &hangBed{bed: &bed{TB: t, src: t.TempDir()}, closed: make(chan struct{})}
	h.fs = hangfs.Mount(t, t.TempDir(), h.src)
	h.reg = guard.NewRegistry(guard.Config{Opener: closingOpener{vfs.Opener(), h.closed}, Deadline: 100 * time.Millisecond})
	h.t = vfs.New(h.reg)
	h.grant("code", "", p)
	return h
}

// closingOpener tells when its source is closed.
type closingOpener struct {
	guard.Opener
	closed chan struct{}
}

func (o closingOpener) OpenRoot(path string) (guard.Source, error) {
	s, err := o.Opener.OpenRoot(path)
	return closingSource{s, o.closed}, err
}

type closingSource struct {
	guard.Source
	closed chan struct{}
}

func (s closingSource) Close() error {
	defer close(s.closed)
	return s.Source.Close()
}

// hang begins an operation, and returns when a request of it hangs.
func (h *hangBed) hang(request string, op func() error) (held *hangfs.Held, answer <-chan error) {
	h.Helper()
	held = h.fs.Hold(request)
	got := make(chan error, 1)
	go func() { got <- op() }()
	<-held.Entered
	return held, got
}

// A write that is refused because its root has ended does not reach the source after
// the revocation has returned without an error. Issue 38, F2.
func TestRefusedWriteDoesNotArrive(t *testing.T) {
	h := newHangBed(t, guard.Policy{})
	h.put("f", "old")
	f := h.open("f", unix.O_RDWR)
	h.fs.Changes()
	held, answer := h.hang("getattr", func() error {
		return second(f.WriteAt(bg, who, [][]byte{[]byte("new")}, 0, vfs.Writing{Touch: &vfs.Touch{}}))
	})
	h.revoke("code")
	h.wantKind(<-answer, names.Revoked)
	held.Release()
	<-h.closed
	f.Close()
	if got := h.fs.Changes(); len(got) != 0 {
		t.Errorf("requests that change the source, after the revocation: %v", got)
	}
	h.contents("f", "old")
}
