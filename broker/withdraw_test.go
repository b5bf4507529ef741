package broker

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// testTimeout ends a test that hangs; the questions wait for much longer.
const testTimeout = 30 * time.Second

// awaitQuestions waits until n questions are in the queue.
func awaitQuestions(t *testing.T, u *Queue, n int) {
	t.Helper()
	if !testkit.Eventually(func() bool { return len(u.List()) == n }) {
		t.Fatalf("%d questions wait, want %d", len(u.List()), n)
	}
}

// A question is withdrawn when the request is cancelled, the server hangs up, or the session or
// the broker ends, because then no request waits for the answer.
func TestQuestionsAreWithdrawn(t *testing.T) {
	for name, end := range map[string]func(p *peer, id string){
		"cancelled": func(p *peer, id string) {
			p.raw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}` + "\n")
		},
		"hang-up": func(p *peer, _ string) { _ = p.w.Close() },
		"close":   func(p *peer, _ string) { p.s.Close() },
		"broker":  func(p *peer, _ string) { p.s.b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			u := &Queue{}
			l := newLab(t, func(c *Config) { c.Asker, c.AskFor = u, time.Hour })
			p := l.connect("alice")
			id, _ := p.send("files/consent", obj{"message": "to look", "requestedPaths": []string{"/usr"}})
			awaitQuestions(t, u, 1)
			question := u.List()[0].ID
			end(p, id)
			awaitQuestions(t, u, 0)
			if err := u.Answer(question, Answer{Decisions: []Decision{{Allow: true}}}); !errors.Is(err, ErrNoQuestion) {
				t.Errorf("a late answer: %v", err)
			}
		})
	}
}

// A question of Session.Consent is withdrawn when the session ends, although the caller's context
// outlives the session.
func TestConsentEndsWithItsSession(t *testing.T) {
	u := &Queue{}
	l := newLab(t, func(c *Config) { c.Asker, c.AskFor = u, time.Hour })
	s := l.b.Session("alice")
	defer s.Close()
	result := make(chan *wire.ConsentResult, 1)
	go func() {
		res, _ := s.Consent(context.Background(), nil, wire.ConsentParams{RequestedPaths: []string{"/usr"}})
		result <- res
	}()
	awaitQuestions(t, u, 1)
	s.Close()
	awaitQuestions(t, u, 0)
	if res := <-result; res != nil && res.Granted {
		t.Errorf("%+v", res)
	}
}

// A question that waits for its turn on the terminal can be withdrawn. The question that is shown
// can still be answered.
func TestTerminalTurn(t *testing.T) {
	in, typing := io.Pipe()
	shown := make(chan struct{}, 1)
	term := &Terminal{Open: func() (io.ReadWriteCloser, error) {
		shown <- struct{}{}
		return struct {
			io.Reader
			io.Writer
			io.Closer
		}{in, io.Discard, in}, nil
	}}
	q := &Question{Items: []Item{{Requested: "/f", Resolved: "/f", Mode: "ro"}}}
	first := make(chan error, 1)
	go func() { _, err := term.Ask(context.Background(), q); first <- err }()
	<-shown
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { _, err := term.Ask(ctx, q); second <- err }()
	cancel()
	select {
	case err := <-second:
		if !errors.Is(err, ErrUnanswered) {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("the withdrawn question still waits for its turn")
	}
	_, err := io.WriteString(typing, "y\n")
	if err != nil || <-first != nil {
		t.Error("the question that was shown could not be answered")
	}
}
