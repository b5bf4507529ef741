package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard"
)

// Queue is an Asker whose questions wait until a person answers them over the control socket
// or the web page. It keeps at most maxWaiting questions, and maxPerSubject of one subject. For a
// further question Ask returns ErrUnanswered at once.
type Queue struct {
	// By is recorded as the Answer.By of an answer that has none.
	By string

	mu      sync.Mutex // guards the fields below
	waiting map[string]*pending
	changed chan struct{} // closed at the next change; nil: nobody waits for it
}

type pending struct {
	q      Question
	answer chan Answer
}

// Bounds of a Queue. maxPerSubject counts all sessions of a subject, so that one subject
// leaves room for others.
const (
	maxWaiting    = 100
	maxPerSubject = maxWaiting / 4
)

// Ask implements Asker.
func (u *Queue) Ask(ctx context.Context, q *Question) (Answer, error) {
	w := &pending{q: *q, answer: make(chan Answer, 1)}
	w.q.Items = slices.Clone(q.Items)
	u.mu.Lock()
	if u.waiting == nil {
		u.waiting = map[string]*pending{}
	}
	if len(u.waiting) >= maxWaiting || u.countLocked(q.Subject) >= maxPerSubject {
		u.mu.Unlock()
		return Answer{}, ErrUnanswered
	}
	u.waiting[q.ID] = w
	u.announceLocked()
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		delete(u.waiting, q.ID)
		u.announceLocked()
		u.mu.Unlock()
	}()
	select {
	case a := <-w.answer:
		return a, nil
	case <-ctx.Done():
		return Answer{}, ErrUnanswered
	}
}

// countLocked returns how many questions wait in all sessions of a subject. For a subject
// without a name it returns 0, because its sessions may be different servers.
func (u *Queue) countLocked(who guard.Subject) (n int) {
	for _, w := range u.waiting {
		if who != "" && w.q.Subject.WithoutSession() == who.WithoutSession() {
			n++
		}
	}
	return n
}

// List returns the questions that wait, the oldest first.
func (u *Queue) List() []Question {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]Question, 0, len(u.waiting))
	for _, w := range u.waiting {
		all = append(all, w.q)
	}
	slices.SortFunc(all, func(a, b Question) int {
		if c := a.Asked.Compare(b.Asked); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// ErrNoQuestion means that no such question waits: it was answered, is too old, or was withdrawn.
var ErrNoQuestion = errors.New("no such question; it was answered already, nobody answered in time, or whoever asked waits no more")

// Answer decides a question. A question can be answered only once.
func (u *Queue) Answer(id string, a Answer) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.waiting[id]
	if w == nil {
		return ErrNoQuestion
	}
	delete(u.waiting, id)
	u.announceLocked()
	if a.By == "" {
		a.By = u.By
	}
	w.answer <- a // never blocks: the channel has room for one answer, and no other call finds w
	return nil
}

// Changed returns a channel that is closed when the next question comes or goes.
func (u *Queue) Changed() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.changed == nil {
		u.changed = make(chan struct{})
	}
	return u.changed
}

func (u *Queue) announceLocked() {
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}
