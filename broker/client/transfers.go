package client

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// A client that executes files/* bounds the memory of one session (rootsfs: 64 MiB,
// contents counted twice) and refuses requests beyond it. Many large transfers at a time
// would be refused again and again, so they take turns here, where waiting costs nothing.
const (
	maxTransfers  = 24 << 20 // bytes of the large transfers under way
	smallTransfer = 64 << 10 // bytes up to which a transfer does not count
)

// transfers bounds the large transfers of a connection. They are served in their order.
type transfers struct{ bytes *semaphore.Weighted }

func newTransfers() transfers { return transfers{semaphore.NewWeighted(maxTransfers)} }

// acquire waits for room for a transfer of n bytes; release gives the room back.
func (t transfers) acquire(ctx context.Context, n int64) (release func(), err error) {
	if n <= smallTransfer {
		return func() {}, nil
	}
	n = min(n, maxTransfers)
	if err := t.bytes.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { t.bytes.Release(n) }, nil
}
