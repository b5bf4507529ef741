package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A fleet can have several keepers. Each has a server of its own, or all use one external server. The
// keepers do not talk to each other. A majority of them decides: an order holds when a majority has
// confirmed it, and a machine needs the leases of a majority. Any two majorities have a keeper in common,
// and that keeper gives no lease to a machine without the order.

// majority returns how many keepers make a majority.
func (c *Charter) majority() int { return len(c.Keepers)/2 + 1 }

// servers returns the addresses of the fleet's servers. joined is the address by which the party joined.
func (c *Charter) servers(joined Address) []Address {
	if len(c.Servers) == 0 {
		return []Address{joined}
	}
	list := make([]Address, 0, len(c.Servers))
	for _, server := range c.Servers {
		list = append(list, Address{server, joined.Pin}) // all servers have the fleet's authority
	}
	return list
}

// dialAll connects to all servers at the same time. It returns the connections in the order of the
// servers, without those that dial could not make. If reconnects is false, dialAll does not wait long
// for the other servers when one has answered.
func dialAll(list []Address, reconnects bool, dial func(Address) (*Bus, error)) ([]*Bus, error) {
	type outcome struct {
		i   int
		b   *Bus
		err error
	}
	done := make(chan outcome, len(list))
	for i, to := range list {
		go func() {
			b, err := dial(to)
			done <- outcome{i, b, err}
		}()
	}
	all := make([]*Bus, len(list))
	var errs []error
	var late <-chan time.Time
	left := len(list)
	for ; left > 0; left-- {
		select {
		case o := <-done:
			all[o.i], errs = o.b, append(errs, o.err)
			if o.err == nil && !reconnects && late == nil {
				late = time.After(4 * restTime)
			}
			continue
		case <-late:
		}
		break
	}
	go func() {
		for range left {
			if o := <-done; o.err == nil {
				o.b.Close()
			}
		}
	}()
	all = slices.DeleteFunc(all, func(b *Bus) bool { return b == nil })
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// How long the other keepers may take to answer.
const (
	restTime = 250 * time.Millisecond // after a majority has answered
	mostTime = 3 * time.Second        // after the first one has answered
)

// answers holds the answers of keepers to one request, by their keys.
type answers[T any] struct {
	of      map[string]T
	refused error // of a keeper that refused the request
	errNone error // why nobody answered
}

// gather sends a request over each connection, and returns the keepers' answers. An answer that no
// keeper of the charter has signed does not count. gather returns at the first of these times:
//
//   - when all keepers that the request reaches have answered;
//   - when no connection is left that can bring an answer;
//   - restTime after a majority has answered;
//   - mostTime after the first keeper has answered;
//   - when ctx ends.
func gather[Out any](ctx context.Context, all []*Bus, c *Charter, subject, kind, number string, data []byte) answers[Out] {
	a := answers[Out]{of: map[string]Out{}, errNone: errors.New("the fleet's keeper does not answer; see that rootsfs fleet serve runs")}
	heard, lost := make(chan *nats.Msg, 4*maxParties*len(all)), make(chan struct{}, len(all))
	refusals, silent := map[string]bool{}, 0
	for _, b := range all {
		if !b.Conn.IsConnected() { // the request would be sent later
			silent++
			continue
		}
		connected, cancel := b.whileConnected(ctx)
		defer cancel()
		context.AfterFunc(connected, func() { lost <- struct{}{} })
		inbox := b.Conn.NewInbox()
		sub, err := b.Conn.ChanSubscribe(inbox, heard)
		if err == nil {
			defer func() { _ = sub.Unsubscribe() }()
			err = b.Conn.PublishRequest(subject, inbox, data)
		}
		if err != nil {
			a.errNone = err
		}
	}
	most := len(c.Keepers)
	if len(c.Servers) == len(c.Keepers) { // each keeper has a server of its own
		most = min(most, len(all)-silent)
	}
	var rest, last <-chan time.Time
	for len(a.of)+len(refusals) < most && silent < len(all) {
		select {
		case m := <-heard:
			if len(m.Data) == 0 { // the server says that no keeper is there
				silent++
				continue
			}
			by, out, err := openReply[Out](m.Data, c.Fleet, kind, number, c.isKeeper)
			switch {
			case by == "": // no keeper has signed it
			case err != nil:
				a.refused, refusals[by] = err, true
			default:
				a.of[by] = out
			}
			if n := len(a.of) + len(refusals); n >= c.majority() && rest == nil {
				rest = time.After(restTime)
			} else if n > 0 && last == nil {
				last = time.After(mostTime)
			}
		case <-lost:
			silent++
		case <-rest:
			return a
		case <-last:
			return a
		case <-ctx.Done():
			return a
		}
	}
	return a
}

// requireOne returns an error unless a keeper has answered without a refusal.
func (a answers[T]) requireOne() error {
	switch {
	case len(a.of) > 0:
		return nil
	case a.refused != nil:
		return a.refused
	}
	return a.errNone
}

// requireMajority returns an error unless a majority has answered without a refusal.
func (a answers[T]) requireMajority(c *Charter) error {
	switch {
	case len(a.of) >= c.majority():
		return nil
	case a.refused != nil:
		return a.refused
	case len(c.Keepers) == 1:
		return a.errNone
	}
	return fmt.Errorf("%d of %d keepers answer, and %d are needed; see that rootsfs fleet serve runs there", len(a.of), len(c.Keepers), c.majority())
}

// openReply is readReply, but also returns the keeper that has signed the answer; "": no keeper has
// signed it, or it answers another request.
func openReply[Out any](data []byte, fleet, kind, number string, isKeeper func(string) bool) (by string, out Out, err error) {
	var a reply[json.RawMessage]
	by, err = openSigned(data, fleet, kind+replySuffix, isKeeper, &a)
	switch {
	case err != nil:
		return "", out, fmt.Errorf("the answer is not the keeper's: %w", err)
	case a.Number != number:
		return "", out, errors.New("the answer is to another request")
	case a.Refused != "":
		return by, out, refused("%s", names.EscapeQuoted(a.Refused))
	}
	return by, out, json.Unmarshal(a.Body, &out)
}

// askKeepers sends every keeper a request that the owner signs, and returns their answers.
func askKeepers[In, Out any](ctx context.Context, o *Owner, subject, kind string, in In) (answers[Out], error) {
	q := request[In]{rand.Text(), in}
	data, err := seal(o.key, o.Names.ID, kind, q)
	if err != nil {
		return answers[Out]{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	return gather[Out](ctx, o.buses, o.Charter, subject, kind, q.Number, data), nil
}
