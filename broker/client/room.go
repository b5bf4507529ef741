package client

import "context"

// A client that executes files/* bounds what it holds for one session (ours: 64
// MiB, contents counted twice) and refuses what is beyond it. Many large
// transfers at a time would meet that bound again and again, so they take turns
// here, where waiting costs nothing.
const (
	slot      = 1 << 20 // bytes
	slots     = 24
	unlimited = 64 << 10 // smaller transfers do not count
)

// room keeps the large transfers of a connection within slots.
type room struct {
	turn chan struct{} // held by who is taking slots, lest two wait for each other
	held chan struct{}
}

func newRoom() room {
	return room{turn: make(chan struct{}, 1), held: make(chan struct{}, slots)}
}

// take waits for room for n bytes; leave gives it back.
func (r *room) take(ctx context.Context, n int64) (leave func(), err error) {
	if n <= unlimited {
		return func() {}, nil
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.turn }()
	want, got := int(min((n+slot-1)/slot, slots)), 0
	leave = func() {
		for range got {
			<-r.held
		}
	}
	for ; got < want; got++ {
		select {
		case r.held <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
