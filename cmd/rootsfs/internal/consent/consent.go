package consent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// List serves control.ListQuestions.
func (qs *Questions) List(context.Context, control.None) (control.QuestionsAnswer, error) {
	list, _ := qs.Waiting()
	return control.QuestionsAnswer{Questions: list}, nil
}

// Waiting returns the questions that wait for the owner. changed is closed when a question
// comes or goes.
func (qs *Questions) Waiting() (_ []control.Question, changed <-chan struct{}) {
	changed = qs.waiting.Changed() // before the list, so that no change is missed
	list := qs.waiting.List()
	out := make([]control.Question, len(list))
	for i := range list {
		out[i] = control.Question{Question: list[i], Heading: names.Text(broker.Heading(&list[i])), Lines: names.List[names.Text](broker.Lines(&list[i]))}
	}
	return out, changed
}

// Answer serves control.AnswerQuestion. If the answer is invalid, the question goes on waiting.
func (qs *Questions) Answer(_ context.Context, req control.AnswerRequest) (control.AnswerAnswer, error) {
	none := control.AnswerAnswer{}
	if err := checkLasting(&req); err != nil {
		return none, err
	}
	if req.All {
		if req.ID != "" || req.Approve {
			return none, invalid("all questions can only be denied, and without naming one")
		}
		out := control.AnswerAnswer{Answered: []control.Answered{}}
		for _, q := range qs.waiting.List() {
			// A question that was answered meanwhile is not denied.
			if qs.waiting.Answer(q.ID, broker.Answer{}) == nil {
				out.Answered = append(out.Answered, describeAnswer(&q, q.Decisions()))
			}
		}
		return out, nil
	}
	q, err := qs.question(req.ID)
	if err != nil {
		return none, err
	}
	d := q.Decisions()
	if req.Approve {
		if req.Path, err = resolveNarrower(req.Path); err != nil {
			return none, err
		}
		if d, err = decide(q, req); err != nil {
			return none, err
		}
	}
	saved := ""
	if req.Save {
		// Save before the command gets the answer: if saving fails, the question goes on
		// waiting.
		if saved, err = qs.cfg.SaveHost(q.Host, d[0].For); err != nil {
			return none, err
		}
	}
	if req.Remember {
		// Remember before the server gets the answer: it may ask again at once.
		if err := qs.remember(q); err != nil {
			return none, err
		}
	}
	if err := qs.waiting.Answer(q.ID, broker.Answer{Decisions: d}); err != nil {
		return none, err
	}
	return control.AnswerAnswer{Answered: []control.Answered{describeAnswer(q, d)}, Saved: saved}, nil
}

// resolveNarrower resolves the links in a narrower path, because the path of the question was
// resolved, too. It refuses a link that a program can change.
func resolveNarrower(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if !filepath.IsAbs(path) {
		return "", invalid("the narrower path %s is not absolute", names.Quote(path))
	}
	resolved, err := writabledirs.Resolve(path)
	if err != nil {
		return "", fmt.Errorf("the narrower path: %w", err)
	}
	return resolved, nil
}

// question returns the waiting question with the id, or the only one whose id begins with id.
func (qs *Questions) question(id string) (*broker.Question, error) {
	found := withPrefix(qs.waiting.List(), func(q *broker.Question) string { return q.ID }, id)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w; see: rootsfs consent list", broker.ErrNoQuestion)
	case 1:
		return &found[0], nil
	}
	return nil, invalid("%d questions begin with %s; write more of the id", len(found), names.Quote(id))
}

// withPrefix returns the elements of a list whose ids begin with text. If the id of one element
// equals text, it returns only that element. If text is empty, it returns none.
func withPrefix[T any](list []T, id func(*T) string, text string) (found []T) {
	for i := range list {
		switch one := id(&list[i]); {
		case one == text:
			return list[i : i+1]
		case text != "" && strings.HasPrefix(one, text):
			found = append(found, list[i])
		}
	}
	return found
}

