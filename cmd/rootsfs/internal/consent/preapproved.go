package consent

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
)

// Preapproved is one path that servers get without a question, with everything below it.
type Preapproved struct {
	Dir    string // resolved when the configuration came into force
	Rights guard.Rights
}

// SetFiles sets the pre-approved paths, and whether all others are denied without a question.
func (qs *Questions) SetFiles(allow []Preapproved, denyOthers bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.allow, qs.denyOthers = allow, denyOthers
}

// covers reports whether p pre-approves everything that an item asks for.
func (p *Preapproved) covers(it *broker.Item) bool {
	rel, err := filepath.Rel(p.Dir, it.Resolved.Raw())
	return it.Problem == "" && it.Rights != 0 && !it.Rights.WiderThan(p.Rights) &&
		err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// askConfig returns an Asker that answers questions about paths by the configuration. If mayAllow
// is set, the Asker allows the pre-approved paths. If all others are to be denied (see SetFiles),
// the Asker answers every question about paths. Otherwise it answers a question only if it allows
// all its paths. It leaves any other question unanswered, even if a path cannot be granted: an
// immediate answer would reveal that the path does not exist.
func (qs *Questions) askConfig(mayAllow bool) broker.Asker {
	return broker.AskerFunc(func(_ context.Context, q *broker.Question) (broker.Answer, error) {
		if q.Host != nil { // rules decide about hosts, before there is a question
			return broker.Answer{}, broker.ErrUnanswered
		}
		qs.mu.Lock()
		allow, deny := qs.allow, qs.denyOthers
		qs.mu.Unlock()
		a := broker.Answer{By: config.Origin, Decisions: make([]broker.Decision, len(q.Items))}
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
