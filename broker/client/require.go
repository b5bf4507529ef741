//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Middleware returns a middleware that keeps the service informed: add it with
// AddReceivingMiddleware. It watches for notifications/roots/list_changed. Under revision
// 2026-07-28 the middleware asks for the roots inside the request of a handler that returned
// ErrInputRequired.
func (s *RootsService) Middleware() mcp.Middleware {
	return s.middleware(nil)
}

// RequireWithinRoots returns a middleware that refuses a tool call, before the handler runs, if an
// argument named in args is not a path inside the session's roots. The refusal is INVALID_PARAMS
// (-32602) and names the path or the argument. Without args, the argument "path" is checked. Each
// checked argument must be present and be text. A call with an argument given twice, or with a
// checked argument in another capitalisation, is refused, because handlers disagree about which
// of the arguments counts.
//
// The middleware applies to every tool, unless ForTools restricts it. It includes Middleware.
func (s *RootsService) RequireWithinRoots(args ...string) mcp.Middleware {
	if len(args) == 0 {
		args = []string{"path"}
	}
	args = slices.Clone(args)
	return s.middleware(func(ctx context.Context, ss *mcp.ServerSession, req mcp.Request) error {
		p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
		if !ok {
			return nil
		}
		paths, err := textArguments(p.Arguments, args)
		if err != nil {
			return err
		}
		guard, err := s.Guard(ctx, ss)
		if errors.Is(err, ErrInputRequired) || ctx.Err() != nil {
			return err
		}
		for i, path := range paths {
			switch why := guard.Check(path); {
			case why != nil && err != nil: // the roots could not be read: err says why
				return invalid("path "+names.QuoteShort(path)+" is refused: "+err.Error(), args[i])
			case why != nil:
				return invalid(why.Error(), args[i])
			}
		}
		return nil
	})
}

// ForTools restricts a middleware to calls of the named tools. Calls of other tools
// bypass it; all other requests pass through it.
func ForTools(m mcp.Middleware, tools ...string) mcp.Middleware {
	tools = slices.Clone(tools)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		checked := m(next)
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && !slices.Contains(tools, p.Name) {
				return next(ctx, method, req)
			}
			return checked(ctx, method, req)
		}
	}
}

func invalid(message, argument string) error {
	e := &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: message}
	if argument != "" {
		e.Data = jsonline.AppendValue(nil, map[string]string{"argument": argument})
	}
	return e
}

// textArguments returns the values of the named arguments. It reads strictly
// (no key twice, no bad UTF-8), which encoding/json does not.
func textArguments(raw []byte, args []string) ([]string, error) {
	values := map[string]jsontext.Value{}
	if len(raw) > 0 && json.Unmarshal(raw, &values) != nil {
		return nil, invalid("arguments must be an object in which no name stands twice", "")
	}
	out := make([]string, len(args))
	for i, arg := range args {
		for k := range values {
			if k != arg && strings.EqualFold(k, arg) {
				return nil, invalid("argument "+names.QuoteShort(k)+" must be spelt "+names.Quote(arg), arg)
			}
		}
		v, ok := values[arg]
		if !ok {
			return nil, invalid("argument "+names.Quote(arg)+" is missing; it must be a path inside the client's roots", arg)
		}
		if v.Kind() != '"' || json.Unmarshal(v, &out[i]) != nil {
			return nil, invalid("argument "+names.Quote(arg)+" must be text, a path inside the client's roots", arg)
		}
	}
	return out, nil
}

// The middleware's question under revision 2026-07-28: its name in inputRequests, and the
// requestState by which a repeated request shows that its client was asked.
const (
	inputRoots = "io.github.rootsfs/roots"
	stateRoots = "io.github.rootsfs/roots asked"
)

// answerKey is the key of a context value. With a nil service the value is the list of roots that
// came with the request. With a service it is that service's Snapshot of the roots: there is one
// for each service, because two services may read paths differently.
type answerKey struct{ s *RootsService }

// inputRequired is the result that asks for roots. It is a type of this package because
// the SDK sets resultType only in the results of handlers, and not in those of middleware.
type inputRequired struct {
	mcp.ResultBase
	ResultType    string              `json:"resultType"`
	InputRequests mcp.InputRequestMap `json:"inputRequests"`
	RequestState  string              `json:"requestState,omitempty"`
}

