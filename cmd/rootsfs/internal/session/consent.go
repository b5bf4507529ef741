package session

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// listQuestions serves control.ListQuestions.
func (s *Session) listQuestions(context.Context, control.None) (control.QuestionsAnswer, error) {
	list, _ := s.waitingQuestions()
	return control.QuestionsAnswer{Questions: list}, nil
}

// waitingQuestions are those that wait for the owner; changed is closed when one comes or
// goes.
func (s *Session) waitingQuestions() (_ []control.Question, changed <-chan struct{}) {
	changed = s.questions.Changed() // before the list, so that no change is missed
	list := s.questions.List()
	out := make([]control.Question, len(list))
	for i := range list {
		q := control.Question{Question: list[i], Heading: broker.Heading(&list[i])}
		for j := range list[i].Items {
			q.Lines = append(q.Lines, broker.Describe(&list[i].Items[j]))
		}
		out[i] = q
	}
	return out, changed
}

// answer serves control.AnswerQuestion. A question whose answer cannot be meant goes on
// waiting.
func (s *Session) answer(_ context.Context, req control.AnswerRequest) (control.AnswerAnswer, error) {
	none := control.AnswerAnswer{}
	if err := checkRemember(&req); err != nil {
		return none, err
	}
	if req.All {
		if req.ID != "" || req.Approve {
			return none, invalid("all questions can only be denied, and without naming one")
		}
		out := control.AnswerAnswer{Answered: []control.Answered{}}
		for _, q := range s.questions.List() {
			// One that was answered meanwhile is none to be denied.
			if s.questions.Answer(q.ID, broker.Answer{}) == nil {
				out.Answered = append(out.Answered, answered(&q, make([]broker.Decision, len(q.Items))))
			}
		}
		return out, nil
	}
	q, err := s.question(req.ID)
	if err != nil {
		return none, err
	}
	d := make([]broker.Decision, len(q.Items))
	if req.Approve {
		if req.Path, err = resolveNarrower(req.Path); err != nil {
			return none, err
		}
		if d, err = decide(q, req); err != nil {
			return none, err
		}
	}
	if req.Remember {
		// Before the server is told: it may ask again at once.
		if err := s.denials.add(q); err != nil {
			return none, err
		}
	}
	if err := s.questions.Answer(q.ID, broker.Answer{Decisions: d}); err != nil {
		return none, err
	}
	return control.AnswerAnswer{Answered: []control.Answered{answered(q, d)}}, nil
}

// resolveNarrower undoes the links on the way to a narrower path, as they are undone in the
// path that is asked for. A link that a program can change is refused.
func resolveNarrower(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if !filepath.IsAbs(path) {
		return "", invalid("the narrower path %s is not absolute", names.Quote(path))
	}
	resolved, err := written.Resolve(path)
	if err != nil {
		return "", fmt.Errorf("the narrower path: %w", err)
	}
	return resolved, nil
}

// question finds the one that waits under an id, or under the beginning of one.
func (s *Session) question(id string) (*broker.Question, error) {
	var found []broker.Question
	for _, q := range s.questions.List() {
		if q.ID == id {
			return &q, nil
		}
		if id != "" && strings.HasPrefix(q.ID, id) {
			found = append(found, q)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w; see: rootsfs consent list", broker.ErrNoQuestion)
	case 1:
		return &found[0], nil
	}
	return nil, invalid("%d questions begin with %s; write more of the id", len(found), names.Quote(id))
}

// decide makes an approval's decisions, one for each item.
func decide(q *broker.Question, req control.AnswerRequest) ([]broker.Decision, error) {
	which, err := chosen(q, req.Only)
	if err != nil {
		return nil, err
	}
	if req.Path != "" && len(which) > 1 {
		return nil, invalid("a narrower path is of one item: name it with --only, from 1 to %d", len(q.Items))
	}
	if req.ForMS < 0 || req.ForMS > longestGrant.Milliseconds() {
		return nil, invalid("a duration is between 0 (with the session) and %v", longestGrant)
	}
	if req.IdleMS < 0 || req.IdleMS > config.MaxIdle.Milliseconds() || req.IdleMS > 0 && req.IdleMS < 1000 {
		return nil, invalid("a time without use is between 1s and %v, or 0 for none", config.MaxIdle)
	}
	d := make([]broker.Decision, len(q.Items))
	for _, i := range which {
		it, mode := &q.Items[i], req.Mode
		if mode == "ro" { // it may ask to list alone
			var ok bool
			if mode, ok = broker.ReadingOf(it); !ok {
				return nil, invalid("item %d does not ask to read, but for %s", i+1, it.Mode)
			}
		}
		if mode != "" {
			rights, err := guard.ParseMode(mode)
			if err != nil {
				return nil, err
			}
			if rights&^it.Rights != 0 {
				return nil, invalid("%s is more than was asked for (%s): a consent may be narrower, not wider", rights, it.Mode)
			}
		}
		if req.Path != "" && !narrower(it, req.Path) {
			return nil, invalid("%s is not below %s, which was asked for", names.Quote(req.Path), names.Quote(it.Resolved))
		}
		d[i] = broker.Decision{Allow: true, Path: req.Path, Mode: mode,
			For: time.Duration(req.ForMS) * time.Millisecond, Idle: time.Duration(req.IdleMS) * time.Millisecond}
	}
	return d, nil
}

// longestGrant is more than anybody means.
const longestGrant = 100 * 365 * 24 * time.Hour

// chosen are the items to be allowed: those of the numbers, counted from 1, or
// all that can be granted.
func chosen(q *broker.Question, only []int) ([]int, error) {
	var which []int
	for i := range q.Items {
		if len(only) == 0 && q.Items[i].Problem == "" {
			which = append(which, i)
		}
	}
	for _, n := range only {
		switch {
		case n < 1 || n > len(q.Items):
			return nil, invalid("there is no item %d: it has %d", n, len(q.Items))
		case q.Items[n-1].Problem != "":
			return nil, invalid("item %d cannot be granted: %s", n, names.Escape(q.Items[n-1].Problem))
		case !slices.Contains(which, n-1):
			which = append(which, n-1)
		}
	}
	return which, nil
}

// narrower reports whether path names what was asked for or something below it,
// by its elements; the broker opens it and looks again.
func narrower(it *broker.Item, path string) bool {
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	rel, err := filepath.Rel(it.Resolved, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && (!it.File || rel == ".")
}

// answered tells what was decided.
func answered(q *broker.Question, d []broker.Decision) control.Answered {
	a := control.Answered{ID: q.ID, Allowed: []string{}, Denied: []string{}}
	for i, it := range q.Items {
		path := it.Resolved
		if path == "" {
			path = it.Requested
		}
		switch {
		case !d[i].Allow:
			a.Denied = append(a.Denied, names.Quote(path))
			continue
		case d[i].Path != "":
			path = d[i].Path
		}
		mode := it.Mode
		if rights, err := guard.ParseMode(d[i].Mode); err == nil {
			mode = rights.String()
		}
		a.Allowed = append(a.Allowed, names.Quote(path)+" ("+mode+")")
	}
	return a
}

func invalid(format string, args ...any) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}
