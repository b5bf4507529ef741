package broker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// secret is in the files f of all roots of newRevocationLab, and in the names of the files in
// data/d.
const secret = "SECRETLINE"

// newRevocationLab returns a lab with three roots: "data", "inner", which lies inside "data", and
// "other". Each has a long file f. dir is the directory of "data".
func newRevocationLab(t *testing.T) (l *lab, dir string) {
	l = newLab(t, nil)
	long := strings.Repeat(secret+" 0123456789abcdef\n", 6_000) // 170 kB, more than two pieces
	dir = l.root("data", guard.ReadWrite, map[string]string{"f": long, "in/f": long, "d/" + strings.Repeat(secret, 20): ""})
	for i := range 500 {
		if err := os.WriteFile(filepath.Join(dir, "d", fmt.Sprintf("%s%d", strings.Repeat(secret, 20), i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l.grant(guard.Grant{Root: "inner", Dir: names.Foreign(filepath.Join(dir, "in")), Policy: guard.Policy{Rights: guard.ReadOnly}})
	l.root("other", guard.ReadOnly, map[string]string{"f": long})
	return l, dir
}

// If a root ends, or less of it may be read, while answers with its contents wait for a server, the
// server gets at most one more piece of these contents: the one that is being written. The waiting
// answers are replaced by refusals.
func TestNothingLateAfterTheRootEnds(t *testing.T) {
	requests := []struct{ method, params string }{
		{wire.Read, `{"path":"data/f"}`}, {wire.Read, `{"path":"data/f","encoding":"base64"}`},
		{wire.Read, `{"path":"data/in/f"}`}, {wire.List, `{"path":"data/d"}`}, {wire.Stat, `{"path":"data/d/` + strings.Repeat(secret, 20) + `"}`},
		{wire.Read, `{"path":"data/f"}`}, {wire.List, `{"path":"data","recursive":true}`},
	}
	for _, c := range []struct {
		what string
		end  func(l *lab) error
		want string // reason of the refusals; "" for answers
	}{
		{"nothing ends", func(*lab) error { return nil }, ""},
		{"another root ends", func(l *lab) error { _, err := l.reg.Revoke(l.t.Context(), "other"); return err }, ""},
		{"the root may not be written any more", func(l *lab) error { return l.reg.Set(l.t.Context(), "data", guard.ReadOnly) }, ""},
		{"the root ends", func(l *lab) error { _, err := l.reg.Revoke(l.t.Context(), "data"); return err }, "Revoked"},
		{"all roots end", func(l *lab) error { _, err := l.reg.RevokeAll(l.t.Context()); return err }, "Revoked"},
		{"the root expires", func(l *lab) error {
			if err := l.reg.Renew(l.t.Context(), "data", time.Now().Add(20*time.Millisecond)); err != nil {
				return err
			}
			testkit.Until(l.t, "the end of the root", func() bool { _, live := l.reg.Lookup("data"); return !live })
			return nil
		}, "Revoked"},
		{"the root ends and is granted again", func(l *lab) error {
			st, _ := l.reg.Lookup("data")
			_, err := l.reg.Revoke(l.t.Context(), "data")
			l.grant(guard.Grant{Root: "data", Dir: names.Foreign(st.Grant.Resolved), Policy: guard.Policy{Rights: guard.ReadWrite}})
			return err
		}, "Revoked"},
		{"a root inside the root ends", func(l *lab) error { _, err := l.reg.Revoke(l.t.Context(), "inner"); return err }, "Conflict"},
		{"names are hidden", func(l *lab) error {
			return l.reg.SetPatterns(l.t.Context(), "data", guard.Patterns{Hide: guard.Texts("f", "d/")})
		}, "Conflict"},
		{"names are hidden in a root inside the root", func(l *lab) error {
			return l.reg.SetPatterns(l.t.Context(), "inner", guard.Patterns{Hide: guard.Texts("f")})
		}, "Conflict"},
		{"the root may not be read any more", func(l *lab) error { return l.reg.Set(l.t.Context(), "data", guard.Write) }, "Conflict"},
		{"a root inside the root may not be read any more", func(l *lab) error { return l.reg.Set(l.t.Context(), "inner", guard.Watch) }, "Conflict"},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, _ := newRevocationLab(t)
			s, line, out := l.connectSlowReader()
			for id, r := range requests {
				line(id, r.method, r.params)
			}
			testkit.Until(t, "each request has run and waits for the peer", func() bool {
				return s.Stats().Requests >= int64(len(requests))
			})
			if err := c.end(l); err != nil {
				t.Fatal(err)
			}
			contents, reasons := readAnswers(t, out, len(requests))
			if c.want == "" {
				if len(reasons) > 0 {
					t.Errorf("%d answers, refused: %v", len(requests), reasons)
				}
				return
			}
			if contents > jsonline.Piece {
				t.Errorf("%d bytes with contents came late; %d of %d requests were refused", contents, len(reasons), len(requests))
			}
			for id, reason := range reasons {
				if reason != c.want {
					t.Errorf("request %d: %s, want %s", id, reason, c.want)
				}
			}
		})
	}
}

// readAnswers reads the answers to this number of requests. contents is the number of bytes in the
// lines with contents; reasons are the reasons of the refusals, by id.
func readAnswers(t *testing.T, out *bufio.Reader, requests int) (contents int, reasons map[int]string) {
	t.Helper()
	reasons = map[int]string{}
	for answered := 0; answered < requests; {
		text, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			ID     int
			Method string
			Result json.RawMessage
			Error  *struct{ Data wire.ErrorData }
		}
		if json.Unmarshal(text, &m) != nil { // an answer that was cut off
			contents += len(text) - 1
			continue
		}
		if m.Method != "" {
			continue
		}
		answered++
		if m.Error != nil {
			reasons[m.ID] = m.Error.Data.Reason
			continue
		}
		contents += len(text)
	}
	return contents, reasons
}

// If a name is hidden while an event about it waits for the server, the event does not reach
// the server. The server is told to list again.
func TestNoLateEventOfAHiddenName(t *testing.T) {
	l, dir := newRevocationLab(t)
	s, line, out := l.connectSlowReader()
	line(1, wire.Watch, `{"path":"data"}`)
	if _, err := out.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	line(2, wire.Read, `{"path":"other/f"}`)
	if _, err := out.Peek(1); err != nil { // the answer is being written, and the next frames wait for it
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, secret), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "a notification is being sent", func() bool { return s.Stats().Notified > 0 })
	if err := l.reg.SetPatterns(t.Context(), "data", guard.Patterns{Hide: guard.Texts(secret)}); err != nil {
		t.Fatal(err)
	}
	for overflow := false; !overflow; {
		text, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct{ Params wire.ChangedParams }
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(m.Params.Path, secret) {
			t.Errorf("an event came late: %s", text)
		}
		overflow = m.Params.Overflow
	}
}
