package consent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// askOwner sends a notification about a question, and waits for the owner's answer over the control
// socket. If the requested names alone show that everything was denied before, askOwner denies the
// question at once.
func (qs *Questions) askOwner(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	q, all := qs.denials.markDenied(q)
	if all {
		return broker.Answer{By: "control, remembered"}, nil
	}
	what := requestedText(q)
	qs.cfg.Events.Publish(control.Event{Time: q.Asked, Kind: "consent", Detail: names.Foreign(fmt.Sprintf(
		"asked for %s; answer with: rootsfs consent approve %s", what, q.ID))})
	if q.Host != nil {
		qs.cfg.Log.Info("a command connects to a host that no rule permits", "question", q.ID, "host", what)
	} else {
		qs.cfg.Log.Info("a server asks for consent", "question", q.ID, "paths", what)
	}
	qs.notices.Show(qs.notice(q))
	a, err := qs.waiting.Ask(ctx, q)
	end := "denied " + what
	switch {
	case errors.Is(ctx.Err(), context.Canceled) && err != nil:
		end = "withdrawn: whoever asked for " + what + " waits no more"
	case err != nil:
		end = "nobody answered for " + what
	case anyAllowed(a):
		end = "approved"
	}
	qs.cfg.Events.Publish(control.Event{Time: time.Now(), Kind: "consent", Detail: names.Foreign(q.ID + ": " + end)})
	return a, err
}

// notice returns the summary and the body of a notification about a question. The requested
// paths or host come first, since the asker chooses the length and the words of its own name.
func (qs *Questions) notice(q *broker.Question) (summary, body string) {
	summary, who := "A server asks for access to files", cmp.Or(q.Server, names.Foreign(q.Subject))
	if q.Host != nil {
		summary, who = "A command asks for a connection", q.Host.Program
	}
	if body = fmt.Sprintf("%s, in session %s", requestedText(q), qs.cfg.Session); who != "" {
		body += ", by " + names.Quote(who)
	}
	return summary, body
}

// requestedText returns the host or the requested paths of a question, escaped.
func requestedText(q *broker.Question) string {
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
