package wire

import (
	"encoding/json"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// JSON-RPC's own error numbers.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// numbers are the JSON-RPC numbers of the seven codes, in the protocol's order. They lie outside
// the range that JSON-RPC reserves, because the numbers of MCP revisions collide in that range.
var numbers = map[names.Code]int{
	names.FileNotFound:        -31001,
	names.PermissionDenied:    -31002,
	names.InvalidPath:         -31003,
	names.IOError:             -31004,
	names.TimeoutCode:         -31005,
	names.ConcurrencyConflict: -31006,
	names.QuotaExceeded:       -31007,
}

// Number is the JSON-RPC number of one of the seven codes, CodeInternal for any other code.
func Number(c names.Code) int {
	if n, ok := numbers[c]; ok {
		return n
	}
	return CodeInternal
}

// Error is a JSON-RPC error object.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// ErrorData is error.data of a failed files/* request. Path begins with the name of the root, and
// is never a path of the host.
type ErrorData struct {
	Code         names.Code `json:"code"`
	Reason       string     `json:"reason"` // the names.Kind, as text
	Path         string     `json:"path,omitempty"`
	Retryable    bool       `json:"retryable"`
	RetryAfterMs int64      `json:"retryAfterMs,omitempty"`
	Limit        int64      `json:"limit,omitempty"`
	ETag         string     `json:"etag,omitempty"` // of a conflict: the state the file is in now
	Hint         string     `json:"hint,omitempty"` // what to do instead
}

// RetryAfter is RetryAfterMs as a duration.
func (d *ErrorData) RetryAfter() time.Duration {
	return time.Duration(d.RetryAfterMs) * time.Millisecond
}
