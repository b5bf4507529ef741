package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"time"
)

// Owners may give orders at the same time, and some keepers may not answer. An order is given in
// two steps, so that an order with a higher number contains every confirmed order with a lower one.
// First a majority of the keepers promises a number, and reports its newest orders: from then on
// these keepers take no order with a lower number. Then the owner makes the new order from the newest
// reported order, and a majority of the keepers takes the new order.

// promise is the number that a keeper has promised to an attempt at an order.
type promise struct {
	Number  uint64 `json:"n"`
	Attempt string `json:"attempt"`
}

func (d ServerDir) promised(to string) string { return d.file("keeper", "promised", to) }

// promisedTo returns the keeper's last promise about orders for a machine or all machines.
func (k *keeper) promisedTo(to string) (p promise, err error) {
	err = readJSON(k.r.s.dir.promised(to), &p)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return p, err
}

// promises returns the numbers that the keeper has promised, by the recipients of the orders.
func (k *keeper) promises() (map[string]uint64, error) {
	list, err := store{k.r.s.dir.promised("")}.recipients()
	if err != nil {
		return nil, err
	}
	numbers := map[string]uint64{}
	for _, to := range list {
		p, err := k.promisedTo(to)
		if err != nil {
			return nil, err
		}
		numbers[to] = p.Number
	}
	return numbers, nil
}

// renounce promises each of the numbers to no attempt, unless the keeper has already promised a
// number that is at least as high. A restored keeper has lost promises. Without renounce, it could
// vote for an attempt although it had promised a higher number to another attempt. The other
// keepers of a majority know that higher number. The caller holds mu.
func (k *keeper) renounce(numbers map[string]uint64) error {
	for to, n := range numbers {
		if err := CheckName("a machine", to); err != nil && to != allMachines {
			return err
		}
		p, err := k.promisedTo(to)
		if err != nil {
			return err
		}
		if n <= p.Number {
			continue
		}
		if err := writeJSON(k.r.s.dir.promised(to), promise{n, "restored"}); err != nil {
			return err
		}
	}
	return nil
}

// promise makes want the keeper's promise if the number of want is higher than the number of the
// last promise and the number of the keeper's order h. It returns the promise that is then in
// force. An error is returned if the number is not usable. The caller holds mu.
func (k *keeper) promise(to string, want promise, h signedOrder) (promise, error) {
	p, err := k.promisedTo(to)
	if err == nil && !isUsable(want.Number) {
		err = errNumber
	}
	if err != nil || want.Number <= max(p.Number, h.Number) {
		return p, err
	}
	if err := writeJSON(k.r.s.dir.promised(to), want); err != nil {
		return p, err
	}
	// The mark shows that a copy of the directory without the promise is older.
	return want, k.r.s.dir.writeMark(k.heads())
}

// accept keeps the order of a request if the request's attempt has the keeper's promise. It returns
// the order that the keeper then has, and reports whether this is the order of the request. The
// caller holds mu.
func (k *keeper) accept(c *Charter, q orderRequest, h signedOrder) (signedOrder, bool, error) {
	p, err := k.promisedTo(q.For)
	if err != nil {
		return h, false, err
	}
	next, err := openStanding(q.Order, c, q.For)
	if err != nil || p != (promise{next.Number, q.Attempt}) {
		return h, false, err // another attempt was promised a higher number
	}
	h, err = k.keep(c, q.For, q.Order)
	return h, bytes.Equal(h.signed, q.Order), err
}

// orderTries bounds the attempts: other owners may give orders at the same time.
const orderTries = 16

