package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// server is an MCP server that speaks files/* with a session.
type server struct {
	l       *lab
	conn    net.Conn
	answers <-chan wire.ConsentResult
}

func (l *lab) server(s *session.Session, subject guard.Subject) *server {
	l.t.Helper()
	ours, theirs := net.Pipe()
	one := s.Broker().Session(subject)
	conn, err := one.Lines(ours, ours, s.Frame()).Connect(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	go func() {
		for {
			if _, err := conn.Read(l.t.Context()); err != nil {
				return
			}
		}
	}()
	answers := make(chan wire.ConsentResult, 10)
	go func() {
		defer close(answers)
		for in := bufio.NewScanner(theirs); in.Scan(); {
			var m struct {
				ID     json.RawMessage
				Result wire.ConsentResult
			}
			if json.Unmarshal(in.Bytes(), &m) == nil && m.ID != nil {
				answers <- m.Result
			}
		}
	}()
	l.t.Cleanup(func() { _ = theirs.Close(); one.Close() })
	return &server{l: l, conn: theirs, answers: answers}
}

func (v *server) ask(message, mode string, paths ...string) {
	v.l.t.Helper()
	params, err := json.Marshal(wire.ConsentParams{Message: message, Mode: mode, RequestedPaths: paths})
	if err != nil {
		v.l.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(v.conn, `{"jsonrpc":"2.0","id":1,"method":"files/consent","params":%s}`+"\n", params); err != nil {
		v.l.t.Fatal(err)
	}
}

// waiting returns the one question that waits.
func (l *lab) waiting() (q control.Question) {
	l.t.Helper()
	testkit.Until(l.t, "a question waits", func() bool {
		c, err := l.s.live.Client("s")
		if err != nil {
			return false
		}
		a, err := control.ListQuestions.Call(l.t.Context(), c, control.None{})
		if err != nil || len(a.Questions) != 1 {
			return false
		}
		q = a.Questions[0]
		return true
	})
	return q
}

// tree makes files in a directory of the lab, and returns the path of the directory.
func (l *lab) tree(dir string, files ...string) string {
	l.t.Helper()
	for _, f := range files {
		path := filepath.Join(l.work, dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			l.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	return filepath.Join(l.work, dir)
}

// R068, R087, R088, R089: the owner can see how much is inside the path of a question. The owner
// approves a narrower path and mode, or denies the question.
func TestAsk_R068_R087_R088_R089(t *testing.T) {
	l := newLab(t)
	v := l.server(l.session("s"), "indexer")
	dir := l.tree("proj", "a.txt", "docs/b.md", ".env", "deep/.ssh/id_rsa", "deep/k.pem")
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	b := l.enter()
	v.ask("to index\u202e it", "rw", dir)
	q := l.waiting()
	if q.Message != "to index\u202e it" || q.Items[0].Resolved.Raw() != dir {
		t.Errorf("%+v", q)
	}
	var in control.Preview
	b.must("POST", "/api/inside?session=s", fmt.Sprintf(`{"id":%q,"item":1}`, q.ID), &in)
	if in.Files != 3 || in.Dirs != 2 || in.Bytes != 10 || in.Withheld != 3 || len(in.Examples) != 3 || !in.Complete {
		t.Errorf("what is inside: %+v", in)
	}
	for body, want := range map[string]int{`{"item":2,"id":"` + q.ID + `"}`: 422, `{"item":"x","id":"` + q.ID + `"}`: 400, `{"item":1,"id":"nope"}`: 404} {
		if r, data := b.do("POST", "/api/inside?session=s", body, nil); r.StatusCode != want {
			t.Errorf("%s: %d %s", body, r.StatusCode, data)
		}
	}
	// An answer that grants more than was asked for, or makes no sense, leaves the question
	// waiting.
	answer := func(more string) (control.AnswerAnswer, string) {
		r, data := b.do("POST", "/api/answer?session=s", fmt.Sprintf(`{"id":%q%s}`, q.ID, more), nil)
		var a control.AnswerAnswer
		if r.StatusCode == 200 && json.Unmarshal(data, &a) != nil {
			t.Errorf("%s", data)
		}
		return a, string(data)
	}
	for more, want := range map[string]string{
		`,"approve":true,"path":"/etc"`:          "is not below",
		`,"approve":true,"path":"docs"`:          "not absolute",
		`,"approve":true,"path":"` + dir + `/x"`: "narrower path",
		`,"approve":true,"only":[2]`:             "no item 2",
		`,"approve":true,"remember":true`:        "remembered",
		`,"approve":true,"mode":"frob"`:          "unknown mode",
	} {
		if _, text := answer(more); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %q", more, text, want)
		}
	}
	a, text := answer(`,"approve":true,"mode":"ro","for_ms":60000,"path":"` + dir + `/docs"`)
	if len(a.Answered) != 1 || len(a.Answered[0].Allowed) != 1 || !strings.Contains(a.Answered[0].Allowed[0].Raw(), "docs\" (ro)") {
		t.Errorf("narrowed: %s", text)
	}
	got := <-v.answers
	if !got.Granted || len(got.Approved) != 1 || got.Approved[0].Mode != "ro" || got.Approved[0].Expires == "" || got.ApprovedPaths[0] != dir+"/docs" {
		t.Errorf("the server was told %+v", got)
	}
	// After a denial the server learns only that its request was denied.
	v.ask("again", "ro", dir)
	q = l.waiting()
	if a, text := answer(``); len(a.Answered) != 1 || len(a.Answered[0].Denied) != 1 {
		t.Errorf("denied: %s", text)
	}
	if got := <-v.answers; got.Granted || got.Reason != "denied" {
		t.Errorf("the server was told %+v", got)
	}
	if _, text := answer(``); !strings.Contains(text, "no such question") {
		t.Errorf("answered twice: %s", text)
	}
}

// If the same server asks again for a path whose denial is remembered, or for a path below it, the
// owner is not asked. The owner is asked for another server, and for other paths.
func TestDenyAndRemember(t *testing.T) {
	l := newLab(t)
	s := l.session("s")
	v := l.server(s, "indexer")
	dir := l.tree("proj", "secret/a", "secret/deep/b", "secrets/c", "other/d")
	b := l.enter()
	v.ask("m", "ro", dir+"/secret")
	q := l.waiting()
	var a control.AnswerAnswer
	b.must("POST", "/api/answer?session=s", fmt.Sprintf(`{"id":%q,"remember":true}`, q.ID), &a)
	if got := <-v.answers; got.Granted {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{dir + "/secret", dir + "/secret/deep", dir + "/other/../secret/a"} {
		v.ask("please", "ro", path)
		if got := <-v.answers; got.Granted || got.Reason != "denied" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	// If another path is in the same request, the owner is asked about that one.
	v.ask("m", "ro", dir+"/secret/deep", dir+"/secrets")
	q = l.waiting()
	if !strings.HasPrefix(q.Items[0].Problem.Raw(), "you denied it to this server for as long as the session lasts") || q.Items[1].Problem != "" {
		t.Errorf("%+v", q.Items)
	}
	b.must("POST", "/api/answer?session=s", fmt.Sprintf(`{"id":%q,"approve":true}`, q.ID), &a)
	if got := <-v.answers; len(got.Approved) != 1 || got.ApprovedPaths[0] != dir+"/secrets" {
		t.Errorf("%+v", got)
	}
	other := l.server(s, "other")
	other.ask("m", "ro", dir+"/secret")
	if q := l.waiting(); q.Items[0].Problem != "" || q.Subject != "other" {
		t.Errorf("another server: %+v", q)
	}
}

// The page gets and answers questions about hosts like questions about files.
func TestAskHost(t *testing.T) {
	l := newLab(t)
	s := l.session("s")
	b := l.enter()
	ask := func(name string, permit func(time.Duration) error) <-chan error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		result := make(chan error, 1)
		go func() {
			result <- s.Consent().AskHost(ctx, broker.Host{Name: names.Foreign(name), Port: 443, Reached: []broker.Reached{{Host: "b.test", Port: 22, Sent: 1}}}, permit)
		}()
		return result
	}
	result := ask("a.test", func(d time.Duration) error {
		if d != time.Minute {
			t.Errorf("for %v", d)
		}
		return nil
	})
	var q control.Question
	b.updates("the stream has the question", func(u sessionhub.Update) bool {
		if len(u.Questions) == 1 {
			q = u.Questions[0]
		}
		return len(u.Questions) == 1
	})
	if q.Kind != broker.HostKind || q.Host.Name != "a.test" || q.Host.Port != 443 || len(q.Host.Reached) != 1 || q.Items == nil {
		t.Errorf("%+v", q)
	}
	if r, data := b.do("POST", "/api/inside?session=s", fmt.Sprintf(`{"id":%q,"item":1}`, q.ID), nil); r.StatusCode != 422 {
		t.Errorf("inside of a host: %d %s", r.StatusCode, data)
	}
	var a control.AnswerAnswer
	b.must("POST", "/api/answer?session=s", fmt.Sprintf(`{"id":%q,"approve":true,"for_ms":60000}`, q.ID), &a)
	if err := <-result; err != nil || a.Answered[0].Allowed[0] != "a.test:443" {
		t.Errorf("%v, %+v", err, a)
	}
	result = ask("c.test", nil)
	b.must("POST", "/api/answer?session=s", fmt.Sprintf(`{"id":%q,"remember":true}`, l.waiting().ID), &a)
	if err := <-result; err == nil {
		t.Error("permitted")
	}
	b.updates("the stream has the denial", func(u sessionhub.Update) bool {
		return len(u.Denials) == 1 && u.Denials[0].Host == "c.test:443" && u.Denials[0].Path == ""
	})
}
