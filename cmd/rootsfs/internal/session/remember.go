package session

import (
	"path/filepath"
	"sync"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// denials are what the owner denied and does not want to be asked again while
// the session lives: paths, and all that lies below, by subject.
type denials struct {
	mu   sync.Mutex // guards the field below
	list map[guard.Subject][]string
}

// maxDenials bounds what is remembered of one subject.
const maxDenials = 1000

// add remembers the items of a question.
func (d *denials) add(q *broker.Question) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list[q.Subject])+len(q.Items) > maxDenials {
		return invalid("more than %d denials of one server cannot be remembered; deny without remembering, or end the server", maxDenials)
	}
	if d.list == nil {
		d.list = map[guard.Subject][]string{}
	}
	for i := range q.Items {
		if path := placeOf(&q.Items[i]); !d.coversLocked(q.Subject, path) {
			d.list[q.Subject] = append(d.list[q.Subject], path)
		}
	}
	return nil
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
	for _, dir := range d.list[s] {
		if names.Under(path, dir) {
			return true
		}
	}
	return false
}

// problemDenied is why an item cannot be granted that was denied for good.
const problemDenied = "you denied it to this server for as long as the session lasts"

// withoutDenied is a question without hope for what was denied before; all
// reports that there is nothing else in it.
func (d *denials) withoutDenied(q *broker.Question) (left *broker.Question, all bool) {
	out := *q
	out.Items = append([]broker.Item{}, q.Items...)
	all = true
	for i := range out.Items {
		if d.covers(q.Subject, &out.Items[i]) {
			out.Items[i].Problem = problemDenied
		} else {
			all = false
		}
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
