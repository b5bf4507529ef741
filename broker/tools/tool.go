package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// tool is one row of the catalog.
type tool struct {
	def    mcp.Tool
	rights guard.Rights // the tool is offered if some root has one of these; 0: always
	run    func(*call) (*result, error)
}

// row makes the row of a tool whose arguments are decoded into an A. text describes the tool, and
// in is the JSON Schema of its arguments.
func row[A any](name, title, text, in string, hints *mcp.ToolAnnotations, rights guard.Rights, run func(*call, *A) (*result, error)) tool {
	def := mcp.Tool{
		Name: name, Title: title, Description: text, Annotations: hints,
		InputSchema: json.RawMessage(in), OutputSchema: json.RawMessage(textOut),
	}
	return tool{def, rights, func(c *call) (*result, error) {
		var a A
		if err := wire.Decode(c.req.Params.Arguments, &a); err != nil {
			return nil, invalid("arguments%s", strings.TrimPrefix(err.Error(), "params"))
		}
		return run(c, &a)
	}}
}

// pathArgs are the arguments of tools that take a path and nothing else.
type pathArgs struct {
	Path string `json:"path"`
}

// call is one call of a tool.
type call struct {
	stamps guard.Stamps // of the roots that it names
	s      *Server
	ctx    context.Context
	req    *mcp.CallToolRequest
	reads  bool // the tool changes nothing
	// reporting has an element while a progress notification is on its way to the client.
	reporting chan struct{}
	// decisions are the decisions, earlier in this call, about paths that no root holds.
	decisions map[string]error
	unread    *unread     // the names that the call skipped
	room      *answerRoom // of its answer
}

// handler returns the function that the SDK calls for a tool.
func (s *Server) handler(t *tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		room := s.requests.room(req.GetExtra())
		res, err := s.answer(ctx, t, req, room)
		if !room.finish() && err == nil {
			return nil, context.Canceled
		}
		if err != nil {
			if need, ok := errors.AsType[*inputNeeded](err); ok {
				return need.result(), nil
			}
			if full, ok := errors.AsType[*noRoom](err); ok {
				return nil, full.rpc()
			}
			return nil, err // if it is client.ErrInputRequired, the middleware asks for the roots and calls again
		}
		s.addStamps(req.GetExtra(), res.stamps)
		return res.toMCP(), nil
	}
}

// stamps returns the stamps of a request that has named no root yet.
func (s *Server) stamps() guard.Stamps { return s.cfg.Registry.Stamps(s.cfg.Subject) }

// answer runs a tool. A refusal or failure is a result, too; an error means that there is
// no result. room accounts for the memory of the result; nil: the memory is not counted.
func (s *Server) answer(ctx context.Context, t *tool, req *mcp.CallToolRequest, room *answerRoom) (*result, error) {
	if err := s.room.Acquire(ctx, 1); err != nil {
		s.recordRefusal(t.def.Name, err)
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	c := &call{
		stamps: s.stamps(), s: s, ctx: ctx, req: req,
		reads: t.def.Annotations.ReadOnlyHint, reporting: make(chan struct{}, 1), unread: &unread{}, room: room,
	}
	res, err := s.runTool(t, c)
	s.room.Release(1) // before the write: a client that does not read must not block others
	if errors.Is(err, client.ErrInputRequired) || isInputNeeded(err) {
		return nil, err
	}
	if err == nil && room != nil {
		err = room.settle(res.held())
	}
	if _, ok := errors.AsType[*noRoom](err); ok {
		s.recordRefusal(t.def.Name, err)
		if res == nil || res.done == "" {
			return nil, err
		}
		return &result{text: res.done}, nil
	}
	c.awaitProgress()
	return c.unlessRevoked(t.def.Name, res, err), nil
}

// unlessRevoked returns the result for the client: res while all of its data may still be read,
// else a refusal. If res shows a change that was made, unlessRevoked returns the text res.done
// instead of a refusal. err is the error of the tool. answer calls unlessRevoked after any wait for
// the client, and lineConn calls it again right before the write.
func (c *call) unlessRevoked(tool string, res *result, err error) *result {
	if err == nil && (c.reads || res.done != "") {
		res.stamps = &c.stamps
		err = c.stamps.Err()
	}
	if err != nil {
		c.s.recordRefusal(tool, err)
		if res != nil && res.done != "" {
			return &result{text: res.done}
		}
		return &result{text: errorText(err), failed: true}
	}
	res.unlessRevoked = func() *result { return c.unlessRevoked(tool, res, nil) }
	return res
}

// runTool runs a tool, and turns a panic in it into an error of its call.
func (s *Server) runTool(t *tool, c *call) (res *result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, s.recordPanic(t.def.Name, p)
		}
	}()
	if req := c.req.Params; req.RequestState != "" {
		if err := c.readAnswer(); err != nil {
			return nil, err
		}
	}
	if !c.reads {
		if err := s.cfg.Tree.StageBeforeCall(c.ctx, s.cfg.Subject, t.def.Name); err != nil {
			s.cfg.Log.Warn("no checkpoint before a tool call", "tool", t.def.Name, "error", err)
		}
	}
	return t.run(c)
}

