package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// tool is one row of the catalog.
type tool struct {
	def mcp.Tool
	any guard.Rights // offered where some root has one of these
	run func(*call) (*result, error)
}

// call is one call of a tool.
type call struct {
	s   *Server
	ctx context.Context
	req *mcp.CallToolRequest
	// reporting has an element while a progress is on its way to the client.
	reporting chan struct{}
	// used are the roots of the arguments, as they were when each was first named.
	used map[guard.RootName]lifetime
	// decided is what was said, earlier in this call, of paths that no root holds.
	decided map[string]error
}

// result is what a tool answers: text, which structured results repeat. A long one
// is in another form, in memory of its own (see buffers).
type result struct {
	text   string
	data   []byte // unless nil, the text: UTF-8
	quoted []byte // unless nil, the text: as a JSON string, with its quotes
	// note is a second block of text for the reader: how to go on, what to
	// know of the first.
	note string
	// media is in the place of text.
	media  mcp.Content
	failed bool // text says why
}

// texted is the structured form of a text, as server-filesystem has it.
type texted struct {
	Content string `json:"content"`
}

func (r *result) wire() *mcp.CallToolResult {
	out := &mcp.CallToolResult{}
	if r.failed {
		out.SetError(errors.New(r.text))
		return out
	}
	if r.media != nil {
		out.Content = []mcp.Content{r.media}
		out.StructuredContent = map[string]any{"content": out.Content}
	} else {
		shown := r.shown()
		out.Content = []mcp.Content{&mcp.TextContent{Text: shown}}
		out.StructuredContent = texted{shown}
	}
	if r.note != "" {
		out.Content = append(out.Content, &mcp.TextContent{Text: r.note})
	}
	return out
}

// shown is the text.
func (r *result) shown() (text string) {
	switch {
	case r.quoted != nil:
		_ = json.Unmarshal(r.quoted, &text) // it is a string
	case r.data != nil:
		text = string(r.data)
	default:
		text = r.text
	}
	return text
}

// long reports whether the result is worth a buffer of its own.
func (r *result) long() bool {
	return r.media != nil || len(r.text)+len(r.data)+len(r.quoted) >= minBuffer
}

// frame is the answer to a request. What is in it belongs to nobody any more once
// it is sent (giveBack).
func (r *result) frame(id []byte) []byte {
	b, _ := lend(int64(2*(len(r.text)+len(r.data))*9/8 + 2*len(r.quoted) + len(r.note) + len(id) + 256)) // about as long
	b = append(r.append(jsonline.AppendResult(jsonline.AppendReply(b[:0], id))), '}')
	giveBack(r.data)
	giveBack(r.quoted)
	r.data, r.quoted = nil, nil
	return b
}

// append writes the result as JSON, the same as of wire: a long text is escaped
// once, although it stands there twice.
func (r *result) append(b []byte) []byte {
	if r.media != nil {
		text, err := json.Marshal(r.wire())
		if err != nil { // strings and bytes: it has none
			text = []byte("{}")
		}
		return append(b, text...)
	}
	const block = `{"type":"text","text":`
	b = append(b, `{"content":[`+block...)
	from := len(b)
	switch {
	case r.quoted != nil:
		b = append(b, r.quoted...)
	case r.data != nil:
		b = jsonline.AppendString(b, r.data)
	default:
		b = jsonline.AppendString(b, valid(r.text))
	}
	to := len(b)
	b = append(b, '}')
	if r.note != "" {
		b = append(jsonline.AppendString(append(b, ","+block...), valid(r.note)), '}')
	}
	if r.failed {
		return append(b, `],"isError":true}`...)
	}
	b = append(b, `],"structuredContent":{"content":`...)
	b = append(b, b[from:to]...)
	return append(b, "}}"...)
}

// valid is a text as JSON takes it; nearly every one is already.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// handler is a row as the SDK calls it.
func (s *Server) handler(t *tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := s.answer(ctx, t, req)
		if err != nil {
			var need *inputNeeded
			if errors.As(err, &need) {
				return need.result(), nil
			}
			return nil, err // of client.ErrInputRequired, the middleware asks for the roots and calls again
		}
		return res.wire(), nil
	}
}

