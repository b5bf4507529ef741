package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// answers is an Asker that records its questions.
type answers struct {
	asked []*Question
	give  func(*Question) (Answer, error)
}

func (a *answers) Ask(_ context.Context, q *Question) (Answer, error) {
	a.asked = append(a.asked, q)
	return a.give(q)
}

func allow(d ...Decision) func(*Question) (Answer, error) {
	return func(*Question) (Answer, error) { return Answer{By: "test", Decisions: d}, nil }
}

func ask(p *peer, mode string, paths ...string) wire.ConsentResult {
	p.t.Helper()
	var r wire.ConsentResult
	p.must("files/consent", obj{"message": "to look", "requestedPaths": paths, "mode": mode}, &r)
	return r
}

// A consent grants what the person allowed, and no more (R067, R068, R087, R088, R089, R104).
func TestConsent(t *testing.T) {
	a := &answers{}
	l := newLab(t, func(c *Config) {
		c.Asker, c.Limits.Consents = a, -1
		c.Terms = func(g guard.Grant) guard.Grant { g.Policy.Limits.MaxFile = 1000; return g }
	})
	base := t.TempDir()
	for _, d := range []string{"proj/src", "other", "third/in"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"proj/src/f", "other/f", "third/f", "third/in/f", "single"} {
		if err := os.WriteFile(filepath.Join(base, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(base+"/other", base+"/alias"); err != nil {
		t.Fatal(err)
	}
	p, stranger := l.connect("alice"), l.connect("bob")

	// Before consent nothing can be read.
	if _, d := p.fails("files/read", obj{"path": base + "/proj/src/f"}); d.Reason != "NoConsent" {
		t.Errorf("before consent: %+v", d)
	}
	// One path is approved and the other denied; the purpose and both paths were shown.
	a.give = allow(Decision{Allow: true}, Decision{})
	r := ask(p, "", base+"/proj", base+"/alias")
	if !r.Granted || !slices.Equal(r.ApprovedPaths, []string{base + "/proj"}) || len(r.Approved) != 1 || r.Approved[0].Mode != "ro" {
		t.Errorf("%+v", r)
	}
	q := a.asked[0]
	if q.Message != "to look" || q.Subject != "alice" || len(q.Items) != 2 || q.Items[1].Requested.Raw() != base+"/alias" || q.Items[1].Resolved.Raw() != base+"/other" || q.Items[0].Mode != "ro" {
		t.Errorf("the person saw %+v", q)
	}
	var read wire.ReadResult
	p.must("files/read", obj{"path": r.Approved[0].Root + "/src/f"}, &read)
	p.must("files/read", obj{"path": base + "/proj/src/f"}, &read)
	if _, d := p.fails("files/write", obj{"path": base + "/proj/src/f", "content": "x"}); d.Reason != "ReadOnly" {
		t.Errorf("the default mode is ro: %+v", d)
	}
	// R006: the consent gives another server nothing.
	if _, d := stranger.fails("files/read", obj{"path": base + "/proj/src/f"}); d.Reason != "NoConsent" {
		t.Errorf("another subject: %+v", d)
	}
	// R006, R127: the other server may get the same directory for itself, with other rights.
	a.give = allow(Decision{Allow: true})
	bobs := ask(stranger, "rw", base+"/proj")
	if !bobs.Granted || bobs.Approved[0].Mode != "rw" || bobs.Approved[0].Root == r.Approved[0].Root {
		t.Errorf("the same directory for another subject: %+v", bobs)
	}
	stranger.must("files/write", obj{"path": base + "/proj/src/f", "content": "bob's"}, nil)
	p.must("files/read", obj{"path": base + "/proj/src/f"}, &read)
	if _, d := p.fails("files/write", obj{"path": base + "/proj/src/f", "content": "x"}); d.Reason != "ReadOnly" || read.Content != "bob's" {
		t.Errorf("alice: %+v, reads %q", d, read.Content)
	}
	if _, d := p.fails("files/read", obj{"path": bobs.Approved[0].Root + "/src/f"}); d.Reason != "NoConsent" {
		t.Errorf("alice by bob's name: %+v", d)
	}
	if rec := l.recs.last(names.OpClose); rec.Subject != "bob" || rec.Path.Root != guard.RootName(bobs.Approved[0].Root) {
		t.Errorf("who wrote, on record: %+v", rec)
	}
	if _, err := l.reg.Revoke(t.Context(), guard.RootName(bobs.Approved[0].Root)); err != nil {
		t.Fatal(err)
	}
	p.must("files/read", obj{"path": base + "/proj/src/f"}, &read)
	a.asked = a.asked[:1]
	// R104: the person is not asked again about approved paths.
	if r := ask(p, "", base+"/proj/src", "proj"); len(a.asked) != 1 || len(r.ApprovedPaths) != 2 {
		t.Errorf("asked again: %+v", r)
	}
	// Grants can be narrowed to a subdirectory, a mode and a time. A single file can be
	// granted.
	a.give = allow(Decision{Allow: true, Path: base + "/third/in", Mode: "ro", For: time.Hour, Idle: time.Minute}, Decision{Allow: true})
	r = ask(p, "rw", base+"/third", base+"/single")
	if !slices.Equal(r.ApprovedPaths, []string{base + "/third/in", base + "/single"}) || r.Approved[0].Mode != "ro" || r.Approved[0].Expires == "" || r.Approved[1].Mode != "rw" {
		t.Errorf("narrowed: %+v", r)
	}
	p.must("files/read", obj{"path": base + "/third/in/f"}, &read)
	if _, d := p.fails("files/read", obj{"path": base + "/third/f"}); d.Reason != "NoConsent" {
		t.Errorf("beside the narrower path: %+v", d)
	}
	p.must("files/write", obj{"path": base + "/single", "content": "new"}, nil)
	if _, d := p.fails("files/write", obj{"path": base + "/single", "content": strings.Repeat("x", 1001)}); d.Code != names.QuotaExceeded {
		t.Errorf("beyond the terms of every consent: %+v", d)
	}
	// An approver cannot widen a grant.
	for _, d := range []Decision{{Allow: true, Path: base}, {Allow: true, Path: base + "/other/../third"}, {Allow: true, Mode: "rw"}} {
		a.give = allow(d)
		if r := ask(p, "", base+"/other"); r.Granted || r.Reason != "denied" || r.ApprovedPaths == nil {
			t.Errorf("%+v: %+v", d, r)
		}
	}
	// Denied, unanswered or failed questions grant nothing. A path that cannot be granted gets
	// the same answer as a denied one.
	for want, give := range map[string]func(*Question) (Answer, error){
		"denied":  allow(),
		"timeout": func(*Question) (Answer, error) { return Answer{}, ErrUnanswered },
	} {
		a.give = give
		if r := ask(p, "", base+"/other"); r.Granted || r.Reason != want {
			t.Errorf("%s: %+v", want, r)
		}
	}
	a.give = func(*Question) (Answer, error) { return Answer{}, errors.New("broken") }
	if r := ask(p, "", base+"/other"); r.Granted || r.Reason != "denied" {
		t.Errorf("broken: %+v", r)
	}
	n := len(a.asked)
	for _, path := range []string{"/nonexistent/" + base, "/proc/self", "relative", "file://host/x", "~/x", base + "/other\x00"} {
		if r := ask(p, "", path); r.Granted || r.Reason != "denied" {
			t.Errorf("%q: %+v", path, r)
		}
	}
	// A path that is refused by its text alone causes no question. A path that the host lacks,
	// or cannot grant, causes one: an immediate answer would tell the server that the path does
	// not exist.
	if len(a.asked) != n+2 || a.asked[n].Items[0].Problem == "" || a.asked[n+1].Items[0].Problem == "" {
		t.Errorf("asked %d times", len(a.asked)-n)
	}
	a.give = allow(Decision{Allow: true})
	if r := ask(p, "", "/nonexistent/"+base); r.Granted || r.Reason != "denied" {
		t.Errorf("a path that the host lacks was granted: %+v", r)
	}
	for _, bad := range []obj{{}, {"message": "m"}, {"requestedPaths": []string{}}, {"requestedPaths": "x"}, {"requestedPaths": []string{"/x"}, "mode": "admin"},
		{"requestedPaths": []string{"/x"}, "message": strings.Repeat("m", maxMessage+1)}, {"requestedPaths": make([]string, maxRequested+1)},
		{"requestedPaths": []string{"/x", "/" + strings.Repeat("p", maxPath)}}} {
		if e, _ := p.fails("files/consent", bad); e.Code != wire.CodeInvalidParams {
			t.Errorf("%.80v: %+v", bad, e)
		}
	}
	// R082, R145: every decision has a record, and so have two paths that were already
	// approved.
	var allowed, refused int
	for _, rec := range l.recs.all() {
		if rec.Op == names.OpGrant && rec.Subject == "alice" {
			if rec.Verdict == guard.Allowed {
				allowed++
			} else {
				refused++
			}
		}
	}
	if allowed != 3+2 || refused < 10 {
		t.Errorf("on record: %d allowed, %d refused", allowed, refused)
	}
}

// Without a person to ask, nothing is granted. A question beyond the limit is refused.
func TestConsentLimits(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Asker = DenyAll; c.Limits.Consents = 2 })
	p := l.connect("")
	dir := t.TempDir()
	for range 2 {
		if r := ask(p, "", dir); r.Granted {
			t.Errorf("%+v", r)
		}
	}
	if _, d := p.fails("files/consent", obj{"message": "m", "requestedPaths": []string{dir}}); d.Code != names.QuotaExceeded || d.RetryAfterMs < 1000 {
		t.Errorf("third question: %+v", d)
	}
	nobody := newLab(t, nil).connect("")
	if r := ask(nobody, "", dir); r.Granted || r.Reason != "denied" {
		t.Errorf("without an asker: %+v", r)
	}
}

// All sessions of a subject share one limit of questions, because over HTTP a client can begin
// as many sessions as it likes. Other subjects have their own limit, and so has each session
// without a name.
func TestSessionsShareTheQuestionLimit(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Asker = DenyAll; c.Limits.Consents = 2 })
	dir := t.TempDir()
	shared, other := guard.Subject("serve"), guard.Subject("other")
	for i, c := range []struct {
		subject   guard.Subject
		isRefused bool
	}{{shared.InSession(1), false}, {other, false}, {shared.InSession(2), false}, {shared.InSession(3), true}, {shared, true}, {other, false}, {other, true}, {"", false}, {"", false}, {"", false}} {
		p := l.connect(c.subject)
		if c.isRefused {
			p.fails("files/consent", obj{"message": "m", "requestedPaths": []string{dir}})
		} else if r := ask(p, "", dir); r.Granted {
			t.Errorf("%d: %+v", i, r)
		}
		p.s.Close()
	}
}

