package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rootsfs/rootsfs/broker"
)

// asking is the part of an owner that has questions.
type asking struct {
	mu      sync.Mutex // guards the fields below
	list    []Question
	changed chan struct{}
	denied  []Denial
	lifted  chan struct{}
}

func (a *asking) deny(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied = nil
	for _, id := range ids {
		a.denied = append(a.denied, Denial{ID: id, Subject: "v", Path: "/" + id})
	}
	if a.lifted != nil {
		close(a.lifted)
	}
	a.lifted = nil
}

func (a *asking) Denials() ([]Denial, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lifted == nil {
		a.lifted = make(chan struct{})
	}
	return a.denied, a.lifted
}

func (a *asking) Forget(req ForgetRequest) (ForgetAnswer, error) {
	if req.ID != "d1" {
		return ForgetAnswer{}, ErrNoDenial
	}
	return ForgetAnswer{Forgotten: []Denial{{ID: req.ID}}}, nil
}

func (a *asking) put(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = nil
	for _, id := range ids {
		a.list = append(a.list, Question{Question: broker.Question{ID: id}, Heading: "who", Lines: []string{"what"}})
	}
	if a.changed != nil {
		close(a.changed)
	}
	a.changed = nil
}

func (a *asking) Questions() ([]Question, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.list, a.changed
}

func (a *asking) Answer(req AnswerRequest) (AnswerAnswer, error) {
	if req.ID != "q1" {
		return AnswerAnswer{}, broker.ErrNoQuestion
	}
	return AnswerAnswer{Answered: []Answered{{ID: req.ID, Allowed: []string{req.Mode, fmt.Sprint(req.Only, req.ForMS)}}}}, nil
}

func (a *asking) Inside(_ context.Context, req InsideRequest) (InsideAnswer, error) {
	if req.ID != "q1" {
		return InsideAnswer{}, broker.ErrNoQuestion
	}
	return InsideAnswer{Files: int64(req.Item), Examples: []string{".env"}, Complete: true}, nil
}

func (a *asking) Metrics() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rootsfs_test", Help: "For a test."})
	g.Set(7)
	reg.MustRegister(g)
	return reg
}

func TestConsentOverTheSocket(t *testing.T) {
	o := &owner{events: make(chan Event)}
	_, c := serve(t, o)
	o.put("q1")
	if list, err := c.Questions(t.Context()); err != nil || len(list) != 1 || list[0].ID != "q1" || list[0].Lines[0] != "what" {
		t.Errorf("%+v, %v", list, err)
	}
	got, err := c.Answer(t.Context(), AnswerRequest{ID: "q1", Approve: true, Only: []int{2}, Mode: "ro", ForMS: 5})
	if err != nil || len(got) != 1 || fmt.Sprint(got[0].Allowed) != "[ro [2] 5]" {
		t.Errorf("%+v, %v", got, err)
	}
	in, err := c.Inside(t.Context(), InsideRequest{ID: "q1", Item: 7})
	if err != nil || in.Files != 7 || !in.Complete || len(in.Examples) != 1 {
		t.Errorf("what is inside: %+v, %v", in, err)
	}
	if _, err := c.Inside(t.Context(), InsideRequest{ID: "q2", Item: 1}); Classify(err) != NoSuch {
		t.Errorf("inside of a question that is over: %v", err)
	}
	o.deny("d1")
	if list, err := c.Denials(t.Context()); err != nil || len(list) != 1 || list[0].Path != "/d1" {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := c.Forget(t.Context(), ForgetRequest{ID: "d1"}); err != nil || len(list) != 1 || list[0].ID != "d1" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := c.Forget(t.Context(), ForgetRequest{ID: "d2"}); Classify(err) != NoSuch {
		t.Errorf("a denial that is none: %v (%s)", err, Classify(err))
	}
	if _, err := c.Answer(t.Context(), AnswerRequest{ID: "q2"}); Classify(err) != NoSuch {
		t.Errorf("a question that is over: %v (%s)", err, Classify(err))
	}
}

// Every state of the list is told, until the session ends.
func TestQuestionsAreFollowed(t *testing.T) {
	o := &owner{events: make(chan Event)}
	_, c := serve(t, o)
	o.put("q1")
	var seen []string
	err := c.WatchQuestions(t.Context(), func(a WaitingAnswer) error {
		for _, q := range a.Questions {
			seen = append(seen, q.ID)
		}
		for _, d := range a.Denials {
			seen = append(seen, d.ID)
		}
		switch len(a.Questions) + 10*len(a.Denials) {
		case 1:
			o.put("q1", "q2")
		case 2:
			o.deny("d1")
		case 12:
			o.put()
		case 10:
			close(o.events) // as at the end of a session
		}
		return nil
	})
	if err != nil || strings.Join(seen, " ") != "q1 q1 q2 q1 q2 d1 d1" {
		t.Errorf("%v, %v", seen, err)
	}
	stop := errors.New("enough")
	o.put("q3")
	if err := c.WatchQuestions(t.Context(), func(WaitingAnswer) error { return stop }); err != stop {
		t.Errorf("the caller's own end: %v", err)
	}
}

// R080: figures for Prometheus, over the owner's socket alone.
func TestMetricsOverTheSocket_R080(t *testing.T) {
	_, c := serve(t, &owner{})
	var out bytes.Buffer
	if err := c.Metrics(t.Context(), &out); err != nil || !strings.Contains(out.String(), "\nrootsfs_test 7\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