// place applies change to the newest order, and has the keepers keep the result as the next order.
// An error means that the next order may not hold.
func (o *Owner) place(ctx context.Context, to string, change func(*Standing)) (signedOrder, error) {
	seen := uint64(0)
	for try := range orderTries {
		newest, err := o.copies.load(o.Charter, to)
		if err != nil {
			return signedOrder{}, ownCopyError(err)
		}
		want := promise{nextNumber(max(newest.Number, seen)), rand.Text()}
		got, err := o.order(ctx, orderRequest{For: to, Promise: want.Number, Attempt: want.Attempt})
		if err != nil {
			return signedOrder{}, err
		}
		granted := 0
		for _, a := range got {
			if isUsable(a.Promised.Number) { // a hostile keeper can name a number that no other keeper promises
				seen = max(seen, a.Promised.Number)
			}
			if a.Promised == want {
				granted++
			}
			if newest, err = a.newer(o.Charter, to, newest); err != nil {
				return signedOrder{}, err
			}
		}
		if granted >= o.Charter.majority() {
			h, err := o.propose(ctx, to, want, newest, change)
			if h.Number > 0 || err != nil {
				return h, err
			}
		}
		time.Sleep(mathrand.N(time.Duration(try+1) * 10 * time.Millisecond))
	}
	return signedOrder{}, errors.New("other owners give orders at the same time: give yours again")
}

// propose makes an order with the number of a promise, and has the keepers take it. It returns the
// zero signedOrder if no majority takes the order: keepers may have promised a higher number
// meanwhile.
func (o *Owner) propose(ctx context.Context, to string, p promise, newest signedOrder, change func(*Standing)) (signedOrder, error) {
	next, err := newest.next(to, p.Number, change)
	if err != nil {
		return signedOrder{}, err
	}
	data, err := seal(o.key, o.Names.ID, kindStanding, next)
	if err != nil {
		return signedOrder{}, err
	}
	got, err := o.order(ctx, orderRequest{For: to, Order: data, Attempt: p.Attempt})
	if err != nil {
		return signedOrder{}, fmt.Errorf("the order may not hold: %w", err)
	}
	// A keeper that has the order from a machine, and not from this attempt, does not count: it may
	// have promised a higher number to another attempt.
	taken := 0
	for _, a := range got {
		if a.Taken {
			taken++
		}
	}
	if taken < o.Charter.majority() {
		return signedOrder{}, nil
	}
	h := signedOrder{next, data, o.key.Public()}
	return h, o.copies.save(h)
}

// newer returns the order of a keeper's answer if that is newer than old, and otherwise old. It ignores
// an order that a former owner has signed, and one with an unusable number.
func (a orderAnswer) newer(c *Charter, to string, old signedOrder) (signedOrder, error) {
	if a.Order == nil {
		return old, nil
	}
	h, err := openStanding(a.Order, c, to)
	switch {
	case errors.Is(err, errSigner): // a former owner's order, which was replaced when that owner was removed
		return old, nil
	case err == nil && !isUsable(h.Number): // no party takes it
		return old, nil
	case err != nil:
		return old, fmt.Errorf("a keeper's copy of an order: %w", err)
	case h.Number > old.Number:
		return h, nil
	}
	return old, nil
}

// current returns the newest order that a keeper or this owner has. If a keeper answers with another
// order, current sends the newest one to all keepers.
func (o *Owner) current(ctx context.Context, to string) (signedOrder, error) {
	newest, err := o.copies.load(o.Charter, to)
	if err != nil {
		return signedOrder{}, ownCopyError(err)
	}
	got, err := o.order(ctx, orderRequest{For: to})
	if err != nil {
		return signedOrder{}, err
	}
	for _, a := range got {
		if newest, err = a.newer(o.Charter, to, newest); err != nil {
			return signedOrder{}, err
		}
	}
	for _, a := range got {
		if newest.signed != nil && !bytes.Equal(a.Order, newest.signed) {
			_, err = o.order(ctx, orderRequest{For: to, Order: newest.signed, Kept: true})
			return newest, err
		}
	}
	return newest, nil
}

// askOrder sends a request about an order to all keepers. It returns the answers of a majority, by the
// keepers' keys.
func (o *Owner) askOrder(ctx context.Context, q orderRequest) (map[string]orderAnswer, error) {
	q.Charter = o.Charter.Number
	got, err := askKeepers[orderRequest, orderAnswer](ctx, o, o.Names.confirm(), kindOrder, q)
	if err != nil {
		return nil, err
	}
	return got.of, got.requireMajority(o.Charter)
}
