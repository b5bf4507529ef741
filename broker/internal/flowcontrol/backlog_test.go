package flowcontrol

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// sdk receives the messages of a Backlog.
type sdk struct {
	*Backlog
	probes []jsonrpc.ID
	done   chan struct{}
}

func newSDK(requests *Budget, canWait func() bool) *sdk {
	s := &sdk{done: make(chan struct{})}
	s.Backlog = NewBacklog(requests, canWait, func(m jsonrpc.Message) bool {
		s.probes = append(s.probes, m.(*jsonrpc.Request).ID)
		return true
	}, s.done)
	return s
}

// note admits a notification of n bytes, and then sends a probe if one is due.
func (s *sdk) note(n int) error {
	err := s.Admit(&jsonrpc.Request{Method: "notifications/x"}, n)
	s.Probe()
	return err
}

func always() bool { return true }

// One probe at a time follows notifications. The answer to the probe releases the notifications
// that the probe followed. A notification without room waits for that answer, and is dropped if
// no answer comes.
func TestBacklogNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(&Budget{Bytes: 100}, always)
		for range 3 {
			if err := s.note(30); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.probes) != 1 || !s.IsProbe(s.probes[0]) {
			t.Fatalf("%d probes", len(s.probes))
		}
		begun := time.Now()
		if err := s.note(30); err == nil || time.Since(begun) != time.Duration(MaxWait.Load()) {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		s.ReleaseAnswered(s.probes[0])
		if err := s.note(30); err != nil { // in the room of the first notification
			t.Fatal(err)
		}
		if len(s.probes) != 2 {
			t.Fatalf("%d probes, want a second for the three notifications that are left", len(s.probes))
		}
		time.AfterFunc(time.Second, func() { s.ReleaseAnswered(s.probes[1]) })
		begun = time.Now()
		if err := s.note(30); err != nil || time.Since(begun) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { close(s.done) })
		if err := s.note(99); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v at the end of the connection", err)
		}
	})
}

// A request keeps its room until it is answered. Its id cannot be used twice meanwhile.
func TestBacklogRequests(t *testing.T) {
	s := newSDK(&Budget{Count: 2}, nil)
	id := func(name string) jsonrpc.ID {
		id, err := jsonrpc.MakeID(name)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	call := func(name string) error { return s.Admit(&jsonrpc.Request{ID: id(name), Method: "ping"}, 10) }
	if err := call("a"); err != nil {
		t.Fatal(err)
	}
	if err := call("a"); !errors.Is(err, ErrDuplicateID) {
		t.Fatalf("an id that is in use: %v", err)
	}
	own, err := s.Reserve(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := call("b"); err == nil || errors.Is(err, ErrDuplicateID) {
		t.Fatalf("a third request: %v", err)
	}
	own.Release()
	s.ReleaseAnswered(id("a"))
	for _, name := range []string{"a", "b"} {
		if err := call(name); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.probes) != 0 || s.IsProbe(id("a")) {
		t.Errorf("%d probes", len(s.probes))
	}
}