// answer runs a tool. What it refuses, or fails at, is a result; an error says
// that there is none.
func (s *Server) answer(ctx context.Context, t *tool, req *mcp.CallToolRequest) (*result, error) {
	if err := s.room.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	c := &call{s: s, ctx: ctx, req: req, reporting: make(chan struct{}, 1), used: map[guard.RootName]lifetime{}}
	res, err := s.guarded(t, c)
	s.room.Release(1) // one that does not read holds nobody's room
	if errors.Is(err, client.ErrInputRequired) || asksInside(err) {
		return nil, err
	}
	c.reported()
	if err == nil && t.def.Annotations.ReadOnlyHint {
		err = c.revoked() // last, because the client may have been waited for
	}
	if err != nil {
		s.refused(t.def.Name, err)
		return &result{text: errorText(err), failed: true}, nil
	}
	return res, nil
}

// guarded turns a bug in a tool into an error of its call.
func (s *Server) guarded(t *tool, c *call) (res *result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, s.bug(t.def.Name, p)
		}
	}()
	if req := c.req.Params; req.RequestState != "" {
		if err := c.takeAnswer(); err != nil {
			return nil, err
		}
	}
	return t.run(c)
}

// lifetime changes when a root ends, and when one inside it is approved or ends: files of
// that are read through the outer root, too.
type lifetime struct{ epoch, nesting uint64 }

func (s *Server) lifetimeOf(root guard.RootName) (l lifetime, ok bool) {
	if l.epoch, ok = s.cfg.Registry.EpochOf(root); ok {
		l.nesting, ok = s.cfg.Registry.NestingOf(root)
	}
	return l, ok
}

// use records a root of an argument, for revoked.
func (c *call) use(root guard.RootName) {
	if _, known := c.used[root]; !known {
		c.used[root], _ = c.s.lifetimeOf(root) // of a root that has just ended, one that no other equals
	}
}

// revoked is an error if one of the roots has ended since it was used, or a root inside
// it: what was read before a revocation is in no answer after it.
func (c *call) revoked() error {
	for root, was := range c.used {
		now, ok := c.s.lifetimeOf(root)
		switch {
		case !ok || now.epoch != was.epoch:
			return &guard.Error{Op: names.OpRead, Path: guard.Path{Root: root}, Kind: names.Revoked}
		case now != was:
			return &guard.Error{Op: names.OpRead, Path: guard.Path{Root: root}, Kind: names.Conflict,
				Err: errors.New("a root inside it was approved or revoked")}
		}
	}
	return nil
}

// over is why the call's work is not wanted any more; nil: it is.
func (c *call) over() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	return c.revoked()
}

// bug tells of a panic, which is recovered from, and is the error of its call.
func (s *Server) bug(what string, p any) error {
	s.cfg.Log.Error("panic in a tool", "tool", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	_ = s.cfg.Registry.Note(names.OpPanic, "", guard.Failed, what)
	return &guard.Error{Kind: names.Internal, Recorded: true}
}

// args reads a call's arguments, or refuses them.
func (c *call) args(v any) error {
	if err := wire.Decode(c.req.Params.Arguments, v); err != nil {
		return &guard.Error{Kind: names.Invalid, Err: errors.New("arguments" + strings.TrimPrefix(err.Error(), "params"))}
	}
	return nil
}

// missing refuses a call that lacks an argument it needs.
func (c *call) missing(field string) error {
	return invalid("arguments: %s is missing", field)
}

// refused puts what was refused, or failed, on record, unless the gate has done so.
// Every error that a client is answered with comes here.
func (s *Server) refused(what string, err error) {
	var ge *guard.Error
	if !errors.As(err, &ge) || !ge.Recorded {
		_ = s.cfg.Registry.NoteRefusal(s.caller, names.Reason(err), names.Brief(what+": "+err.Error()))
	}
}

// invalid is an argument whose form is right and whose value is not.
func invalid(format string, args ...any) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// hinted adds to an error what to do instead.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

func hint(err error, text string) error { return &hinted{err, text} }

// errorText is what a client reads of an error: root-relative paths and texts of
// ours only.
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
	var h *hinted
	if errors.As(err, &h) {
		return text + "; " + h.hint
	}
	if next := remedy(names.Reason(err)); next != "" {
		text += "; " + next
	}
	return text
}

// remedy is what to do next about a kind of error, "" where the error says it.
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

// progress tells the client how far a call is, if it wants to know: at most ten
// times a second, and not before it has taken the last. It does not wait: it is
// called by operations that a revocation waits for.
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
				// Whoever hung up wants to know no more.
				_ = c.req.Session.NotifyProgress(c.ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(done)})
				<-c.reporting
			}()
		})
	}
}

// reported waits until the client has taken the last progress, which comes before
// the answer.
func (c *call) reported() {
	select {
	case c.reporting <- struct{}{}:
	case <-c.ctx.Done():
	}
}

// schema is a JSON schema as the tools list it.
func schema(text string) json.RawMessage { return json.RawMessage(text) }