// decide returns the decisions of an approval: one for each item, or one for the host.
func decide(q *broker.Question, req control.AnswerRequest) ([]broker.Decision, error) {
	if q.Host != nil {
		return decideHost(req)
	}
	if req.Save {
		return nil, invalid("a root is not saved with its approval; write it down with: rootsfs roots add --save")
	}
	which, err := itemsToAllow(q, req.Only)
	if err != nil {
		return nil, err
	}
	if req.Path != "" && len(which) > 1 {
		return nil, invalid("a narrower path is of one item: name it with --only, from 1 to %d", len(q.Items))
	}
	if req.ForMS < 0 || req.ForMS > config.MaxFor.Milliseconds() {
		return nil, invalid("a duration is between 0 (with the session) and %v", config.MaxFor)
	}
	if req.IdleMS < 0 || req.IdleMS > config.MaxIdle.Milliseconds() || req.IdleMS > 0 && req.IdleMS < 1000 {
		return nil, invalid("a time without use is between 1s and %v, or 0 for none", config.MaxIdle)
	}
	d := make([]broker.Decision, len(q.Items))
	for _, i := range which {
		it, mode := &q.Items[i], req.Mode
		if mode == "ro" { // the item may ask only for listing
			var ok bool
			if mode, ok = broker.ReadOnlyMode(it); !ok {
				return nil, invalid("item %d does not ask to read, but for %s", i+1, it.Mode)
			}
		}
		if mode != "" {
			rights, err := rules.ParseMode(mode)
			if err != nil {
				return nil, err
			}
			if rights.WiderThan(it.Rights) {
				return nil, invalid("%s is more than was asked for (%s): a consent may be narrower, not wider", rights, it.Mode)
			}
		}
		if req.Path != "" && !itemContains(it, req.Path) {
			return nil, invalid("%s is not below %s, which was asked for", names.Quote(req.Path), names.Quote(it.Resolved))
		}
		d[i] = broker.Decision{Allow: true, Path: req.Path, Mode: mode,
			For: time.Duration(req.ForMS) * time.Millisecond, Idle: time.Duration(req.IdleMS) * time.Millisecond}
	}
	return d, nil
}

// itemsToAllow returns the indexes of the items to allow: the items with the given numbers, counted
// from 1, or, without numbers, all items that can be granted.
func itemsToAllow(q *broker.Question, numbers []int) ([]int, error) {
	var which []int
	for i := range q.Items {
		if len(numbers) == 0 && q.Items[i].Problem == "" {
			which = append(which, i)
		}
	}
	for _, n := range numbers {
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

// itemContains reports whether path is the item's resolved path or lies below the resolved path. It
// compares the elements of the paths. Nothing lies below a file. The broker opens path and checks
// it again.
func itemContains(it *broker.Item, path string) bool {
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	rel, err := filepath.Rel(it.Resolved.Raw(), path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && (!it.File || rel == ".")
}

// describeAnswer describes the decisions about a question.
func describeAnswer(q *broker.Question, d []broker.Decision) control.Answered {
	a := control.Answered{ID: q.ID, Allowed: []names.Text{}, Denied: []names.Text{}}
	if q.Host != nil {
		to := &a.Denied
		if d[0].Allow {
			to = &a.Allowed
		}
		*to = append(*to, names.Text(names.EscapeQuoted(q.Host.String())))
		return a
	}
	for i, it := range q.Items {
		path := it.Resolved
		if path == "" {
			path = it.Requested
		}
		switch {
		case !d[i].Allow:
			a.Denied = append(a.Denied, names.Text(names.Quote(path)))
			continue
		case d[i].Path != "":
			path = names.Foreign(d[i].Path)
		}
		mode := it.Mode
		if rights, err := rules.ParseMode(d[i].Mode); err == nil {
			mode = rights.String()
		}
		a.Allowed = append(a.Allowed, names.Text(names.Quote(path)+" ("+mode+")"))
	}
	return a
}

func invalid(format string, args ...any) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// denials has the denials that are remembered while the session lives: every denied host, and each
// denied path that the owner wants remembered, with everything below the path. Each denial has a
// subject without a session number (WithoutSession), so a server that connects again has the same
// denials.
type denials struct {
	mu      sync.Mutex       // guards the field below
	entries []control.Denial // the oldest first
}

// maxDenials bounds the remembered denials of one subject.
const maxDenials = 1000

// add remembers the host of a question, or its items: for each item, the requested path and the
// path that its links lead to.
func (d *denials) add(q *broker.Question) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 2*len(q.Items) + 1 // at most two denials for each item, and one for the host
	for i := range d.entries {
		if d.entries[i].Subject.Raw() == string(q.Subject.WithoutSession()) {
			n++
		}
	}
	if n > maxDenials {
		return invalid("more than %d denials of one server cannot be remembered; lift some (rootsfs consent forget), deny without remembering, or end the server", maxDenials)
	}
	remember := func(one control.Denial) {
		one.ID, one.Since, one.Subject = strings.ToLower(rand.Text()), time.Now(), names.Foreign(q.Subject.WithoutSession())
		d.entries = append(d.entries, one)
	}
	if q.Host != nil && !d.holdsLocked(q.Subject, control.Denial{Host: names.Foreign(q.Host.String())}) {
		remember(control.Denial{Host: names.Foreign(q.Host.String())})
	}
	for i := range q.Items {
		for _, path := range []string{resolvedPath(&q.Items[i]), filepath.Clean(q.Items[i].Requested.Raw())} {
			if !d.holdsLocked(q.Subject, control.Denial{Path: names.Foreign(path)}) {
				remember(control.Denial{Path: names.Foreign(path)})
			}
		}
	}
	return nil
}

// list returns the remembered denials, the oldest first.
func (d *denials) list() []control.Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]control.Denial{}, d.entries...)
}

