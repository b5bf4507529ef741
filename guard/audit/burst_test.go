package audit

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// hooked is a sink that calls a function before each write.
type hooked struct {
	sink
	before *atomic.Pointer[func()]
}

func (h hooked) Write(p []byte) (int, error) {
	if f := h.before.Load(); f != nil {
		(*f)()
	}
	return h.sink.Write(p)
}

// A record without a reservation waits for room while the disk is slow. So the close of a file
// that was opened for reading is not lost when other programs fill the queue.
func TestBurstOfClosesIsRecorded(t *testing.T) {
	o := options(t)
	before := new(atomic.Pointer[func()])
	l, err := open(o, func(path string) (sink, error) {
		f, err := createFile(path)
		return hooked{f, before}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	closing := func(i int) guard.Record {
		r := allowed(t, fmt.Sprintf("%0200d", i))
		r.Op, r.Rights, r.Written = names.OpClose, 0, 1
		return r
	}
	model := closing(0)
	perQueue := queueLimit/int(lineBound(o.Session, &model)) + 1
	var rooms []int64
	for range 2 * perQueue {
		r := closing(0)
		room, err := l.Reserve(t.Context(), nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		rooms = append(rooms, room)
	}
	fill := func() { // fills the queue with records that have a reservation
		for i := range perQueue {
			r := closing(len(rooms)*perQueue + i)
			r.Room, rooms = rooms[0], rooms[1:]
			mustRecord(t, l, r)
		}
	}
	begun, write := make(chan struct{}), make(chan struct{})
	calls := 0
	hook := func() {
		switch calls++; calls {
		case 1:
			close(begun)
			<-write
		case 2: // the turn that the record waits for
			fill()
		}
	}
	before.Store(&hook)
	mustRecord(t, l, allowed(t, "first"))
	signal(l.wake)
	<-begun
	fill()
	done := make(chan error)
	go func() { done <- l.Record(closing(-1)) }()
	testkit.Until(t, "the record waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.want > 0
	})
	close(write)
	if err := <-done; err != nil {
		t.Errorf("the record of a close, with room on the disk: %v", err)
	}
	mustClose(t, l)
	if s := l.Status(); s.Lost != 0 {
		t.Errorf("%d records lost", s.Lost)
	}
	if rep := mustVerify(t, o); rep.Lost != 0 || len(ofOp(entries(t, o), "close")) != 2*perQueue+1 {
		t.Errorf("%d records lost, %d closes", rep.Lost, len(ofOp(entries(t, o), "close")))
	}
}
