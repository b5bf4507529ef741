package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

// The server learns about roots and files/*, and asks the proxy for both. The host sees nothing
// of that (R168, R169).
func TestProxy_Answers(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("work", guard.ReadWrite, map[string]string{"a.txt": "hello"})
	n := l.connect(nil)
	m := n.handshake(`{"sampling":{}}`)
	var p struct {
		Capabilities struct {
			Sampling   json.RawMessage
			Roots      map[string]bool
			Extensions map[string]struct{ Methods []string }
		}
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		t.Fatal(err)
	}
	c := p.Capabilities
	if !c.Roots["listChanged"] || !c.Roots["filesystemBrokering"] || len(c.Extensions[wire.Extension].Methods) == 0 || string(c.Sampling) != "{}" {
		t.Errorf("the server was told %s", m.Params)
	}
	n.server.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}` + "\n")
	if r := n.server.message(); !strings.Contains(string(r.Result), "file://"+dir) {
		t.Errorf("roots/list: %s", r.Result)
	}
	n.server.say(`{"jsonrpc":"2.0","id":"x","method":"files/read","params":{"path":"work/a.txt"}}` + "\n")
	if r := n.server.message(); !strings.Contains(string(r.Result), `"hello"`) || string(r.ID) != `"x"` {
		t.Errorf("files/read: %+v", r)
	}
	n.ping(n.server, n.host)
	l.root("more", guard.ReadOnly, nil)
	if r := n.server.message(); r.Method != wire.RootsChanged {
		t.Errorf("after a grant, the server got %+v", r)
	}
	if st := n.session.Stats(); st.Server != "s 2" || st.Revision != "2025-11-25" || n.p.Stats().Answered != 2 {
		t.Errorf("stats: %+v, %+v", st, n.p.Stats())
	}
}
