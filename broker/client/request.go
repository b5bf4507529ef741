package client

import (
	"context"
	"encoding/json"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// do sends one request, waits as the client asks and repeats it once where it
// asks for that, and decodes the result.
func do[R any](ctx context.Context, f *Files, method, name string, params any) (R, error) {
	var r R
	answer, err := f.request(ctx, method, name, params, nil)
	defer answer.release()
	if err != nil {
		return r, err
	}
	if err := jsonv2.Unmarshal(answer.result, &r); err != nil {
		return r, malformed(method, name, err)
	}
	return r, nil
}

func (f *Files) request(ctx context.Context, method, name string, params any, accept func(json.RawMessage)) (reply, error) {
	timeout := f.opts.Timeout
	if method == wire.Consent {
		timeout = f.opts.ConsentTimeout
	}
	once := func() (reply, error) {
		if !f.c.capability().Brokering {
			return reply{}, &NotSupportedError{What: "the client no longer declares roots.filesystemBrokering"}
		}
		// An earlier deadline of ctx stays the earlier one.
		ctx, stop := context.WithTimeout(ctx, timeout)
		defer stop()
		answer, err := f.c.call(ctx, method, params, accept)
		return answer, failure(method, name, err)
	}
	answer, err := once()
	wait, again := retryAfter(err)
	if !again || wait > f.opts.MaxRetryWait {
		return answer, err
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return answer, err // it would be too late: the refusal says more than a timeout
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return answer, err
	case <-t.C:
		return once()
	}
}
