package fleet

import (
	"context"
	"crypto/rand"
	"errors"
)

// isRecordKeeper reports whether the key is that of the keeper that has the records: the first of
// the charter. Keepers do not share records. While that one is away, records wait on the machines.
func (c *Charter) isRecordKeeper(by string) bool {
	return len(c.Keepers) > 0 && c.Keepers[0] == by
}

// askRecordKeeper sends a request over every connection, and returns the answer of the keeper that
// has the records. Others do not answer.
func askRecordKeeper[In, Out any](ctx context.Context, key *Key, c *Charter, all []*Bus, subject, kind string, in In) (out Out, err error) {
	q := request[In]{rand.Text(), in}
	data, err := Seal(key, c.Fleet, kind, q)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	type reply struct {
		data []byte
		err  error
	}
	replies, asked := make(chan reply, len(all)), 0
	for _, b := range all {
		if b.Conn.IsConnected() { // otherwise the request would be sent later
			asked++
			go func() {
				got, err := b.Request(ctx, subject, data)
				replies <- reply{got, err}
			}()
		}
	}
	err = errors.New("the fleet's server is not connected")
	for range asked {
		r := <-replies
		if r.err != nil {
			err = r.err
			continue
		}
		return readReply[Out](r.data, c.Fleet, kind, q.Number, c.isRecordKeeper)
	}
	return out, err
}

// askRecords is askRecordKeeper for an owner.
func askRecords[In, Out any](ctx context.Context, o *Owner, subject, kind string, in In) (Out, error) {
	return askRecordKeeper[In, Out](ctx, o.key, o.Charter, o.buses, subject, kind, in)
}
