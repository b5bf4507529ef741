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

// badParams is a request that is refused before anything is looked at, or, with
// the gate's error, for what the gate says of its parameters.
type badParams struct {
	text string
	err  error // nil: the gate never saw it
}

func (e badParams) Error() string { return e.text }
func (e badParams) Unwrap() error { return e.err }

// hinted adds to an error what the peer can do instead, and what it may want to
// know: the present state of a file in conflict, the limit it met.
type hinted struct {
	err   error
	hint  string
	etag  string
	limit int64
	// final: the same request will never succeed, although others of its kind
	// may.
	final bool
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// rpcError is an error that already has its JSON-RPC form.
type rpcError struct{ wire wire.Error }

func (e *rpcError) Error() string { return e.wire.Message }

// maxEchoed is the longest path that an error repeats, bytes.
const maxEchoed = 8 << 10

// wireError is the one place where errors become what a peer sees. Nothing but
// root-relative paths and texts of ours gets out, and what a text repeats of the
// request does not make it long.
func wireError(err error) *wire.Error {
	e := spelledOut(err)
	e.Message = names.Brief(e.Message)
	return e
}

func spelledOut(err error) *wire.Error {
	var bad badParams
	if errors.As(err, &bad) {
		return &wire.Error{Code: wire.CodeInvalidParams, Message: bad.text}
	}
	var rpc *rpcError
	if errors.As(err, &rpc) {
		e := rpc.wire
		return &e
	}
	ge := guardError(err)
	if ge.Kind == names.Hidden {
		// What is hidden is not there, also for who reads reasons.
		ge = &guard.Error{Path: ge.Path, Kind: names.NotExist}
	}
	data := wire.ErrorData{
		Code: ge.Kind.Code(), Reason: ge.Kind.String(),
		Retryable:    retryable(ge.Kind),
		RetryAfterMs: ge.RetryAfter.Milliseconds(),
		Limit:        ge.Limit,
	}
	if len(ge.Path.Rel()) <= maxEchoed {
		data.Path = ge.Path.String()
	}
	if data.Retryable && ge.Kind == names.Rate && data.RetryAfterMs == 0 {
		data.RetryAfterMs = 1 // less than a millisecond is still a time
	}
	var h *hinted
	if errors.As(err, &h) {
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
		number = wire.CodeInternal // seed 000, "Internal errors"
	}
	return &wire.Error{Code: number, Message: msg, Data: raw}
}

// guardError finds the error of the gate in err, or makes one: of a context that
// ended, of a bare errno, of anything else.
func guardError(err error) *guard.Error {
	var ge *guard.Error
	if errors.As(err, &ge) {
		return ge
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &guard.Error{Kind: names.Timeout}
	case errors.Is(err, context.Canceled):
		return &guard.Error{Kind: names.Timeout, Err: errors.New("cancelled")}
	case errors.As(err, &errno):
		return &guard.Error{Kind: names.KindOf(errno), Err: errno}
	}
	return &guard.Error{Kind: names.Internal}
}

// kindOf is the kind an error has on record. A bad parameter or an error that
// has its JSON-RPC form already is the request's fault.
func kindOf(err error) names.Kind {
	var bad badParams
	var rpc *rpcError
	if errors.As(err, &bad) || errors.As(err, &rpc) {
		return names.Invalid
	}
	return guardError(err).Kind
}

// reasonOf is what an error says without its operation and path.
func reasonOf(ge *guard.Error) string {
	return (&guard.Error{Kind: ge.Kind, Err: ge.Err, Limit: ge.Limit}).Error()
}

// retryable reports whether the same request can succeed later without anybody
// changing anything for it.
func retryable(k names.Kind) bool {
	switch k {
	case names.Rate, names.Timeout, names.Locked, names.Conflict:
		return true
	}
	return false
}

// busy is a refusal for want of room, which passes.
func busy(after time.Duration, what string) error {
	return &guard.Error{Kind: names.Rate, Err: errors.New(what), RetryAfter: after}
}

// invalid refuses a path or an argument whose form is right and whose value is
// not.
func invalid(text string) error {
	return &guard.Error{Kind: names.Invalid, Err: errors.New(text)}
}
