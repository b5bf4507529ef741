package mount

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// tellRecorder records the notifications of a delivery. The notifications of a directory in hold
// wait until the directory's channel is closed.
type tellRecorder struct {
	mu   sync.Mutex // guards the fields below
	got  map[*node][]string
	hold map[*node]chan struct{}
}

func (s *tellRecorder) wait(n *node) {
	s.mu.Lock()
	c := s.hold[n]
	s.mu.Unlock()
	if c != nil {
		<-c
	}
}

func (s *tellRecorder) note(n *node, what string) {
	s.mu.Lock()
	s.got[n] = append(s.got[n], what)
	s.mu.Unlock()
}

func (s *tellRecorder) of(n *node) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got[n])
}

func watchedNode() *node {
	n := &node{}
	n.extra().watch.Store(&dirWatch{})
	return n
}

func (n *node) isStuck() bool { return n.ext.Load().watch.Load().stuck.Load() }

func newTellRecorder(stuck func(*node)) (*tellRecorder, *delivery) {
	s := &tellRecorder{got: map[*node][]string{}, hold: map[*node]chan struct{}{}}
	d := newDelivery(
		func(ev watch.SourceEvent) { n := ev.Dir.(*node); s.wait(n); s.note(n, ev.Name) },
		func(n *node) { s.wait(n); s.note(n, "all") }, stuck)
	d.slow = time.Millisecond
	return s, d
}

// R050: directories whose notifications wait do not delay others, for any number of events. When
// the notifications can go on, the waiting events are sent, or one event for all if there are too
// many. Then the directories are no longer stuck.
func TestStuckDirectoriesHoldUpNoOthers(t *testing.T) {
	var warned atomic.Int64
	s, d := newTellRecorder(func(*node) { warned.Add(1) })
	var stuck []*node
	release := make(chan struct{})
	for range 3 * workers {
		n := watchedNode()
		stuck = append(stuck, n)
		s.hold[n] = release
	}
	for _, n := range stuck {
		for range 3 {
			d.enqueue(n, watch.SourceEvent{Dir: n, Name: "x"})
		}
	}
	free := watchedNode()
	for i := range 100 {
		d.enqueue(free, watch.SourceEvent{Dir: free, Name: fmt.Sprint(i)})
	}
	testkit.Until(t, "the free directory's events", func() bool { return len(s.of(free)) == 100 })
	testkit.Until(t, "all stuck", func() bool { return d.stuckDirs() == len(stuck) })
	testkit.Until(t, "the owner is told", func() bool { return int(warned.Load()) >= len(stuck) })
	for _, n := range stuck {
		if !n.isStuck() {
			t.Error("a directory whose notifications wait is not marked as stuck")
		}
		for range 2 * maxQueuedEvents {
			d.enqueue(n, watch.SourceEvent{Dir: n, Name: "more"})
		}
		d.mu.Lock()
		if q := d.queues[n]; len(q.events) != 0 || !q.all {
			t.Errorf("%d events wait for a stuck directory", len(q.events))
		}
		d.mu.Unlock()
	}
	calm := watchedNode() // will be stuck, with few events
	s.mu.Lock()
	s.hold[calm] = release
	s.mu.Unlock()
	for _, name := range []string{"a", "b", "c"} {
		d.enqueue(calm, watch.SourceEvent{Dir: calm, Name: name})
	}
	testkit.Until(t, "one more stuck", calm.isStuck)
	d.enqueue(calm, watch.SourceEvent{Dir: calm, Name: "d"})
	close(release)
	testkit.Until(t, "none stuck", func() bool { return d.stuckDirs() == 0 })
	for _, n := range stuck {
		if got := s.of(n); n.isStuck() || !slices.Equal(got, []string{"x", "all"}) {
			t.Errorf("stuck %v; told %v", n.isStuck(), got)
		}
	}
	if got := s.of(calm); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("told %v", got)
	}
	testkit.Until(t, "no work is left", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.queues) == 0 && len(d.active) == 0 && d.running == 0
	})
	d.enqueue(free, watch.SourceEvent{Dir: free, Name: "after"})
	testkit.Until(t, "an event after the directories were stuck", func() bool { return len(s.of(free)) == 101 })
}

// The events of one directory keep their order, even if several workers send them. If too many
// events wait, they become a single event: anything may have changed.
func TestDeliveryKeepsTheOrderOfADirectory(t *testing.T) {
	s, d := newTellRecorder(func(*node) {})
	d.slow = time.Hour
	nodes := []*node{watchedNode(), watchedNode(), watchedNode(), watchedNode(), watchedNode(), watchedNode()}
	const events = maxQueuedEvents / 2
	for i := range events {
		for _, n := range nodes {
			d.enqueue(n, watch.SourceEvent{Dir: n, Name: fmt.Sprint(i)})
		}
	}
	for _, n := range nodes {
		testkit.Until(t, "all events", func() bool { return len(s.of(n)) == events })
		for i, name := range s.of(n) {
			if name != fmt.Sprint(i) {
				t.Fatalf("event %d is %s", i, name)
			}
		}
	}
	held := watchedNode()
	release := make(chan struct{})
	s.hold[held] = release
	for i := range maxQueuedEvents + 2 {
		d.enqueue(held, watch.SourceEvent{Dir: held, Name: fmt.Sprint(i)})
	}
	close(release)
	testkit.Until(t, "one event for too many", func() bool { got := s.of(held); return len(got) > 0 && got[len(got)-1] == "all" })
}
