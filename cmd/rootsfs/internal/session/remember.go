package session

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
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// denials are what the owner denied and does not want to be asked again while
// the session lives: paths, and all that lies below, by subject. A server that is
// served again is the same: denials are those of guard.Subject.Principal.
type denials struct {
	mu      sync.Mutex       // guards the fields below
	have    []control.Denial // the oldest first
	changed chan struct{}    // closed at every change
}

// maxDenials bounds what is remembered of one subject.
const maxDenials = 1000

// add remembers the items of a question, by where they lead and by what was asked for.
func (d *denials) add(q *broker.Question) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 2 * len(q.Items)
	for i := range d.have {
		if d.have[i].Subject == string(q.Subject.WithoutSession()) {
			n++
		}
	}
	if n > maxDenials {
		return invalid("more than %d denials of one server cannot be remembered; lift some (rootsfs consent forget), deny without remembering, or end the server", maxDenials)
	}
	for i := range q.Items {
		for _, path := range []string{placeOf(&q.Items[i]), filepath.Clean(q.Items[i].Requested)} {
			if !d.coversLocked(q.Subject, path) {
				d.have = append(d.have, control.Denial{ID: strings.ToLower(rand.Text()), Since: time.Now(), Subject: string(q.Subject.WithoutSession()), Path: path})
			}
		}
	}
	d.changeLocked()
	return nil
}

// list returns what is remembered, the oldest first; changed is closed when that
// is no longer all, or more than all.
func (d *denials) list() (all []control.Denial, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return append([]control.Denial{}, d.have...), d.changed
}

func (d *denials) changeLocked() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// find returns those that a request names: all, or the one whose id is, or alone
// begins with, what was written.
func (d *denials) find(req control.ForgetRequest) ([]control.Denial, error) {
	all, _ := d.list()
	switch {
	case req.All && req.ID != "":
		return nil, invalid("name a denial, or say all of them, not both")
	case req.All:
		return all, nil
	case req.ID == "":
		return nil, invalid("name the denial to lift; see: rootsfs consent denials")
	}
	found := slices.DeleteFunc(all, func(one control.Denial) bool { return !strings.HasPrefix(one.ID, req.ID) })
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w %s; see: rootsfs consent denials", control.ErrNoDenial, names.Quote(req.ID))
	case 1:
		return found, nil
	}
	return nil, invalid("%d denials begin with %s; write more of the id", len(found), names.Quote(req.ID))
}

// forget lifts one; false: somebody else just has.
func (d *denials) forget(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.have, func(one control.Denial) bool { return one.ID == id })
	if i < 0 {
		return false
	}
	d.have = slices.Delete(d.have, i, i+1)
	d.changeLocked()
	return true
}

// placeOf is where an item leads, or, where it could not be opened, what was
// asked for.
func placeOf(it *broker.Item) string {
	if it.Resolved != "" {
		return it.Resolved
	}
	return filepath.Clean(it.Requested)
}

// covers reports whether an item lies in what was denied to the subject.
func (d *denials) covers(s guard.Subject, it *broker.Item) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.coversLocked(s, placeOf(it))
}

func (d *denials) coversLocked(s guard.Subject, path string) bool {
	for i := range d.have {
		if d.have[i].Subject == string(s.WithoutSession()) && names.Under(path, d.have[i].Path) {
			return true
		}
	}
	return false
}

// problemDenied is why an item cannot be granted that was denied for good.
const problemDenied = "you denied it to this server for as long as the session lasts; to be asked again: rootsfs consent forget"

// withoutDenied is a question without hope for what was denied before; all
// reports that the names in it say so, wherever they lead: an answer that comes at once
// must not tell what is there.
func (d *denials) withoutDenied(q *broker.Question) (left *broker.Question, all bool) {
	out := *q
	out.Items = append([]broker.Item{}, q.Items...)
	all = true
	for i := range out.Items {
		if d.covers(q.Subject, &out.Items[i]) {
			out.Items[i].Problem = problemDenied
		}
		all = all && d.covers(q.Subject, &broker.Item{Requested: q.Items[i].Requested})
	}
	return &out, all
}

// checkRemember refuses what cannot be meant by remembering.
func checkRemember(req *control.AnswerRequest) error {
	if req.Remember && (req.Approve || req.All) {
		return invalid("what is remembered is the denial of one question")
	}
	return nil
}

// listDenials serves control.ListDenials.
func (s *Session) listDenials(context.Context, control.None) (control.DenialsAnswer, error) {
	list, _ := s.denials.list()
	return control.DenialsAnswer{Denials: list}, nil
}

// forgetDenial serves control.ForgetDenial. What cannot be recorded is not lifted.
func (s *Session) forgetDenial(_ context.Context, req control.ForgetRequest) (control.ForgetAnswer, error) {
	a := control.ForgetAnswer{Forgotten: []control.Denial{}}
	which, err := s.denials.find(req)
	if err != nil {
		return a, err
	}
	var bad error
	for _, one := range which {
		detail := fmt.Sprintf("subject %s may ask again: %s", one.Subject, one.Path)
		if err := s.reg.Note(names.OpSet, "", guard.Allowed, detail); err != nil {
			bad = errors.Join(bad, fmt.Errorf("not lifted, because it cannot be recorded: %w", err))
			break
		}
		if s.denials.forget(one.ID) {
			a.Forgotten = append(a.Forgotten, one)
		}
	}
	return a, bad
}
