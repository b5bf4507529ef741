package events

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// A subscriber that does not read gets the last events later. The subscriber also gets the number of
// lost events, once. The number includes events that the publisher itself had lost.
func TestEventsAreBounded(t *testing.T) {
	var h Hub
	s := h.Subscribe(News{})
	defer s.Close()
	for i := range Backlog + 5 {
		h.Publish(control.Event{PID: int32(i)})
	}
	h.Publish(control.Event{Lost: 10})
	news, ok := s.Next(t.Context(), 0)
	if !ok || len(news.Events) != Backlog || news.Lost != 16 || news.Events[0].PID != 6 || news.Events[Backlog-1].Lost != 10 {
		t.Errorf("%d events from %d, %d lost, %v", len(news.Events), news.Events[0].PID, news.Lost, ok)
	}
	h.Publish(control.Event{PID: 7})
	if news, _ := s.Next(t.Context(), 0); len(news.Events) != 1 || news.Lost != 0 {
		t.Errorf("the next: %+v", news)
	}
}

// One Drain returns all changes and events since the last one. After Drain, the subscriber is not
// ready until there is more news.
func TestNewsIsDeliveredOnce(t *testing.T) {
	var h Hub
	s := h.Subscribe(News{Events: []control.Event{{PID: 1}}, Changed: State})
	defer s.Close()
	h.Mark(Waiting)
	h.Mark(Waiting)
	if news, ok := s.Next(t.Context(), 0); !ok || news.Changed != State|Waiting || len(news.Events) != 1 {
		t.Errorf("%+v, %v", news, ok)
	}
	h.Publish(control.Event{})
	<-s.Ready()
	h.Publish(control.Event{}) // the token is taken, but Drain returns both events
	if news, _ := s.Drain(); len(news.Events) != 2 {
		t.Errorf("%+v", news)
	}
	select {
	case <-s.Ready():
		t.Error("ready without news")
	default:
	}
}

// When a session ends, its readers still get the earlier events. A reader that has left gets
// nothing more.
func TestClose(t *testing.T) {
	var h Hub
	left, stays := h.Subscribe(News{}), h.Subscribe(News{})
	h.Publish(control.Event{Kind: "x"})
	left.Close()
	left.Close() // a second Close is harmless
	if news, ok := left.Next(t.Context(), 0); ok {
		t.Errorf("still subscribed: %+v", news)
	}
	h.Close()
	if news, ok := stays.Next(t.Context(), 0); !ok || len(news.Events) != 1 {
		t.Errorf("the end: %+v, %v", news, ok)
	}
	if news, ok := stays.Next(t.Context(), 0); ok {
		t.Errorf("after the end: %+v", news)
	}
	stays.Close()
	late := h.Subscribe(News{Changed: State})
	if news, ok := late.Next(t.Context(), 0); ok {
		t.Errorf("subscribed to a closed hub: %+v", news)
	}
}

// Next does not return news faster than the interval permits, and returns when its context or the
// subscription ends.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		s := h.Subscribe(News{Changed: State})
		start := time.Now()
		s.Next(t.Context(), time.Second)
		if d := time.Since(start); d != 0 {
			t.Errorf("the first came after %v", d)
		}
		h.Mark(State)
		if _, ok := s.Next(t.Context(), time.Second); !ok || time.Since(start) != time.Second {
			t.Errorf("the next came after %v, %v", time.Since(start), ok)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, ok := s.Next(ctx, time.Second); ok {
			t.Error("Next returned news after its context had ended")
		}
		go func() {
			time.Sleep(time.Minute)
			s.Close()
		}()
		if _, ok := s.Next(t.Context(), 0); ok {
			t.Error("Next returned news of a closed subscription")
		}
	})
}
