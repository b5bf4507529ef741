package client

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/semaphore"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// request is one request of files/*.
type request struct {
	method string
	path   string // checked before anything is sent, and named in errors
	params any
	size   int64 // bytes of content in the request or in its result
}

// do sends a request and decodes its result.
func do[R any](ctx context.Context, f *Files, r request) (result R, err error) {
	err = f.request(ctx, r, func(raw []byte) error { return json.Unmarshal(raw, &result) })
	return result, err
}

// request checks the path of r, sends r and passes the result to decode. decode must not keep the
// result. If the client refuses r for now and says when to repeat it, and the wait is not too
// long, request sends r once more.
func (f *Files) request(ctx context.Context, r request, decode func(result []byte) error) error {
	if err := f.check(r.method, r.path); err != nil {
		return err
	}
	release, err := f.c.transfers.acquire(ctx, r.size)
	if err != nil {
		return failure(r.method, r.path, err)
	}
	defer release()
	answer, err := f.send(ctx, r)
	if wait, again := retryAfter(err); again && f.wait(ctx, wait) {
		answer, err = f.send(ctx, r)
	}
	if err != nil {
		return err
	}
	defer answer.release()
	if err := decode(answer.result); err != nil {
		return fault(r.method, r.path, names.IO, "the client's result is malformed: "+err.Error())
	}
	return nil
}

// send sends a request once.
func (f *Files) send(ctx context.Context, r request) (reply, error) {
	if !f.c.capability().Brokering {
		return reply{}, &NotSupportedError{What: "the client no longer declares roots.filesystemBrokering"}
	}
	timeout := f.opts.Timeout
	if r.method == wire.Consent {
		timeout = f.opts.ConsentTimeout
	}
	ctx, stop := context.WithTimeout(ctx, timeout) // an earlier deadline of ctx still holds
	defer stop()
	answer, err := f.c.call(ctx, r.method, r.params)
	return answer, failure(r.method, r.path, err)
}

// wait waits for d before a repetition. It reports false if d is too long or ctx ends first.
func (f *Files) wait(ctx context.Context, d time.Duration) bool {
	// Do not wait beyond the deadline: the refusal tells the caller more than a timeout would.
	if deadline, ok := ctx.Deadline(); d > f.opts.MaxRetryWait || ok && time.Until(deadline) < d {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// A client that executes files/* bounds the memory of one session (rootsfs: 64 MiB,
// contents counted twice) and refuses requests beyond this bound. Many large transfers at a time
// would be refused again and again, so they take turns here, where waiting costs nothing.
const (
	maxTransfers  = 24 << 20 // bytes of the large transfers under way
	smallTransfer = 64 << 10 // bytes up to which a transfer does not count
)

// transfers bounds the large transfers of a connection. Waiting transfers begin in the order in
// which they came.
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