// middleware runs check, if there is one, before the handlers of requests that can carry
// roots: tools/call, prompts/get and resources/read.
func (s *RootsService) middleware(check func(context.Context, *mcp.ServerSession, mcp.Request) error) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
			ss, ok := req.GetSession().(*mcp.ServerSession)
			if ok && method == wire.RootsChanged {
				s.Changed(ss)
			}
			responses, state := inputs(req.GetParams())
			if !ok || responses == nil {
				return next(ctx, method, req)
			}
			inside := s.capability(ss).insideOnly
			if inside {
				if ctx, err = s.acceptRoots(ctx, ss, responses, state); err != nil {
					return nil, err
				}
			}
			if check != nil {
				err = check(ctx, ss, req)
			}
			if err == nil {
				res, err = next(ctx, method, req)
			}
			if inside {
				return s.addQuestion(ctx, res, err)
			}
			return res, err
		}
	}
}

// question returns the result that requests the roots.
func question() mcp.Result {
	return &inputRequired{ResultType: "input_required", InputRequests: mcp.InputRequestMap{inputRoots: &mcp.ListRootsParams{}}, RequestState: stateRoots}
}

// acceptRoots takes the answer to the middleware's question out of a request, and returns a
// context that carries the roots. Inner handlers see the request as if there had been no
// question. If the middlewares of two services are nested, the outer middleware takes the answer
// for both.
func (s *RootsService) acceptRoots(ctx context.Context, ss *mcp.ServerSession, responses *mcp.InputResponseMap, state *string) (context.Context, error) {
	if _, hasRoots := ctx.Value(answerKey{s}).(Snapshot); hasRoots {
		return ctx, nil
	}
	roots, ok := ctx.Value(answerKey{}).([]wire.Root)
	if !ok {
		wasAsked := *state == stateRoots
		if wasAsked {
			*state = ""
		}
		res, _ := (*responses)[inputRoots].(*mcp.ListRootsResult)
		switch {
		case res == nil && wasAsked:
			return ctx, invalid("the client was asked for its roots and repeated the request without them", "")
		case res == nil:
			return ctx, nil
		}
		rest := maps.Clone(*responses)
		if delete(rest, inputRoots); len(rest) == 0 {
			rest = nil
		}
		*responses, roots = rest, fromSDK(res)
		ctx = context.WithValue(ctx, answerKey{}, roots)
	}
	guard := NewGuard(s.opts.Platform(ss), roots)
	e := s.entry(ss)
	e.mu.Lock()
	defer e.mu.Unlock()
	return context.WithValue(ctx, answerKey{s}, s.setLocked(e, ss, roots, guard)), nil
}

// inputs returns pointers to the InputResponses and the RequestState in params, nil if the
// method has no such fields.
func inputs(p mcp.Params) (*mcp.InputResponseMap, *string) {
	switch p := p.(type) {
	case *mcp.CallToolParamsRaw:
		return &p.InputResponses, &p.RequestState
	case *mcp.GetPromptParams:
		return &p.InputResponses, &p.RequestState
	case *mcp.ReadResourceParams:
		return &p.InputResponses, &p.RequestState
	}
	return nil, nil
}

// addQuestion requests the roots if a handler returned ErrInputRequired. If a handler that has the
// roots requests other input, addQuestion adds a request for the roots to the handler's requests:
// a repeated request has only the answers to the last questions.
func (s *RootsService) addQuestion(ctx context.Context, res mcp.Result, err error) (mcp.Result, error) {
	_, hasRoots := ctx.Value(answerKey{s}).(Snapshot)
	if errors.Is(err, ErrInputRequired) && !hasRoots {
		return question(), nil
	}
	if err != nil {
		return res, err
	}
	var requests mcp.InputRequestMap
	switch r := res.(type) {
	case *mcp.CallToolResult:
		if errors.Is(r.GetError(), ErrInputRequired) && !hasRoots {
			return question(), nil
		}
		requests = r.InputRequests
	case *mcp.GetPromptResult:
		requests = r.InputRequests
	case *mcp.ReadResourceResult:
		requests = r.InputRequests
	}
	if hasRoots && requests != nil {
		requests[inputRoots] = &mcp.ListRootsParams{}
	}
	return res, nil
}
