package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// serveFiles makes the broker, through which MCP servers are served files/* on
// the session's registry.
func (s *Session) serveFiles() {
	var f config.Files
	if s.opt.Config != nil {
		f = s.opt.Config.Files
	}
	s.setFiles(&f)
	if s.opt.Config != nil {
		s.reg.SetQuotas(s.opt.Config.Subjects)
	}
	s.frame = f.Frame
	s.questions.By = "control"
	s.watching = s.tree.NewHub(watch.HubOptions{MaxEach: f.WatchedDirs})
	s.reg.AddView(s.watching)
	s.broker = broker.New(broker.Config{
		Registry: s.reg, Tree: s.tree, Hub: s.watching, Log: s.log,
		Asker:  s.asker(WayOther), // see Connect
		AskFor: f.ConsentTimeout, Terms: s.opt.Bound.Apply,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), FlatAt: s.opt.FlatAt,
		Limits: broker.Limits{
			OpsPerSecond: f.OpsPerSecond, BytesPerSecond: float64(f.BytesPerSecond),
			MaxFile: f.MaxFile, MaxWritten: f.MaxWritten, Watches: f.Watches,
		},
	})
}

// keepJournal removes what a killed session left unfinished in the roots, and
// begins to note what this one would leave.
func (s *Session) keepJournal(ctx context.Context) error {
	dir, err := config.StateDir("unfinished")
	if err != nil {
		return err
	}
	n, err := cleanUp(ctx, dir, s.reg, s.tree)
	if err != nil {
		return fmt.Errorf("remove what a killed session left: %w", err)
	}
	if n > 0 {
		s.log.Info("removed unfinished files that a killed session left", "files", n)
	}
	if s.journal, err = openJournal(dir, s.dir.Name(), s.reg); err != nil {
		return fmt.Errorf("the journal of unfinished files: %w", err)
	}
	s.tree.SetJournal(s.journal)
	return nil
}

// Broker serves MCP servers on the session's roots: whoever runs a server begins
// a session of it, by Connect. It ends with the session, before the roots do.
func (s *Session) Broker() *broker.Broker { return s.broker }

// Frame is the longest message to take from a server, in bytes, for the
// broker's transports; 0 means their default.
func (s *Session) Frame() int { return s.frame }

// closeBroker ends what servers have under way. The roots' ending does not wait
// for one that hangs in a source: the gate is shut for it, too.
func (s *Session) closeBroker() {
	if s.broker == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.broker.Close()
	}()
	select {
	case <-done:
	case <-time.After(guard.EndDeadline):
		s.log.Warn("a request of a server is stuck in its source; revoking all the same")
	}
}

// preapproved is one path that servers get without a question.
type preapproved struct {
	dir    string // resolved when the configuration came into force
	rights guard.Rights
}

// setFiles puts [files] in force, as far as it is not bound to the start.
//
// The paths are resolved now, not when a server asks: between the two, a server
// that may write next to a path could have made it a link to another place.
func (s *Session) setFiles(f *config.Files) {
	var allow []preapproved
	for _, a := range f.Allow {
		// A path that is not there yet, or cannot be looked at, covers what it names.
		if err := s.reg.CheckLinks(a.Path); errors.As(err, new(*guard.LinkError)) {
			s.log.Error("a path of [[files.allow]] allows nothing", "error", err)
			s.note(guard.Refused, "files.allow: "+err.Error())
			continue
		}
		allow = append(allow, preapproved{Resolve(a.Path), a.Rights})
	}
	s.mu.Lock()
	s.allow, s.noAsking = allow, f.Deny
	s.mu.Unlock()
}

// covers reports whether an item asks for no more than is pre-approved.
func (p *preapproved) covers(it *broker.Item) bool {
	rel, err := filepath.Rel(p.dir, it.Resolved)
	return it.Problem == "" && it.Rights != 0 && !it.Rights.WiderThan(p.rights) &&
		err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// askConfig answers what the configuration decides about paths: questions for nothing but
// pre-approved ones, if it may allow, and, where nobody is to be asked, all others. A path
// that cannot be granted is left to a person: the answer would tell at once that it is not
// there.
func (s *Session) askConfig(mayAllow bool) broker.Asker {
	return broker.AskerFunc(func(_ context.Context, q *broker.Question) (broker.Answer, error) {
		if q.Host != nil { // which rules decide about, before there is a question
			return broker.Answer{}, broker.ErrUnanswered
		}
		s.mu.Lock()
		allow, deny := s.allow, s.noAsking
		s.mu.Unlock()
		a := broker.Answer{By: originConfig, Decisions: make([]broker.Decision, len(q.Items))}
		all := true
		for i := range q.Items {
			for _, p := range allow {
				a.Decisions[i].Allow = a.Decisions[i].Allow || mayAllow && p.covers(&q.Items[i])
			}
			all = all && a.Decisions[i].Allow
		}
		if all || deny {
			return a, nil
		}
		return broker.Answer{}, broker.ErrUnanswered
	})
}

// askOwner leaves a question for `rootsfs consent`, and tells of it.
func (s *Session) askOwner(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	q, all := s.denials.withoutDenied(q)
	if all {
		return broker.Answer{By: "control, remembered"}, nil
	}
	what := asksFor(q)
	s.hub.Publish(control.Event{Time: q.Asked, Kind: "consent", Detail: names.Foreign(fmt.Sprintf(
		"asked for %s; answer with: rootsfs consent approve %s", what, q.ID))})
	if q.Host != nil {
		s.log.Info("a command connects to a host that no rule permits", "question", q.ID, "host", what)
	} else {
		s.log.Info("a server asks for consent", "question", q.ID, "paths", what)
	}
	s.notices.Show(s.notice(q))
	a, err := s.questions.Ask(ctx, q)
	end := "denied " + what
	switch {
	case errors.Is(ctx.Err(), context.Canceled) && err != nil:
		end = "withdrawn: whoever asked for " + what + " waits no more"
	case err != nil:
		end = "nobody answered for " + what
	case anyAllowed(a):
		end = "approved"
	}
	s.hub.Publish(control.Event{Time: time.Now(), Kind: "consent", Detail: names.Foreign(q.ID + ": " + end)})
	return a, err
}

// notice returns the summary and the body of a notification about a question. What is asked for
// comes first, since whoever asks chooses the length and the words of its own name.
func (s *Session) notice(q *broker.Question) (summary, body string) {
	summary, who := "A server asks for access to files", cmp.Or(q.Server, string(q.Subject))
	if q.Host != nil {
		summary, who = "A command asks for a connection", q.Host.Program
	}
	if body = fmt.Sprintf("%s, in session %s", asksFor(q), s.dir.Name()); who != "" {
		body += ", by " + names.Quote(who)
	}
	return summary, body
}

// asksFor returns the host or the paths of a question, escaped.
func asksFor(q *broker.Question) string {
	if q.Host != nil {
		return names.Quote(q.Host.String())
	}
	paths := make([]string, len(q.Items))
	for i, it := range q.Items {
		paths[i] = names.Quote(it.Requested)
	}
	return strings.Join(paths, ", ")
}

func anyAllowed(a broker.Answer) bool {
	for _, d := range a.Decisions {
		if d.Allow {
			return true
		}
	}
	return false
}
