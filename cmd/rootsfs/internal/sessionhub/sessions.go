// Package sessionhub follows every session of the user at once, over the sessions' control sockets,
// for the console's page and the terminal view. It decides nothing and keeps nothing on disk.
//
// # Promises
//
//   - Memory is bounded in every case. A subscriber that does not read loses events, and gets
//     their number. Only the first maxRoots roots of a session are passed on.
//   - A subscriber gets at most one update every interval. The update has the present state,
//     not each change.
//   - New sessions appear, and ended ones disappear, within about a second. Nothing polls for
//     that; see package hostwatch.
//
// # Not promised
//
// Texts of servers are passed on unescaped; the console and the terminal view escape them.
//
// The exported functions may be called concurrently.
package sessionhub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/guard/names"
)

const (
	// interval is the shortest time between two updates of one subscriber.
	interval = 100 * time.Millisecond
	// Every is how often sessions send their state and rates.
	Every = control.StateEvery
	// maxRoots is how many roots of one session are passed on.
	maxRoots = 200
	// maxPast is how many earlier events a new subscriber gets.
	maxPast = 500
	// silence is the time without an update after which a session counts as stopped: a running
	// one sends its state every Every.
	silence = 5 * time.Second
)

// Session is the state of one session.
type Session struct {
	control.Status
	// Problem says why the state is out of date; "": the state is up to date.
	Problem string `json:"problem,omitempty"`
	// MoreRoots is how many roots there are in addition to those in Roots.
	MoreRoots int `json:"more_roots,omitempty"`
}

// Update has the changes for one subscriber. A field without a change has its zero value.
type Update struct {
	At time.Time `json:"at"`
	// Sessions are all live sessions whose state is known, sorted by name.
	Sessions []Session `json:"sessions,omitempty"`
	// Empty is set if no session is live. If Empty is not set and Sessions is empty, the sessions are
	// unchanged, or no state is known yet.
	Empty bool `json:"empty,omitempty"`
	// If QuestionsIncluded is set, Questions are all waiting questions and Denials all
	// remembered denials, the oldest first.
	Questions         []control.Question `json:"questions,omitempty"`
	Denials           []control.Denial   `json:"denials,omitempty"`
	QuestionsIncluded bool               `json:"asked,omitempty"`
	// Events are the events since the last update, in the order of their arrival. Lost is how many
	// of them are missing.
	Events []control.Event `json:"events,omitempty"`
	Lost   int             `json:"lost,omitempty"`
}

// Sessions follows all sessions while Run runs. The zero Sessions is ready to use.
type Sessions struct {
	events events.Hub

	mu       sync.Mutex // guards the fields below
	sessions map[string]*follower
	past     []control.Event // the last events of all sessions, at most maxPast
}

// Run follows the sessions until ctx ends. It returns an error if the directory of the sessions
// cannot be read.
func (s *Sessions) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	dirs := watchSessions(ctx)
	defer dirs.close()
	defer cancel()
	for {
		list, err := control.List()
		if err != nil {
			return err
		}
		s.followNew(ctx, list, &running, dirs.changes)
		if err := dirs.follow(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-dirs.changes:
		}
	}
}

// followNew begins to follow the new sessions in list, and drops the sessions that list no longer
// has. When the stream of a session ends, its goroutine puts a token into ended.
func (s *Sessions) followNew(ctx context.Context, list []control.Info, running *sync.WaitGroup, ended chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		s.sessions = map[string]*follower{}
	}
	changed := false
	for name, f := range s.sessions {
		same := func(in control.Info) bool { return in.Name == name && in.PID == f.info.PID && in.Start == f.info.Start }
		if !slices.ContainsFunc(list, same) {
			f.cancel()
			delete(s.sessions, name)
			changed = true
		}
	}
	for _, in := range list {
		if s.sessions[in.Name] != nil {
			continue
		}
		f := &follower{all: s, info: in, client: control.Dial(in)}
		var own context.Context
		own, f.cancel = context.WithCancel(ctx)
		s.sessions[in.Name] = f
		running.Go(func() { f.run(own, ended) })
		changed = true
	}
	if changed {
		s.events.Mark(events.State | events.Waiting)
	}
}

// Client returns a client of a live session, by its exact name.
func (s *Sessions) Client(session string) (*control.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.sessions[session]; f != nil {
		return f.client, nil
	}
	return nil, fmt.Errorf("%w: %s has ended", control.ErrNoSession, names.Quote(session))
}

// Names returns the names of the live sessions, sorted.
func (s *Sessions) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.sessions))
	for name := range s.sessions {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Revoked is the result of a revocation in one session.
type Revoked struct {
	Session string          `json:"session"`
	Ended   []control.Ended `json:"ended"`
	Error   string          `json:"error,omitempty"`
}

// Revoke sends the request to all the sessions at the same time.
func (s *Sessions) Revoke(ctx context.Context, sessions []string, req control.RevokeRequest) []Revoked {
	out := make([]Revoked, len(sessions))
	var all sync.WaitGroup
	for i, name := range sessions {
		all.Go(func() {
			out[i] = Revoked{Session: name, Ended: []control.Ended{}}
			c, err := s.Client(name)
			if err == nil {
				var a control.RevokeAnswer
				if a, err = control.Revoke.Call(ctx, c, req); len(a.Ended) > 0 {
					out[i].Ended = a.Ended
				}
			}
			if err != nil {
				out[i].Error = control.Text(err)
			}
		})
	}
	all.Wait()
	return out
}

// Subscribe returns a subscriber that begins with the present state and the last events. See
// Next.
func (s *Sessions) Subscribe() *events.Subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events.Subscribe(events.News{Events: slices.Clone(s.past), Changed: events.State | events.Waiting})
}

