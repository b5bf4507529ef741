package broker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// staging is an opener whose staged sources are plain ones, because the answers to servers do
// not depend on where the changes of a staged root lie.
type staging struct{ guard.Opener }

func (staging) Stage(src guard.Source, _ *guard.Grant) (guard.Source, error) {
	return stagedSource{src}, nil
}

type stagedSource struct{ guard.Source }

func (stagedSource) Staged() guard.StageStatus { return guard.StageStatus{} }

// A server does not learn that a root is staged, and cannot ask for a staged root: the owner sees a
// request for the mode stage as a request for rw. Only the owner decides whether a root is staged.
func TestStagedLooksWritable(t *testing.T) {
	a := &answers{}
	l := newLabOn(t, staging{vfs.Opener()}, func(c *Config) { c.Asker, c.Limits.Consents = a, -1 })
	l.root("code", guard.ReadWrite|guard.Stage, map[string]string{"f": "f"})
	p := l.connect("alice")
	var list wire.ListResult
	p.must("files/list", obj{"path": ""}, &list)
	if len(list.Entries) != 1 || list.Entries[0].Mode != "rw" {
		t.Errorf("listed: %+v", list.Entries)
	}
	if r := ask(p, "rw", "code"); len(r.Approved) != 1 || r.Approved[0].Mode != "rw" || len(a.asked) != 0 {
		t.Errorf("approved already: %+v, asked %d", r, len(a.asked))
	}
	dir := t.TempDir()
	a.give = allow(Decision{Allow: true, Mode: "stage"})
	r := ask(p, "stage", dir)
	if len(r.Approved) != 1 || r.Approved[0].Mode != "rw" || a.asked[0].Items[0].Mode != "rw" {
		t.Errorf("asked for stage: %+v, the owner saw %+v", r, a.asked)
	}
	if q, err := l.reg.Parse("alice", dir); err != nil {
		t.Error(err)
	} else if st, _ := l.reg.Lookup(q.Root); !st.Grant.Policy.Rights.Staged() {
		t.Errorf("the owner said stage, and it is %s", st.Grant.Policy.Rights)
	}
}

// In a session that stages, the question shows a mode that stages, and an answer without a mode
// grants a staged root. A single file cannot be granted.
func TestConsentInSessionThatStages(t *testing.T) {
	a := &answers{give: allow(Decision{Allow: true})}
	l := newLabOn(t, staging{vfs.Opener()}, func(c *Config) {
		c.Asker, c.Limits.Consents = a, -1
		c.Terms = func(g guard.Grant) guard.Grant {
			g.Policy.Rights = g.Policy.Rights.AsStaged()
			return g
		}
	})
	p := l.connect("alice")
	dir := t.TempDir()
	if r := ask(p, "rw", dir); len(r.Approved) != 1 || r.Approved[0].Mode != "rw" || a.asked[0].Items[0].Mode != "stage" {
		t.Errorf("asked for rw: %+v, the owner saw %+v", r, a.asked)
	}
	if q, err := l.reg.Parse("alice", dir); err != nil {
		t.Error(err)
	} else if st, _ := l.reg.Lookup(q.Root); !st.Grant.Policy.Rights.Staged() {
		t.Errorf("granted %s", st.Grant.Policy.Rights)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := ask(p, "rw", file); len(r.Approved) != 0 || a.asked[1].Items[0].Problem == "" {
		t.Errorf("a single file: %+v, the owner saw %+v", r, a.asked[1])
	}
}
