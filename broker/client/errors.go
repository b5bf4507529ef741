package client

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ErrNotSupported means that the client lacks what a call needs: files/*, roots, or this
// method. Test for it with errors.Is.
var ErrNotSupported = errors.New("not supported by the client")

// NotSupportedError says what is missing, in words for a person.
type NotSupportedError struct{ What string }

func (e *NotSupportedError) Error() string { return e.What }

// Is makes errors.Is(err, ErrNotSupported) true.
func (e *NotSupportedError) Is(target error) bool { return target == ErrNotSupported }

// Reply is the client's error reply, with everything that *names.Error has no field for.
// errors.As finds the Reply in the error of a refused call. If this package itself refuses a
// request or a result, the Reply has only a Message, which is this package's.
type Reply struct {
	Number  int64          // JSON-RPC's error number
	Message string         // the client's words
	Data    wire.ErrorData // zero where the client sent none
	kind    names.Kind
}

func (r *Reply) Error() string {
	if r.Data.Hint != "" {
		return r.Message + " (" + r.Data.Hint + ")"
	}
	return r.Message
}

// Is makes errors.Is true for the error of package fs that has the same meaning.
func (r *Reply) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return r.kind.Code() == names.FileNotFound
	case fs.ErrExist:
		return r.kind == names.Exist
	case fs.ErrPermission:
		return r.kind.Code() == names.PermissionDenied
	case fs.ErrInvalid:
		return r.kind.About() == names.AboutRequest
	}
	return false
}

// ops says which operation a method is, for the Op of an error.
var ops = map[string]names.Op{
	wire.Consent: names.OpGrant, wire.Read: names.OpRead, wire.Write: names.OpReplace, wire.List: names.OpReaddir,
	wire.Create: names.OpCreate, wire.Delete: names.OpUnlink, wire.Rename: names.OpRename, wire.Watch: names.OpWatch,
	wire.Unwatch: names.OpClose, wire.Stat: names.OpGetattr, wire.Copy: names.OpCopyFileRange,
}

// kindOfReason is the inverse of names.Kind.String.
var kindOfReason = func() map[string]names.Kind {
	m := map[string]names.Kind{names.Other.String(): names.Other}
	for k := names.Other + 1; k.String() != names.Other.String(); k++ {
		m[k.String()] = k
	}
	return m
}()

// kindOfCode maps the protocol's seven codes to kinds, for a reply without a matching reason.
var kindOfCode = map[names.Code]names.Kind{
	names.FileNotFound: names.NotExist, names.PermissionDenied: names.Permission, names.InvalidPath: names.Invalid,
	names.IOError: names.IO, names.TimeoutCode: names.Timeout, names.ConcurrencyConflict: names.Conflict, names.QuotaExceeded: names.Quota,
}

// fault makes an error that does not come from the client: for a request that this package
// refuses, or a reply that breaks the protocol. With text "" the error has the text of its
// kind.
func fault(method, path string, kind names.Kind, text string) error {
	e := &names.Error{Op: ops[method], Kind: kind, Err: &Reply{Message: text, kind: kind}}
	e.Path, _ = names.ParsePath(path) // the zero path if it cannot be parsed
	return e
}

// failure turns an error of conn.call into the error that a caller sees.
func failure(method, path string, err error) error {
	if err == nil {
		return nil
	}
	e := &names.Error{Op: ops[method], Kind: names.IO, Err: err}
	e.Path, _ = names.ParsePath(path)
	var reply *jsonrpc.Error
	switch {
	case errors.As(err, &reply) && reply.Code == wire.CodeMethodNotFound:
		return &NotSupportedError{What: "the client does not know " + method}
	case reply != nil:
		return fromReply(e, reply)
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = names.Timeout
	case errors.Is(err, context.Canceled), errors.Is(err, ErrNoOpenRequest):
		e.Kind = names.Other
	}
	return e
}

// fromReply fills e from an error reply. If the reply's reason and code disagree, the code
// counts, because the set of codes is closed.
func fromReply(e *names.Error, reply *jsonrpc.Error) error {
	r := &Reply{Number: reply.Code, Message: names.Escape(reply.Message)}
	// Unknown fields are ignored: another client may send more.
	_ = json.Unmarshal(reply.Data, &r.Data)
	r.Data.Hint = names.Escape(r.Data.Hint)
	k, hasReason := kindOfReason[r.Data.Reason]
	byCode, hasCode := kindOfCode[r.Data.Code]
	switch {
	case hasCode && (!hasReason || k.Code() != r.Data.Code):
		k = byCode
	case !hasReason && !hasCode:
		k = kindOfNumber(reply.Code)
	}
	if p, err := names.ParsePath(r.Data.Path); err == nil {
		e.Path = p
	}
	if r.Data.Path != "" && e.Path.Root != "" {
		// The error has the path already, so the message need not begin with it.
		r.Message = names.Escape(strings.TrimPrefix(reply.Message, names.Escape(r.Data.Path)+": "))
	}
	r.kind, e.Kind, e.Err = k, k, r
	if r.Data.RetryAfterMs > 0 && r.Data.RetryAfterMs < int64(time.Hour/time.Millisecond) {
		e.RetryAfter = r.Data.RetryAfter()
	}
	return e
}

// kindOfNumber returns the kind for JSON-RPC's error number, for a reply that has neither a known
// reason nor a known code.
func kindOfNumber(n int64) names.Kind {
	if n == wire.CodeInvalidParams {
		return names.Invalid
	}
	for code, k := range kindOfCode {
		if int64(wire.Number(code)) == n {
			return k
		}
	}
	return names.IO
}

// retryAfter reports whether a request may be sent again after err, and how long to wait before.
func retryAfter(err error) (time.Duration, bool) {
	var e *names.Error
	var r *Reply
	if !errors.As(err, &e) || !errors.As(err, &r) {
		return 0, false
	}
	return e.RetryAfter, r.Data.Retryable && e.RetryAfter > 0 && e.Code() == names.QuotaExceeded
}