// Next waits until there is an update for a subscriber. ok is false when ctx has ended or the
// subscription is closed. Only one goroutine at a time may call Next for a subscriber.
func (s *Sessions) Next(ctx context.Context, sub *events.Subscriber) (u Update, ok bool) {
	news, ok := sub.Next(ctx, interval)
	if !ok {
		return Update{}, false
	}
	return s.update(news), true
}

// update returns the news, with the present state of everything that has changed.
func (s *Sessions) update(news events.News) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Update{At: time.Now(), Events: news.Events, Lost: news.Lost}
	if news.Changed&events.State != 0 {
		for _, f := range s.sessions {
			if f.known {
				u.Sessions = append(u.Sessions, f.state)
			}
		}
		slices.SortFunc(u.Sessions, func(a, b Session) int { return strings.Compare(a.Session, b.Session) })
		u.Empty = len(s.sessions) == 0
	}
	if news.Changed&events.Waiting != 0 {
		u.QuestionsIncluded = true
		for _, f := range s.sessions {
			u.Questions = append(u.Questions, f.questions...)
			u.Denials = append(u.Denials, f.denials...)
		}
		slices.SortFunc(u.Questions, func(a, b control.Question) int { return a.Asked.Compare(b.Asked) })
		slices.SortFunc(u.Denials, func(a, b control.Denial) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	}
	return u
}

// passLocked keeps an event and passes it to every subscriber. The caller holds mu.
func (s *Sessions) passLocked(e control.Event) {
	if s.past = append(s.past, e); len(s.past) > maxPast {
		s.past = s.past[1:]
	}
	s.events.Publish(e)
}

// follower follows one session.
type follower struct {
	all    *Sessions
	info   control.Info
	client *control.Client
	cancel context.CancelFunc

	// guarded by all.mu
	known     bool // state is set: the session has sent it, or cannot be followed
	begun     bool // a state of the session has arrived
	state     Session
	questions []control.Question
	denials   []control.Denial
}

// run follows the session until ctx ends. The stream ends with the session, and Sessions.Run
// then checks whether the session is gone: a killed session changes nothing in its directory.
func (f *follower) run(ctx context.Context, ended chan<- struct{}) {
	for ctx.Err() == nil {
		f.follow(ctx)
		select {
		case ended <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
		case <-time.After(Every):
		}
	}
}

// errSilent means that a session sends no updates any more, for example because it is stopped.
var errSilent = errors.New("it has not answered for " + silence.String())

// follow follows the stream until it ends, or is silent for too long.
func (f *follower) follow(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer silent.Stop()
	err := f.client.Stream(ctx, control.StreamRequest{State: true}, func(u control.Update) error {
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
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.state.Session, f.state.Point, f.state.Problem = f.info.Name, names.Foreign(f.info.Point), err.Error()
	f.known = true
	f.all.events.Mark(events.State)
}

// apply notes the changes of an update.
func (f *follower) apply(u control.Update) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	if u.Status != nil {
		f.state, f.known = stateOf(*u.Status), true
		if !f.begun {
			f.begun = true
			f.recallLocked(u.Status.Recent)
		}
		f.all.events.Mark(events.State)
	}
	if u.Waiting != nil {
		f.questions, f.denials = u.Waiting.Questions, u.Waiting.Denials
		for i := range f.questions {
			f.questions[i].Session = f.info.Name
		}
		for i := range f.denials {
			f.denials[i].Session = f.info.Name
		}
		f.all.events.Mark(events.Waiting)
	}
	for _, e := range u.Events {
		e.Session = f.info.Name
		f.all.passLocked(e)
	}
}

// stateOf returns the part of a session's status that is passed on.
func stateOf(st control.Status) Session {
	out := Session{Status: st}
	if len(st.Roots) > maxRoots {
		out.MoreRoots = len(st.Roots) - maxRoots
		out.Roots = st.Roots[:maxRoots]
	}
	return out
}

// recallLocked passes on refusals and failures from before the session was followed. The caller
// holds all.mu. If the stream later brings one of them as an event, it is passed on a second time.
func (f *follower) recallLocked(recent []control.Operation) {
	for i := len(recent) - 1; i >= 0; i-- { // the newest is the first
		op := &recent[i]
		kind := map[string]string{"refused": "refusal", "failed": "failure"}[op.Verdict]
		if kind == "" {
			continue
		}
		e := control.Event{OfSession: control.OfSession{Session: f.info.Name}, Time: op.Time, Kind: kind, Op: op.Op, Path: op.Path, Reason: op.Reason, PID: op.PID}
		if slices.ContainsFunc(f.all.past, func(p control.Event) bool { return p.Session == e.Session && p.Time.Equal(e.Time) && p.Op == e.Op }) {
			continue
		}
		f.all.passLocked(e)
	}
}