// stopped returns an error if the call was cancelled, or if data of its roots may no longer be
// read.
func (c *call) stopped() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return c.stamps.Err()
}

// recordPanic records a panic that was recovered, and returns the error of its call.
func (s *Server) recordPanic(what string, p any) error {
	s.cfg.Log.Error("panic in a tool", "tool", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	_ = s.cfg.Registry.Note(names.OpPanic, "", guard.Failed, what)
	return &guard.Error{Kind: names.Internal, Recorded: true}
}

// missing is the refusal of a call that lacks an argument.
func missing(field string) error { return invalid("arguments: %s is missing", field) }

// recordRefusal records an error, unless the gate has recorded it. It is called for the errors of
// tools and resources that a client gets.
func (s *Server) recordRefusal(what string, err error) {
	if ge, ok := errors.AsType[*guard.Error](err); !ok || !ge.Recorded {
		_ = s.cfg.Registry.NoteRefusal(s.caller, names.Reason(err), names.Brief(what+": "+err.Error()))
	}
}

// invalid is the refusal of an argument that cannot be used.
func invalid(format string, args ...any) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// hinted is an error with advice for the client.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

func hint(err error, text string) error { return &hinted{err, text} }

// errorText returns the text of an error for a client. The text names the path of a guard.Error
// relative to its root. Of any other error it says only that the call failed, was cancelled or
// timed out: such an error could have a path of the host.
func errorText(err error) string {
	var ge *guard.Error
	text := "failed"
	switch {
	case errors.As(err, &ge):
		text = (&guard.Error{Kind: ge.Kind, Err: ge.Err}).Error()
		if ge.Path.Root != "" {
			text = names.Escape(ge.Path.String()) + ": " + text
		}
	case errors.Is(err, context.Canceled):
		text = "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		text = "timed out"
	}
	next := remedy(names.Reason(err))
	if h, ok := errors.AsType[*hinted](err); ok {
		next = h.hint
	}
	if next == "" {
		return text
	}
	return text + "; " + next
}

// remedy returns advice for a client about a kind of error; "": the error itself says enough.
func remedy(k guard.Kind) string {
	switch k { //nolint:exhaustive // the others say it
	case names.NoConsent:
		return "list_allowed_directories tells what is approved"
	case names.Escaped:
		return "name the file itself: only links that stay inside their root are followed"
	case names.Exist:
		return "take another name, or set overwrite where the tool has it"
	case names.Conflict:
		return "it changed meanwhile: read it again and repeat"
	case names.Revoked:
		return "ask the owner to approve it again"
	case names.Rate:
		return "try again later"
	}
	return ""
}

// progress returns a function that sends the client the progress of the call, if the client
// wants it: at most ten times a second, and not before the client has received the last report.
// The function does not wait: operations that a revocation waits for call it.
func (c *call) progress() func(done int64) {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return func(int64) {}
	}
	pace := rate.Sometimes{Interval: 100 * time.Millisecond}
	return func(done int64) {
		pace.Do(func() {
			select {
			case c.reporting <- struct{}{}:
			default:
				return
			}
			go func() {
				// An error means that the client has hung up.
				_ = c.req.Session.NotifyProgress(c.ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(done)})
				<-c.reporting
			}()
		})
	}
}

// awaitProgress waits until the client has received the last report of progress, which must come
// before the answer, or until the call is cancelled.
func (c *call) awaitProgress() {
	select {
	case c.reporting <- struct{}{}:
	case <-c.ctx.Done():
	}
}