// Consent grants the directory that was shown, even if the path leads elsewhere by the
// time the person answers.
func TestConsentGrantsWhatWasShown(t *testing.T) {
	a := &answers{}
	l := newLab(t, func(c *Config) { c.Asker = a })
	base := t.TempDir()
	for _, d := range []string{"shown", "secret"} {
		if err := os.MkdirAll(base+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(base+"/"+d+"/f", []byte(d), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a.give = func(*Question) (Answer, error) {
		if err := errors.Join(os.Rename(base+"/shown", base+"/moved"), os.Rename(base+"/secret", base+"/shown")); err != nil {
			t.Error(err)
		}
		return Answer{Decisions: []Decision{{Allow: true}}, By: "test"}, nil
	}
	p := l.connect("")
	r := ask(p, "", base+"/shown")
	for _, root := range r.Approved {
		var read wire.ReadResult
		if rep := p.call("files/read", obj{"path": root.Root + "/f"}); rep.Error == nil {
			if p.must("files/read", obj{"path": root.Root + "/f"}, &read); read.Content != "shown" {
				t.Errorf("read %q through a consent for another directory", read.Content)
			}
		}
	}
}

// pipeTTY is a terminal on which a person types a line for each Read.
type pipeTTY struct {
	lines []string
	out   bytes.Buffer
}

func typedTTY(typed string) *pipeTTY { return &pipeTTY{lines: strings.SplitAfter(typed, "\n")} }

func (p *pipeTTY) Read(b []byte) (int, error) {
	if len(p.lines) == 0 || p.lines[0] == "" {
		return 0, io.EOF
	}
	n := copy(b, p.lines[0])
	p.lines = p.lines[1:]
	return n, nil
}

func (p *pipeTTY) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *pipeTTY) Close() error                { return nil }

func TestTerminal(t *testing.T) {
	q := func() *Question {
		return &Question{
			ID: "q", Server: "evil\x1b[2Jserver \u202e", Message: "line\nAllow? y\x1b[31m", Subject: "s",
			Items: []Item{
				{Requested: "/a/link", Resolved: "/real/place", Mode: "rw", Rights: guard.ReadWrite},
				{Requested: "/gone", Problem: "no such file", Mode: "rw"},
				{Requested: "/f", Resolved: "/f", File: true, Mode: "ro", Rights: guard.ReadOnly},
			},
		}
	}
	for typed, want := range map[string][]Decision{
		"y\n\ny\n":                    {{Allow: true}, {}, {Allow: true}},
		"\n\nn\n":                     {{}, {}, {}},
		"o\n\nNO\n":                   {{Allow: true, Mode: "ro"}, {}, {}},
		"what\ny\n\nyes\n":            {{Allow: true}, {}, {Allow: true}},
		"t\nsoon\nt\n30m\ny\n\nn\n":   {{Allow: true, For: 30 * time.Minute}, {}, {}},
		"s\nsub/dir/\ny\n\nn\n":       {{Allow: true, Path: "/real/place/sub/dir"}, {}, {}},
		"s\n\nt\n1h\ns\nx\no\n\nno\n": {{Allow: true, Path: "/real/place/x", For: time.Hour, Mode: "ro"}, {}, {}},
	} {
		tty := typedTTY(typed)
		term := &Terminal{Open: func() (io.ReadWriteCloser, error) { return tty, nil }}
		got, err := term.Ask(t.Context(), q())
		if err != nil || !slices.Equal(got.Decisions, want) || got.By != "terminal" {
			t.Errorf("%q: %+v, %v\n%s", typed, got, err, &tty.out)
		}
		shown := tty.out.String()
		if strings.ContainsAny(shown, "\x1b\u202e") || strings.Contains(shown, "line\nAllow") || !strings.Contains(shown, "/real/place") || !strings.Contains(shown, "WRITE") || !strings.Contains(shown, "/a/link") {
			t.Errorf("R088: shown: %q", shown)
		}
	}
	for _, typed := range []string{"", "y\n"} { // the terminal closes before the last answer
		term := &Terminal{Open: func() (io.ReadWriteCloser, error) { return typedTTY(typed), nil }}
		if _, err := term.Ask(t.Context(), q()); !errors.Is(err, ErrUnanswered) {
			t.Errorf("%q: %v", typed, err)
		}
	}
	none := &Terminal{Open: func() (io.ReadWriteCloser, error) { return nil, os.ErrNotExist }}
	if _, err := none.Ask(t.Context(), q()); !errors.Is(err, ErrUnanswered) {
		t.Errorf("no terminal: %v", err)
	}
	ans, err := Chain(none, DenyAll).Ask(t.Context(), q())
	if err != nil || ans.By != "deny-all" {
		t.Errorf("the next in the chain: %+v, %v", ans, err)
	}
}

type elicitor func(*mcp.ElicitParams) (*mcp.ElicitResult, error)

func (f elicitor) Elicit(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	return f(p)
}

func TestElicit(t *testing.T) {
	q := &Question{Items: []Item{
		{Requested: "/a", Resolved: "/a", Mode: "rw", Rights: guard.ReadWrite}, {Requested: "/b", Problem: "gone"},
		{Requested: "/c", Resolved: "/c", Mode: "ro", Rights: guard.ReadOnly},
		{Requested: "/d", Resolved: "/d", Mode: "list,write", Rights: guard.List | guard.Write},
		{Requested: "/e", Resolved: "/e", Mode: "write", Rights: guard.Write},
	}}
	deny := make([]Decision, 2)
	for _, c := range []struct {
		action  string
		content map[string]any
		want    []Decision
	}{
		{"accept", map[string]any{"path1": "allow", "path2": "allow", "path3": "deny", "minutes": 5.0}, []Decision{{Allow: true, For: 5 * time.Minute}, {Allow: true, For: 5 * time.Minute}, {}}},
		{"accept", map[string]any{"path1": "read only"}, []Decision{{Allow: true, Mode: "ro"}, {}, {}}},
		{"accept", map[string]any{"path1": "read only", "path4": "read only", "path5": "read only", "minutes": 0.0}, []Decision{{Allow: true, Mode: "ro"}, {}, {}, {Allow: true, Mode: "list"}, {}}},
		{"accept", map[string]any{"path1": "allow", "minutes": float64(maxMinutes)}, []Decision{{Allow: true, For: maxMinutes * time.Minute}, {}, {}}},
		{"accept", map[string]any{"path1": true, "path3": "ALLOW"}, make([]Decision, 3)},
		{"decline", map[string]any{"path1": "allow"}, make([]Decision, 3)},
		{"cancel", nil, make([]Decision, 3)},
	} {
		got, err := Elicit{elicitor(func(p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			if !strings.Contains(p.Message, "/a") {
				t.Errorf("message %q", p.Message)
			}
			return &mcp.ElicitResult{Action: c.action, Content: c.content}, nil
		})}.Ask(t.Context(), q)
		if len(c.want) == 3 {
			c.want = append(c.want, deny...)
		}
		if err != nil || len(got.Decisions) != len(c.want) {
			t.Fatalf("%+v: %+v, %v", c, got, err)
		}
		for i, d := range got.Decisions {
			if !d.Allow {
				d = Decision{} // the other fields of a denial do not matter
			}
			if d != c.want[i] {
				t.Errorf("%+v: path%d: %+v, want %+v", c, i+1, d, c.want[i])
			}
		}
	}
	// An answer with a duration out of bounds is refused: it must not grant without end.
	for _, minutes := range []any{1e300, -1.0, 0.5, math.NaN(), math.Inf(1), float64(maxMinutes + 1), "30", true} {
		got, err := Elicit{elicitor(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow", "minutes": minutes}}, nil
		})}.Ask(t.Context(), q)
		if err == nil || !strings.Contains(err.Error(), "minutes is out of bounds") || !strings.Contains(err.Error(), "52560000") || len(got.Decisions) > 0 {
			t.Errorf("for %v minutes: %+v, %v", minutes, got, err)
		}
	}
	if _, err := (Elicit{elicitor(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) { return nil, errors.New("no") })}).Ask(t.Context(), q); !errors.Is(err, ErrUnanswered) {
		t.Errorf("a host that cannot ask: %v", err)
	}
}

