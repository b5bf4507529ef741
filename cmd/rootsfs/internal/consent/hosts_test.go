package consent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// hostAsker asks for hosts as the command of a session does, and keeps the records.
type hostAsker struct {
	*Questions
	t *testing.T
	b *broker.Broker

	mu      sync.Mutex // guards the field below
	records []guard.Record
}

func newHostAsker(t *testing.T) *hostAsker {
	t.Helper()
	a := &hostAsker{t: t}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: a})
	a.Questions = New(Config{
		Session: "me", Registry: reg, Log: slog.New(slog.DiscardHandler), Events: &events.Hub{},
		Servers: func() []*broker.Session { return a.b.Sessions() },
	})
	a.b = broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg), Asker: a.Asker(WayOther)})
	t.Cleanup(a.b.Close)
	return a
}

// Record implements guard.Auditor.
func (a *hostAsker) Record(r guard.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, r)
	return nil
}

// wantRecord fails the test unless the text of a record begins with want.
func (a *hostAsker) wantRecord(want string) {
	a.t.Helper()
	var all []string
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.records {
		all = append(all, r.Verdict.String()+" "+r.Op.String()+" "+r.Detail)
	}
	if !slices.ContainsFunc(all, func(r string) bool { return strings.HasPrefix(r, want) }) {
		a.t.Errorf("not on record: %s among\n%s", want, strings.Join(all, "\n"))
	}
}

// ask asks for a host, and passes permit to AskHost. The channel gets the result.
func (a *hostAsker) ask(ctx context.Context, host string, permit func(time.Duration) error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- a.AskHost(ctx, broker.Host{Name: names.Foreign(host), Port: 443, PID: 17}, permit) }()
	return result
}

// waitingQuestion returns the one question that waits.
func (a *hostAsker) waitingQuestion() control.Question {
	a.t.Helper()
	for {
		list, changed := a.Waiting()
		if len(list) == 1 {
			return list[0]
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			a.t.Fatal("no question waits")
		}
	}
}

// within returns a context that ends after d with the cause network.ErrUnanswered.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, network.ErrUnanswered)
	t.Cleanup(cancel)
	return ctx
}

