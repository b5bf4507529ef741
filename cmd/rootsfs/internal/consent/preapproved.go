package consent

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
)

// Preapproved is one path that servers get without a question.
type Preapproved struct {
	Dir    string // resolved when the configuration came into force
	Rights guard.Rights
}

// SetFiles puts in force which paths are pre-approved, and whether the rest is denied without
// a question.
func (qs *Questions) SetFiles(allow []Preapproved, denyOthers bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.allow, qs.denyOthers = allow, denyOthers
}

// covers reports whether an item asks for no more than is pre-approved.
func (p *Preapproved) covers(it *broker.Item) bool {
	rel, err := filepath.Rel(p.Dir, it.Resolved)
	return it.Problem == "" && it.Rights != 0 && !it.Rights.WiderThan(p.Rights) &&
		err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// askConfig answers what the configuration decides about paths: questions for nothing but
// pre-approved ones, if it may allow, and, where nobody is to be asked, all others. A path
// that cannot be granted is left to a person: the answer would tell at once that it is not
// there.
func (qs *Questions) askConfig(mayAllow bool) broker.Asker {
	return broker.AskerFunc(func(_ context.Context, q *broker.Question) (broker.Answer, error) {
		if q.Host != nil { // which rules decide about, before there is a question
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
