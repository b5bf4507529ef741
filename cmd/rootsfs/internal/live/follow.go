package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// follower follows one session.
type follower struct {
	hub    *Hub
	info   control.Info
	client *control.Client
	cancel context.CancelFunc
	nudge  chan struct{} // holds one: ask for the state soon
	last   uint64        // point of the figures that is known; run's own

	// guarded by hub.mu
	known     bool // state has been asked for
	state     Session
	questions []control.Question
	denials   []control.Denial
	figures   control.Figures
	begun     bool // the first state was noted
}

// run follows the session until ctx ends.
func (f *follower) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { f.again(ctx, f.events) })
	both.Go(func() { f.again(ctx, f.ask) })
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.nudge:
		}
	}
}

// again repeats what follows a stream until ctx ends: the stream ends with the
// session, and the hub finds out by itself that it is gone.
func (f *follower) again(ctx context.Context, stream func(context.Context) error) {
	for ctx.Err() == nil {
		_ = stream(ctx) // what is wrong is told by the state
		select {
		case <-ctx.Done():
		case <-time.After(Every):
		}
	}
}

func (f *follower) soon() {
	select {
	case f.nudge <- struct{}{}:
	default:
	}
}

func (f *follower) events(ctx context.Context) error {
	return f.client.Events(ctx, nil, func(e control.Event) error {
		f.hub.happened(Event{Session: f.info.Name, Event: e})
		if e.Kind != "refusal" && e.Kind != "failure" {
			f.soon() // the roots are others now
		}
		return nil
	})
}

func (f *follower) ask(ctx context.Context) error {
	return f.client.WatchQuestions(ctx, func(a control.WaitingAnswer) error {
		f.hub.mu.Lock()
		defer f.hub.mu.Unlock()
		f.questions, f.denials = a.Questions, a.Denials
		f.hub.markLocked(func(s *Subscriber) { s.asked = true })
		return nil
	})
}

// look asks for the state and notes it.
func (f *follower) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := f.client.Status(ctx)
	var more control.Figures
	if err == nil {
		more, err = f.client.Figures(ctx, f.last)
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if err != nil {
		f.state.Session, f.state.Point = f.info.Name, f.info.Point
		f.state.Problem = err.Error()
	} else {
		f.last = more.Last
		f.figures.Add(more)
		f.state = stateOf(st, &f.figures)
		if !f.begun {
			f.begun = true
			f.recallLocked(st.Recent)
		}
	}
	f.known = true
	f.hub.markLocked(func(s *Subscriber) { s.state = true })
}

// stateOf is what is passed on of a session.
func stateOf(st control.Status, f *control.Figures) Session {
	out := Session{Status: st}
	out.Rate, out.Rates = f.Now()
	if len(st.Roots) > MaxRoots {
		out.MoreRoots = len(st.Roots) - MaxRoots
		out.Roots = st.Roots[:MaxRoots]
	}
	return out
}

// recallLocked tells of refusals from before the hub followed the session; the
// caller holds hub.mu. One that is told by the stream, too, is told twice at most.
func (f *follower) recallLocked(recent []control.Operation) {
	for i := len(recent) - 1; i >= 0; i-- { // the newest is the first
		op := &recent[i]
		kind := map[string]string{"refused": "refusal", "failed": "failure"}[op.Verdict]
		if kind == "" {
			continue
		}
		e := Event{Session: f.info.Name, Event: control.Event{Time: op.Time, Kind: kind, Op: op.Op, Path: op.Path, Reason: op.Reason, PID: op.PID}}
		if slices.ContainsFunc(f.hub.past, func(p Event) bool { return p.Session == e.Session && p.Time.Equal(e.Time) && p.Op == e.Op }) {
			continue
		}
		f.hub.passLocked(e)
	}
}
