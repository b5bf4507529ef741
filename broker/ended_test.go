package broker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/hangfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// lateRequest returns a request as if it was admitted before the end of the session. Its method
// runs only after the end.
func lateRequest(s *Session, params string) *request {
	return &request{params: []byte(params), ctx: context.Background(), stamps: s.stamps()}
}

// After the end of a session no watch and no upload of the session begins.
func TestNothingBeginsAfterClose(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	p := l.connect("")
	p.s.Close()
	if _, err := methods[wire.Watch].run(p.s, lateRequest(p.s, `{"path":"r"}`)); guardError(err).Kind != names.Revoked {
		t.Errorf("watch: %v", err)
	}
	if _, err := methods[wire.Write].run(p.s, lateRequest(p.s, `{"path":"r/f","content":"x","upload":true}`)); guardError(err).Kind != names.Revoked {
		t.Errorf("upload: %v", err)
	}
	if n, dirs := l.b.hub.Counts(); n != 0 || dirs != 0 {
		t.Errorf("%d watches, on %d directories", n, dirs)
	}
}

// A second, concurrent Close of a session also returns only when the session's upload has ended,
// so that another session can begin an upload of the same file.
func TestCloseTwice(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, nil)
	p, other := l.connect(""), l.connect("")
	const begin = `{"path":"r/u","create":true,"upload":true,"content":"x"}`
	var up wire.WriteResult
	p.must("files/write", begin, &up)
	p.s.mu.Lock()
	u := p.s.uploads[up.UploadID]
	p.s.mu.Unlock()
	u.mu.Lock() // a chunk is being written
	go p.s.Close()
	testkit.Until(t, "the session is closing", func() bool {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		return p.s.closed
	})
	time.AfterFunc(100*time.Millisecond, u.mu.Unlock)
	p.s.Close()
	other.must("files/write", begin, nil)
	l.b.Close()
	l.b.Session("late").Close() // this session began after the broker was closed
}

// Many uploads that begin at once do not exceed the limit.
func TestUploadLimitAtOnce(t *testing.T) {
	const limit = 2
	l := newLab(t, func(c *Config) { c.Limits.Uploads = limit })
	l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	for round := range 30 {
		var all []chan reply
		for i := range 100 {
			_, ch := p.send("files/write", fmt.Sprintf(`{"path":"r/u%d","create":true,"upload":true,"content":"x"}`, i))
			all = append(all, ch)
		}
		var begun []string
		for _, ch := range all {
			if r := <-ch; r.Error == nil {
				begun = append(begun, string(r.Result))
			}
		}
		if len(begun) != limit {
			t.Fatalf("round %d: %d uploads at a time", round, len(begun))
		}
		_ = l.b.Invalidate(t.Context(), guard.Change{Root: "r", Kind: guard.ChangeNarrowed}) // ends the uploads
		if st := p.s.Stats(); st.Uploads != 0 {
			t.Fatalf("%+v", st)
		}
	}
	// An upload that fails to begin does not count towards the limit.
	for range 2 * limit {
		p.fails("files/write", `{"path":"r/none/u","upload":true,"content":"x"}`)
	}
	var w wire.WriteResult
	p.must("files/write", `{"path":"r/u","create":true,"upload":true,"content":"x"}`, &w)
}

// An upload that is beginning while its root is narrowed ends.
func TestUploadEndsWhileItBegins(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	u := &sessionUpload{path: mustPath(t, "r/u")}
	if err := p.s.addUpload("id", u); err != nil {
		t.Fatal(err)
	}
	_ = l.b.Invalidate(t.Context(), guard.Change{Root: "r", Kind: guard.ChangeNarrowed})
	if st := p.s.Stats(); !u.ended || st.Uploads != 0 {
		t.Errorf("%v %+v", u.ended, st)
	}
}

// On a file system without O_TMPFILE the temporary file of an upload has a name. When a root has
// been revoked, this file is gone.
func TestUploadLeavesNothingInAnEndedRoot(t *testing.T) {
	l := newLab(t, nil)
	dir := t.TempDir()
	hangfs.Mount(t, t.TempDir(), dir).WithoutTmpfile()
	l.grant(guard.Grant{Root: "r", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadWrite}})
	p := l.connect("")
	p.must("files/write", `{"path":"r/u","create":true,"upload":true,"content":"x"}`, nil)
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Fatalf("the upload is %v, %v", list, err)
	}
	if _, err := l.reg.Revoke(t.Context(), "r"); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

func mustPath(t *testing.T, s string) guard.Path {
	t.Helper()
	p, err := names.ParsePath(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// R112: if the directory of a root vanished, the error says so, and not that a file is
// missing. The server's other roots still work.
func TestRootVanishes(t *testing.T) {
	l := newLab(t, nil)
	gone := l.root("gone", guard.ReadOnly, map[string]string{"f": "text"})
	l.root("here", guard.ReadOnly, map[string]string{"f": "text"})
	p := l.connect("")
	p.must("files/read", `{"path":"gone/f"}`, nil)
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	if err := l.reg.Recheck(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"files/read", "files/stat", "files/list"} {
		e, d := p.fails(method, `{"path":"gone/f"}`)
		if d.Reason != names.Unavailable.String() || strings.Contains(e.Message, gone) {
			t.Errorf("%s: %+v %+v", method, e, d)
		}
	}
	p.must("files/read", `{"path":"here/f"}`, nil)
}
