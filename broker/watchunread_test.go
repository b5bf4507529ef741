package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// connectSlowReader connects a server that reads only when the test reads from out. line sends a
// request from that server.
func (l *lab) connectSlowReader() (s *Session, line func(id int, method, params string), out *bufio.Reader) {
	l.t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s = l.b.Session("")
	conn, err := s.Lines(inR, outW, 0).Connect(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = conn.Close()
		_ = outR.Close()
		_ = inW.Close()
	})
	return s, func(id int, method, params string) {
		if _, err := fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			l.t.Fatal(err)
		}
	}, bufio.NewReader(outR)
}

// R043, R143: if one server replaces a file 500 times, another server that reads slowly gets one to
// ten events of the file, and then the event of a later change.
func TestFewEventsForManyReplacements(t *testing.T) {
	const times = 500
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": "old"})
	writer := l.connect("writer")
	_, line, out := l.connectSlowReader()
	line(1, wire.Watch, `{"path":"r"}`)
	if _, err := out.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	for i := range times {
		writer.must("files/write", fmt.Sprintf(`{"path":"r/f","content":"%d"}`, i), nil)
	}
	writer.must("files/create", `{"path":"r/end"}`, nil)
	events := 0
	for {
		text, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct{ Params wire.ChangedParams }
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		switch p := m.Params; p.Path + " " + p.Event {
		case "r/f modified":
			events++
			continue
		case "r/end created":
		default:
			t.Fatalf("received %s", text)
		}
		break
	}
	if events < 1 || events > 10 {
		t.Errorf("%d events", events)
	}
}

// R005, R079: a server that does not read does not block the narrowing or the revocation of a root,
// watched or not, nor the end of its session and of the broker.
func TestRevokeWithUnreadWatch(t *testing.T) {
	l := newLab(t, nil)
	narrowed := l.root("narrowed", guard.ReadWrite, nil)
	l.root("other", guard.ReadOnly, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	// The server reads the answers to its watches, and then nothing more.
	s, line, out := l.connectSlowReader()
	const watches = 20
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
	testkit.Until(t, "each notification is being sent", func() bool { return s.Stats().Notified >= watches+1 })
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
	l.b.Close() // returns, although no peer reads
}

// The progress of a copy is sent with the token of the request, before the answer, and only if
// there is a token.
func TestProgressComesBeforeTheAnswer(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": strings.Repeat("x", 3<<20)})
	_, line, out := l.connectSlowReader()
	for id, token := range []string{`"tok"`, `7`, `null`} {
		line(id, wire.Copy, fmt.Sprintf(`{"oldPath":"r/f","newPath":"r/g","overwrite":true,"_meta":{"progressToken":%s}}`, token))
		notified := 0
		for answered := false; !answered; {
			text, err := out.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var m struct {
				Method string
				Params struct {
					ProgressToken json.RawMessage
					Progress      int64
				}
				Result *wire.RenameResult
			}
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			if answered = m.Result != nil; !answered {
				notified++
				if m.Method != wire.Progress || string(m.Params.ProgressToken) != token || m.Params.Progress <= 0 {
					t.Errorf("token %s: %s", token, text)
				}
			}
		}
		if (notified > 0) != (token != "null") {
			t.Errorf("token %s: notified %d times", token, notified)
		}
	}
}
