package broker

import (
	"context"
	"testing"

	"github.com/rootsfs/rootsfs/vfs/watch"
)

// A watch that files/unwatch has taken sends no event that the watch has ended: that event could
// come after the answer.
func TestNoEndedEventAfterUnwatch(t *testing.T) {
	for _, unwatched := range []bool{false, true} {
		l := newLab(t, nil)
		s := l.b.Session("")
		w := &sessionWatch{s: s, id: NewID(), sending: make(chan struct{}, 1)}
		s.watches[w.id] = w
		if unwatched {
			s.removeWatch(w.id)
		}
		w.send(context.Background(), &watch.Event{Ended: true})
		if sent := s.Stats().Notified == 1; sent == unwatched {
			t.Errorf("unwatched %v: sent %v", unwatched, sent)
		}
		s.Close()
	}
}
