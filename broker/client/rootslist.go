//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of one reading, against a client whose list changes or goes on without end. After a
// change, the next attempt begins with the first page.
const (
	maxAttempts = 5
	maxPages    = 10_000
)

// list reads all pages of one state of the client's list of roots. For a session without a
// connection of the Broker it reads only the first page.
func (s *RootsService) list(ctx context.Context, ss *mcp.ServerSession) ([]wire.Root, error) {
	c := s.opts.Broker.connOf(ss)
	if c == nil {
		return listPlain(ctx, ss)
	}
	for range maxAttempts {
		if roots, err := listPages(ctx, c); !errors.Is(err, errStaleCursor) {
			return roots, err
		}
	}
	return nil, fmt.Errorf("the client's roots changed during each of %d readings", maxAttempts)
}

// errStaleCursor says that the client refused a cursor of its own (-32602), because the
// list changed between two pages. The reading must begin again.
var errStaleCursor = errors.New("stale cursor")

func listPages(ctx context.Context, c *conn) (roots []wire.Root, err error) {
	cursor, seen := "", map[string]bool{}
	for range maxPages {
		answer, err := c.call(ctx, wire.RootsList, wire.RootsParams{Cursor: cursor})
		var reply *jsonrpc.Error
		switch {
		case cursor != "" && errors.As(err, &reply) && reply.Code == wire.CodeInvalidParams:
			return nil, errStaleCursor
		case err != nil:
			return nil, rootsFailure(err)
		}
		var page wire.RootsResult // nextCursor null reads as absent
		err = json.Unmarshal(answer.result, &page)
		answer.release()
		if err != nil {
			return nil, fmt.Errorf("the client's answer to roots/list is malformed: %w", err)
		}
		roots = append(roots, page.Roots...)
		if page.NextCursor == "" {
			return roots, nil
		}
		if seen[page.NextCursor] {
			return nil, errors.New("the client's answers to roots/list go round in a circle")
		}
		cursor, seen[page.NextCursor] = page.NextCursor, true
	}
	return nil, fmt.Errorf("the client's roots/list has more than %d pages", maxPages)
}

// listPlain asks through the SDK, which reads one page.
func listPlain(ctx context.Context, ss *mcp.ServerSession) ([]wire.Root, error) {
	res, err := ss.ListRoots(ctx, nil)
	if err != nil {
		return nil, rootsFailure(err)
	}
	return fromSDK(res), nil
}

func fromSDK(res *mcp.ListRootsResult) []wire.Root {
	roots := make([]wire.Root, 0, len(res.Roots))
	for _, r := range res.Roots {
		if r != nil {
			roots = append(roots, wire.Root{URI: r.URI, Name: r.Name})
		}
	}
	return roots
}

// rootsFailure turns an error of roots/list into the error that a caller sees. "Method not found"
// becomes NotSupportedError: the client has no roots, although it declared them.
func rootsFailure(err error) error {
	var reply *jsonrpc.Error
	if !errors.As(err, &reply) {
		return fmt.Errorf("roots/list: %w", err)
	}
	message := names.Escape(reply.Message)
	if reply.Code == wire.CodeMethodNotFound {
		return &NotSupportedError{What: "the client does not support roots: " + message}
	}
	return fmt.Errorf("roots/list: %w", &Reply{Number: reply.Code, Message: message, kind: kindOfNumber(reply.Code)})
}
