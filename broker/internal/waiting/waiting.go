// Package waiting hands answers to those who wait for them.
//
// # Promises
//
// Of several answers to one question the first is taken, one which nobody waits for is
// nobody's, and delivering does not wait.
//
// # Not promised
//
// Who waits bounds that by itself: a question stays open until it is closed.
package waiting

import "sync"

// List is of questions whose answers are of a type T. The zero List has none, and
// may be used concurrently.
type List[T any] struct {
	mu   sync.Mutex // guards the fields below
	open map[string]chan T
	over bool
}

// Open makes room for the answer to a question, which comes through the channel; ok
// is false after End.
func (l *List[T]) Open(id string) (answer <-chan T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, false
	}
	if l.open == nil {
		l.open = map[string]chan T{}
	}
	ch := make(chan T, 1)
	l.open[id] = ch
	return ch, true
}

// Close forgets a question.
func (l *List[T]) Close(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

// Deliver gives an answer to whoever waits for it; ok is false if nobody does.
func (l *List[T]) Deliver(id string, answer T) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := l.open[id]
	if ch == nil {
		return false
	}
	delete(l.open, id)
	ch <- answer
	return true
}

// End answers all that wait, and lets nobody wait any more.
func (l *List[T]) End(answer T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, ch := range l.open {
		ch <- answer
	}
	l.open = nil
}
