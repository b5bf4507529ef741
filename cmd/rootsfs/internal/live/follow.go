package live

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// follower follows one session.
type follower struct {
	hub    *Hub
	info   control.Info
	client *control.Client
	cancel context.CancelFunc

	// guarded by hub.mu
	known     bool // the session has answered, or is known not to
	begun     bool // the first state was noted
	state     Session
	questions []control.Question
	denials   []control.Denial
	figures   control.Figures
}

// run follows the session until ctx ends. Its stream ends with it, and the hub finds out
// by itself that it is gone.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.follow(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(Every):
		}
	}
}

// errSilent means that a session tells nothing any more, such as one that is stopped.
var errSilent = errors.New("it has not answered for " + silence.String())

// follow follows the stream until it ends, or is silent for too long.
func (f *follower) follow(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer silent.Stop()
	err := f.client.Watch(ctx, control.WatchRequest{State: true}, func(u control.Update) error {
		silent.Reset(silence)
		f.apply(u)
		return nil
	})
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	if err == nil {
		return // the session has ended
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.state.Session, f.state.Point, f.state.Problem = f.info.Name, f.info.Point, err.Error()
	f.known = true
	f.hub.markLocked(func(s *Subscriber) { s.state = true })
}

// apply notes what has changed.
func (f *follower) apply(u control.Update) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if u.Figures != nil {
		f.figures.Add(*u.Figures)
	}
	if u.Status != nil {
		f.state, f.known = stateOf(*u.Status, &f.figures), true
		if !f.begun {
			f.begun = true
			f.recallLocked(u.Status.Recent)
		}
		f.hub.markLocked(func(s *Subscriber) { s.state = true })
	}
	if u.Waiting != nil {
		f.questions, f.denials = u.Waiting.Questions, u.Waiting.Denials
		f.hub.markLocked(func(s *Subscriber) { s.asked = true })
	}
	for _, e := range u.Events {
		f.hub.passLocked(Event{Session: f.info.Name, Event: e})
	}
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