// A question waits until it is answered or its context ends. It is answered only once.
func TestQueue(t *testing.T) {
	u := &Queue{By: "control"}
	got := make(chan Answer, 1)
	changed := u.Changed()
	go func() {
		a, err := u.Ask(context.Background(), &Question{ID: "one", Items: []Item{{}}})
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	<-changed
	if list := u.List(); len(list) != 1 || list[0].ID != "one" {
		t.Errorf("%+v", list)
	}
	if err := u.Answer("two", Answer{}); !errors.Is(err, ErrNoQuestion) {
		t.Errorf("another id: %v", err)
	}
	if err := u.Answer("one", Answer{Decisions: []Decision{{Allow: true}}}); err != nil {
		t.Fatal(err)
	}
	if a := <-got; !a.Decisions[0].Allow || a.By != "control" {
		t.Errorf("%+v", a)
	}
	if err := u.Answer("one", Answer{}); !errors.Is(err, ErrNoQuestion) {
		t.Errorf("twice: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Ask(ctx, &Question{ID: "late"}); !errors.Is(err, ErrUnanswered) || len(u.List()) != 0 {
		t.Errorf("without an answer: %v, %+v", err, u.List())
	}
}

// A subject that fills its share of the queue, in however many sessions, does not keep
// others from asking.
func TestQueueHasRoomForOthers(t *testing.T) {
	u := &Queue{}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	var refused atomic.Int64
	ask := func(who guard.Subject) {
		asking.Go(func() {
			_, _ = u.Ask(ctx, &Question{ID: NewID(), Subject: who})
			refused.Add(1)
		})
	}
	awaitSettled := func(n int) {
		testkit.Until(t, "each question waits or is refused", func() bool { return len(u.List())+int(refused.Load()) >= n })
	}
	for i := range maxWaiting {
		ask(guard.Subject("oauth:bob").InSession(uint64(i)))
	}
	awaitSettled(maxWaiting)
	ask("oauth:alice#1")
	awaitSettled(maxWaiting + 1)
	if !slices.ContainsFunc(u.List(), func(q Question) bool { return q.Subject == "oauth:alice#1" }) {
		t.Errorf("%d questions of one user wait, and nobody else can ask", len(u.List()))
	}
}
