package broker

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
)

// R093: a server whose requests are refused too often is suspended: its further requests are
// refused, also files/consent. Other servers are not suspended. After Resume the server's requests
// succeed again.
func TestSuspendedServer(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	l.reg.SetAbuse(ledger.Abuse{Refusals: 5, Suspend: true})
	bad, good := l.connect("bad"), l.connect("good")
	type obj = map[string]any
	for range 6 {
		if _, d := bad.fails("files/write", obj{"path": "r/f", "content": "x"}); d.Reason != "ReadOnly" {
			t.Errorf("%+v", d)
		}
	}
	for method, params := range map[string]obj{
		"files/read": {"path": "r/f"}, "files/list": {"path": "r"}, "files/stat": {"path": "r/f"},
		"files/consent": {"requestedPaths": []string{"/tmp"}}, "roots/list": {},
	} {
		if _, d := bad.fails(method, params); d.Reason != "Suspended" || d.Code != "PERMISSION_DENIED" {
			t.Errorf("%s: %+v", method, d)
		}
	}
	if _, d := bad.fails("files/list", obj{}); d.Reason != "Suspended" {
		t.Errorf("files/list of the roots: %+v", d)
	}
	good.must("files/read", obj{"path": "r/f"}, nil)
	good.must("roots/list", obj{}, nil)
	if err := l.reg.Resume("bad"); err != nil {
		t.Fatal(err)
	}
	bad.must("files/read", obj{"path": "r/f"}, nil)
}