func TestHostIsAllowed(t *testing.T) {
	a := newHostAsker(t)
	var length time.Duration = -1
	result := a.ask(within(t, time.Minute), "a.test", func(d time.Duration) error { length = d; return nil })
	q := a.waitingQuestion()
	if q.Kind != broker.HostKind || q.Subject != "me" || len(q.Items) != 0 || len(q.Lines) != 1 || q.Until.IsZero() {
		t.Errorf("%+v", q)
	}
	for what, req := range map[string]control.AnswerRequest{
		"path, mode and idle":       {Approve: true, Mode: "ro"},
		"path, mode and idle time":  {Approve: true, Path: "/"},
		"path, mode and idle time ": {Approve: true, IdleMS: 1000},
		"number 1":                  {Approve: true, Only: []int{2}},
		"between 0":                 {Approve: true, ForMS: -1},
		"denial of one question":    {Approve: true, Remember: true},
		"approval of a host":        {Save: true},
	} {
		req.ID = q.ID
		if _, err := a.Answer(t.Context(), req); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if _, err := a.Preview(t.Context(), control.PreviewRequest{ID: q.ID, Item: 1}); err == nil {
		t.Error("a question about a host has a preview")
	}
	ans, err := a.Answer(t.Context(), control.AnswerRequest{ID: q.ID, Approve: true, ForMS: 60_000, Only: []int{1}})
	if err != nil || ans.Answered[0].Allowed[0] != "a.test:443" || len(ans.Answered[0].Denied) != 0 {
		t.Errorf("%+v, %v", ans, err)
	}
	if err := <-result; err != nil || length != time.Minute {
		t.Errorf("%v, for %v", err, length)
	}
	a.wantRecord("allowed grant network a.test:443: allowed by control for 1m0s")
	if err := a.HostDenied("a.test:443"); err != nil {
		t.Error(err)
	}
}

// A denial of a host is remembered until it is lifted, with and without Remember.
func TestHostIsDenied(t *testing.T) {
	a := newHostAsker(t)
	never := func(time.Duration) error { t.Error("permitted"); return nil }
	for host, req := range map[string]control.AnswerRequest{"a.test": {}, "b.test": {Remember: true}, "c.test": {All: true}} {
		result := a.ask(within(t, time.Minute), host, never)
		if q := a.waitingQuestion(); !req.All {
			req.ID = q.ID
		}
		ans, err := a.Answer(t.Context(), req)
		if err != nil || ans.Answered[0].Denied[0].Raw() != host+":443" {
			t.Errorf("%+v, %v", ans, err)
		}
		if err := <-result; !errors.Is(err, network.ErrDenied) {
			t.Errorf("%s: %v", host, err)
		}
		a.wantRecord("refused grant network " + host + ":443: denied by control")
		if err := a.HostDenied(host + ":443"); !errors.Is(err, network.ErrDenied) {
			t.Errorf("%s is not remembered: %v", host, err)
		}
		if err := a.HostDenied(host + ":444"); err != nil {
			t.Error(err)
		}
	}
	list := a.denials.list()
	if len(list) != 3 || list[0].Path != "" || list[0].Subject != "me" {
		t.Errorf("%+v", list)
	}
	if _, err := a.Forget(t.Context(), control.ForgetRequest{ID: list[0].ID}); err != nil || a.HostDenied(list[0].Host.Raw()) != nil {
		t.Errorf("%v, %v", err, a.HostDenied(list[0].Host.Raw()))
	}
	a.wantRecord("allowed set subject me may ask again: " + list[0].Host.Raw())
	// A denial of a host denies no path.
	if a.denials.covers("me", &broker.Item{Requested: "/a.test:443"}) {
		t.Error("a path is denied with a host")
	}
}

// If the name of a program's file is long, or looks like a question, the notification still
// shows the right host.
func TestNoticeNamesTheHostFirst(t *testing.T) {
	a := newHostAsker(t)
	for _, program := range []string{strings.Repeat("/long", 800), `/x, in session me: "good.test:443"`, ""} {
		summary, body := a.notice(&broker.Question{Host: &broker.Host{Name: "evil.test", Port: 443, Program: names.Foreign(program)}})
		want := `"evil.test:443", in session me`
		if program != "" {
			want += ", by " + names.Quote(program)
		}
		if body != want || summary != "A command asks for a connection" {
			t.Errorf("%s: %.200s", summary, body)
		}
	}
}

// The end of a question is recorded, and no answer is accepted after the end.
func TestHostQuestionEnds(t *testing.T) {
	a := newHostAsker(t)
	never := func(time.Duration) error { t.Error("permitted"); return nil }
	if err := <-a.ask(within(t, 20*time.Millisecond), "late.test", never); !errors.Is(err, network.ErrUnanswered) {
		t.Error(err)
	}
	a.wantRecord("refused grant network late.test:443: nobody answered the question about it in time")
	for cause, record := range map[error]string{
		network.ErrRevoked:   "refused grant network a.test:443: the rule was removed",
		network.ErrEnded:     "refused grant network a.test:443: the session ended",
		network.ErrPermitted: "allowed grant network a.test:443: a rule permits it now",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		result := a.ask(ctx, "a.test", never)
		q := a.waitingQuestion()
		cancel(cause)
		if err := <-result; (err == nil) != (cause == network.ErrPermitted) {
			t.Errorf("%v: %v", cause, err)
		}
		a.wantRecord(record)
		if _, err := a.Answer(t.Context(), control.AnswerRequest{ID: q.ID, Approve: true}); !errors.Is(err, broker.ErrNoQuestion) {
			t.Errorf("an answer after %v: %v", cause, err)
		}
	}
	if len(a.denials.entries) != 0 {
		t.Errorf("remembered: %+v", a.denials.entries)
	}
	// The owner allows the host, but permit fails. So a record says that the permission is revoked.
	result := a.ask(within(t, time.Minute), "a.test", func(time.Duration) error { return network.ErrRevoked })
	_, err := a.Answer(t.Context(), control.AnswerRequest{ID: a.waitingQuestion().ID, Approve: true})
	testkit.Must(t, err)
	if err := <-result; !errors.Is(err, network.ErrRevoked) {
		t.Error(err)
	}
	a.wantRecord("allowed revoke network a.test:443")
}

// elicitor is an MCP host that asks its user.
type elicitor func(*mcp.ElicitParams) (*mcp.ElicitResult, error)

func (f elicitor) Elicit(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	return f(p)
}

// The command's own MCP host is asked first. If that host cannot ask, the owner is asked. The MCP
// hosts of other servers are not asked.
func TestHostIsElicited(t *testing.T) {
	a := newHostAsker(t)
	other := a.b.Session("other")
	defer other.Close()
	other.AskThrough(elicitor(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
		t.Error("another server's host was asked")
		return nil, errors.New("no")
	}))
	own := a.b.Session("me")
	defer own.Close()
	var reply *mcp.ElicitResult
	own.AskThrough(elicitor(func(p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
		if !strings.Contains(p.Message, "a.test") {
			t.Errorf("%s", p.Message)
		}
		if reply == nil {
			return nil, errors.New("not supported")
		}
		return reply, nil
	}))
	result := a.ask(within(t, time.Minute), "a.test", func(time.Duration) error { return nil })
	_, err := a.Answer(t.Context(), control.AnswerRequest{ID: a.waitingQuestion().ID, Approve: true})
	testkit.Must(t, err)
	testkit.Must(t, <-result)
	reply = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"host": "allow", "minutes": 1.0}}
	var length time.Duration
	testkit.Must(t, <-a.ask(within(t, time.Minute), "a.test", func(d time.Duration) error { length = d; return nil }))
	if length != time.Minute {
		t.Errorf("for %v", length)
	}
	a.wantRecord("allowed grant network a.test:443: allowed by the host's elicitation for 1m0s")
	reply = &mcp.ElicitResult{Action: "decline"}
	if err := <-a.ask(within(t, time.Minute), "a.test", nil); !errors.Is(err, network.ErrDenied) || a.HostDenied("a.test:443") == nil {
		t.Error(err)
	}
	if list, _ := a.Waiting(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
