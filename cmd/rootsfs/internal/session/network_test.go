package session

import (
	"context"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// closingNetwork has a connection whose end must be recorded.
type closingNetwork struct {
	Network
	s      *Session
	closed bool
	err    error
}

func (n *closingNetwork) Remove([]string) ([]string, int, error) { return nil, 0, nil }

func (n *closingNetwork) Close() {
	n.closed = true
	n.err = n.s.Registry().NoteConnection(guard.Record{Op: names.OpDisconnect, Verdict: guard.Allowed, Detail: "api.test port 443"})
}

// A session that ends closes its network before its audit log.
func TestNetworkEndsBeforeTheAuditLog(t *testing.T) {
	opt, _ := newOptions(t)
	n := &closingNetwork{}
	opt.Network = n
	var err error
	if n.s, err = Start(context.Background(), opt); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	if err := n.s.Run(stop); err != nil {
		t.Fatal(err)
	}
	if !n.closed || n.err != nil {
		t.Errorf("closed: %v, recording the end of its connection: %v", n.closed, n.err)
	}
}
