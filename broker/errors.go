package broker

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// badParams refuses a request for its parameters.
type badParams struct {
	text string
	err  error // error of the gate; nil: the request did not reach the gate
}

func (e badParams) Error() string { return e.text }
func (e badParams) Unwrap() error { return e.err }

// hinted adds to an error a remedy for the peer, the present etag of a file in conflict,
// and the limit that was reached.
type hinted struct {
	err   error
	hint  string
	etag  string
	limit int64
	final bool // this request will never succeed, although other requests with the same error may
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// invalidRequest refuses a frame that is not a request of JSON-RPC.
func invalidRequest(text string) error {
	return &wire.Error{Code: wire.CodeInvalidRequest, Message: text}
}

// maxEchoed is the longest path that an error repeats, in bytes.
const maxEchoed = 8 << 10

// wireError is the one place that turns errors into errors for a peer. Such an error contains
// root-relative paths, this program's own texts and parts of the request, and nothing else. Its
// message is short, even if the request is long.
func wireError(err error) *wire.Error {
	var e *wire.Error
	if bad, ok := errors.AsType[badParams](err); ok {
		e = &wire.Error{Code: wire.CodeInvalidParams, Message: bad.text}
	} else if own, ok := errors.AsType[*wire.Error](err); ok {
		copied := *own
		e = &copied
	} else {
		e = filesError(err)
	}
	e.Message = names.Brief(e.Message)
	return e
}

// filesError turns an error of the gate into an error of the protocol, with its code.
func filesError(err error) *wire.Error {
	ge := guardError(err)
	if ge.Kind == names.Hidden {
		// A hidden name is indistinguishable from a missing one.
		ge = &guard.Error{Path: ge.Path, Kind: names.NotExist}
	}
	data := wire.ErrorData{
		Code: ge.Kind.Code(), Reason: ge.Kind.String(),
		Retryable:    ge.Kind.Retryable(),
		RetryAfterMs: ge.RetryAfter.Milliseconds(),
		Limit:        ge.Limit,
	}
	if len(ge.Path.Rel()) <= maxEchoed {
		data.Path = ge.Path.String()
	}
	if data.Retryable && ge.Kind == names.Rate && data.RetryAfterMs == 0 {
		data.RetryAfterMs = 1 // the wait is less than a millisecond, and 0 would be left out
	}
	if h, ok := errors.AsType[*hinted](err); ok {
		data.Hint, data.ETag = h.hint, h.etag
		data.Retryable = data.Retryable && !h.final
		if h.limit > 0 {
			data.Limit = h.limit
		}
	}
	raw, _ := json.Marshal(data) // strings and numbers only: cannot fail
	msg := reasonOf(ge)          // with the cause, where it says more (R125)
	if data.Path != "" {
		msg = names.Escape(data.Path) + ": " + msg
	}
	if data.Hint != "" {
		msg += "; " + data.Hint
	}
	number := wire.Number(data.Code)
	if ge.Kind == names.Internal {
		number = wire.CodeInternal // SEP-1708, "Internal errors"
	}
	return &wire.Error{Code: number, Message: msg, Data: raw}
}

// guardError returns the error of the gate in err. If there is none it makes one: the end of a
// context becomes Timeout, an errno gets its kind, and anything else is Internal.
func guardError(err error) *guard.Error {
	if ge, ok := errors.AsType[*guard.Error](err); ok {
		return ge
	}
	errno, isErrno := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &guard.Error{Kind: names.Timeout}
	case errors.Is(err, context.Canceled):
		return &guard.Error{Kind: names.Timeout, Err: errors.New("cancelled")}
	case isErrno:
		return &guard.Error{Kind: names.KindOf(errno), Err: errno}
	}
	return &guard.Error{Kind: names.Internal}
}

// kindOf returns the kind of an error for its record. A bad parameter or an error that
// has its JSON-RPC form already is the request's fault.
func kindOf(err error) names.Kind {
	if errors.As(err, new(badParams)) || errors.As(err, new(*wire.Error)) {
		return names.Invalid
	}
	return guardError(err).Kind
}

// reasonOf returns the text of an error without its operation and path.
func reasonOf(ge *guard.Error) string {
	return (&guard.Error{Kind: ge.Kind, Err: ge.Err, Limit: ge.Limit}).Error()
}

// busy refuses a request that may succeed after a while.
func busy(after time.Duration, what string) error {
	return &guard.Error{Kind: names.Rate, Err: errors.New(what), RetryAfter: after}
}

// invalid refuses a path or an argument whose form is right and whose value is
// not.
func invalid(text string) error {
	return &guard.Error{Kind: names.Invalid, Err: errors.New(text)}
}