// find returns the denials that a request names: all denials, or the denial whose id is req.ID, or
// the only denial whose id begins with req.ID.
func (d *denials) find(req control.ForgetRequest) ([]control.Denial, error) {
	all := d.list()
	switch {
	case req.All && req.ID != "":
		return nil, invalid("name a denial, or say all of them, not both")
	case req.All:
		return all, nil
	case req.ID == "":
		return nil, invalid("name the denial to lift; see: rootsfs consent denials")
	}
	found := withPrefix(all, func(one *control.Denial) string { return one.ID }, req.ID)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w %s; see: rootsfs consent denials", control.ErrNoDenial, names.Quote(req.ID))
	case 1:
		return found, nil
	}
	return nil, invalid("%d denials begin with %s; write more of the id", len(found), names.Quote(req.ID))
}

// forget lifts a denial. It reports false if the denial has been lifted already.
func (d *denials) forget(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.entries, func(one control.Denial) bool { return one.ID == id })
	if i < 0 {
		return false
	}
	d.entries = slices.Delete(d.entries, i, i+1)
	return true
}

// resolvedPath returns the path that an item's links lead to. If the requested path could not be
// opened, resolvedPath returns the requested path, cleaned.
func resolvedPath(it *broker.Item) string {
	if it.Resolved != "" {
		return it.Resolved.Raw()
	}
	return filepath.Clean(it.Requested.Raw())
}

// covers reports whether an item is a path that was denied to the subject, or lies below one.
func (d *denials) covers(s guard.Subject, it *broker.Item) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holdsLocked(s, control.Denial{Path: names.Foreign(resolvedPath(it))})
}

// coversHost reports whether a host, HOST:PORT, was denied to the subject.
func (d *denials) coversHost(s guard.Subject, host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holdsLocked(s, control.Denial{Host: names.Foreign(host)})
}

// holdsLocked reports whether a host, or a path or a directory above it, was denied to the
// subject.
func (d *denials) holdsLocked(s guard.Subject, what control.Denial) bool {
	return slices.ContainsFunc(d.entries, func(one control.Denial) bool {
		return one.Subject.Raw() == string(s.WithoutSession()) && one.Host == what.Host && (one.Host != "" || names.Under(what.Path.Raw(), one.Path.Raw()))
	})
}

// problemDenied is the reason why an item with a remembered denial cannot be granted.
const problemDenied = "you denied it to this server for as long as the session lasts; to be asked again: rootsfs consent forget"

// markDenied returns a copy of a question in which each item that was denied before has the Problem
// problemDenied, so that the item cannot be granted. all reports whether the requested names alone
// show that the host, or every item, was denied. An immediate answer must depend only on the names:
// otherwise the answer would reveal where the links in the paths lead.
func (d *denials) markDenied(q *broker.Question) (marked *broker.Question, all bool) {
	out := *q
	out.Items = append([]broker.Item{}, q.Items...)
	all = q.Host == nil || d.coversHost(q.Subject, q.Host.String())
	for i := range out.Items {
		if d.covers(q.Subject, &out.Items[i]) {
			out.Items[i].Problem = problemDenied
		}
		all = all && d.covers(q.Subject, &broker.Item{Requested: q.Items[i].Requested})
	}
	return &out, all
}

// remember adds the host or the items of a question to the remembered denials, and notifies the
// subscribers of the session's events.
func (qs *Questions) remember(q *broker.Question) error {
	err := qs.denials.add(q)
	qs.cfg.Events.Mark(events.Waiting)
	return err
}

// checkLasting refuses an answer whose Remember or Save does not fit its other fields.
func checkLasting(req *control.AnswerRequest) error {
	if req.Remember && (req.Approve || req.All) {
		return invalid("what is remembered is the denial of one question")
	}
	if req.Save && !req.Approve {
		return invalid("what is saved is the approval of a host")
	}
	return nil
}

// Denials returns the remembered denials, the oldest first.
func (qs *Questions) Denials() []control.Denial { return qs.denials.list() }

// ListDenials serves control.ListDenials.
func (qs *Questions) ListDenials(context.Context, control.None) (control.DenialsAnswer, error) {
	return control.DenialsAnswer{Denials: qs.Denials()}, nil
}

// Forget serves control.ForgetDenial. A denial is not lifted if its record cannot be written.
func (qs *Questions) Forget(_ context.Context, req control.ForgetRequest) (control.ForgetAnswer, error) {
	a := control.ForgetAnswer{Forgotten: []control.Denial{}}
	which, err := qs.denials.find(req)
	if err != nil {
		return a, err
	}
	var bad error
	for _, one := range which {
		detail := fmt.Sprintf("subject %s may ask again: %s", one.Subject.Raw(), one.What().Raw())
		if err := qs.cfg.Registry.Note(names.OpSet, "", guard.Allowed, detail); err != nil {
			bad = errors.Join(bad, fmt.Errorf("not lifted, because it cannot be recorded: %w", err))
			break
		}
		if qs.denials.forget(one.ID) {
			a.Forgotten = append(a.Forgotten, one)
			qs.cfg.Events.Mark(events.Waiting)
		}
	}
	return a, bad
}
