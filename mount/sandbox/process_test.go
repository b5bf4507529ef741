package sandbox

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// After the end of a command, its control socket's number may belong to another command's
// socket. A Process that is closed sends nothing to that socket, and does not shut it down.
func TestNothingIsSentToAnotherSocket(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	p := &Process{sock: pair[0], closed: true}
	p.hangUp()
	p.binder.canBind = true
	if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal: %v", err)
	}
	if err := p.Bind("spare/0", "/x"); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a bind: %v", err)
	}
	p.closed = false
	if err := p.send(initproc.Message{Kind: initproc.KindRelease}); err != nil {
		t.Error(err)
	}
	if m, _, err := initproc.Receive(pair[1]); err != nil || m.Kind != initproc.KindRelease {
		t.Errorf("the first message is %q, %v", m.Kind, err)
	}
	p.hangUp()
	if _, _, err := initproc.Receive(pair[1]); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}
