package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
)

// keyID returns a short name of a signing key, which is a token of a subject or the end of a file name.
func keyID(key string) string { return hashOf([]byte(key))[:16] }

// busTo returns the connection to the server of a keeper; nil: there is none.
func (c *Charter) busTo(keeper string, all []*Bus) *Bus {
	i := slices.Index(c.Keepers, keeper)
	for _, b := range all {
		if len(c.Servers) == 0 || i >= 0 && b.at.Server == c.Servers[i] {
			return b
		}
	}
	return nil
}

// errNotConnected says that a keeper cannot be asked.
var errNotConnected = errors.New("the keeper's server is not connected")

// askOneKeeper sends a request, which key signs, to one keeper, and returns that keeper's answer.
func askOneKeeper[In, Out any](ctx context.Context, key *Key, c *Charter, all []*Bus, keeper, subject, kind string, in In) (out Out, err error) {
	b := c.busTo(keeper, all)
	if b == nil || !b.Conn.IsConnected() { // the request would be sent later
		return out, errNotConnected
	}
	q := request[In]{rand.Text(), in}
	data, err := seal(key, c.Fleet, kind, q)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	got, err := b.request(ctx, subject, data)
	if err != nil {
		return out, err
	}
	return readReply[Out](got, c.Fleet, kind, q.Number, func(by string) bool { return by == keeper })
}
