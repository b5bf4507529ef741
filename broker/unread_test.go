package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

// R005, R079: a server that reads nothing holds neither the revocation of a root
// it watches, nor a narrowing of it, nor the end of its session and the broker's.
func TestRevokeWithUnreadWatch(t *testing.T) {
	l := newLab(t, nil)
	narrowed := l.root("narrowed", guard.ReadWrite, nil)
	l.root("other", guard.ReadOnly, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := l.b.Session("")
	conn, err := s.Lines(inR, outW, 0).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = outR.Close()
		_ = inW.Close()
	})
	// What the peer sends goes through the pipe; it takes the answers to its
	// watches, and then nothing.
	line := func(id int, method, params string) {
		if _, err := fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			t.Fatal(err)
		}
	}
	const watches = 20
	out := bufio.NewReader(outR)
	for i := range watches {
		line(i, wire.Watch, `{"path":"r"}`)
	}
	line(watches, wire.Watch, `{"path":"narrowed"}`)
	for range watches + 1 {
		if _, err := out.ReadBytes('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, narrowed} {
		if err := os.WriteFile(filepath.Join(d, "new"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for s.Stats().Notified < watches+1 { // each is being sent
		time.Sleep(time.Millisecond)
	}
	for i := range 10 {
		line(100+i, wire.Read, `{"path":"r/f"}`)
	}
	if err := l.reg.Set(t.Context(), "narrowed", guard.ReadOnly); err != nil {
		t.Errorf("narrowing: %v", err)
	}
	for _, root := range []guard.RootName{"r", "narrowed", "other"} {
		if _, err := l.reg.Revoke(context.Background(), root); err != nil {
			t.Errorf("revoke %s: %v", root, err)
		}
	}
	if n, _ := l.b.hub.Counts(); n != 0 {
		t.Errorf("%d watches are left", n)
	}
	l.b.Close() // returns, although nobody reads
}
