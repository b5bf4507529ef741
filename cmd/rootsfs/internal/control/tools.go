package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// toolsProtocol is what a connection turns to when it becomes an MCP session.
const toolsProtocol = "mcp"

// ToolsRequest says how an MCP session over a connection is to be served.
type ToolsRequest struct {
	Ask         bool `json:"ask,omitempty"`          // about paths that no root holds
	IgnoreRoots bool `json:"ignore_roots,omitempty"` // that the client names
}

// toolsOwner is the part of Owner that serves MCP tools.
type toolsOwner interface {
	// Tools finds room for one more MCP client, or refuses. serve, to be called
	// once, serves it over a connection until either end hangs up or the session
	// ends, and closes the connection.
	Tools(req ToolsRequest) (serve func(conn io.ReadWriteCloser) error, err error)
}

// tools turns a request's connection into an MCP session (HTTP's Upgrade).
func (s *Server) tools(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	var req ToolsRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxHeader))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil || r.Header.Get("Upgrade") != toolsProtocol {
		fail(w, http.StatusBadRequest, problem{Error: "request not understood: it must be an upgrade to " + toolsProtocol, Class: Usage, Kind: names.Invalid.String()})
		return
	}
	serve, err := s.owner.Tools(req)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, problem{Error: Text(err), Class: Classify(err), Kind: names.Reason(err).String()})
		return
	}
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", toolsProtocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buf, err := rc.Hijack()
	if err == nil {
		_ = conn.SetDeadline(time.Time{})
		err = serve(hijacked{buf.Reader, conn})
	}
	if err != nil {
		s.log.Warn("an MCP client's session ended badly", "error", err)
	}
}

// hijacked reads what came with the request, too.
type hijacked struct {
	io.Reader
	io.WriteCloser
}

// Stream is a connection of which one direction can be ended: what is under way
// is then still answered.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Tools begins an MCP session that the session serves, on its roots: what is
// written to the stream goes to the server, what is read from it comes from there.
// ctx is about the beginning only. The stream ends with the session.
func (c *Client) Tools(ctx context.Context, in ToolsRequest) (Stream, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return c.turn(ctx, "/v1/tools", toolsProtocol, body, nil)
}

// turn makes a connection to the session one of another protocol.
func (c *Client) turn(ctx context.Context, path, protocol string, body []byte, header map[string]string) (Stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://session"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	// Not through http.Client, whose upgraded connections cannot be ended in one
	// direction.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	u, err := upgrade(conn, req, c)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return u, nil
}

func upgrade(conn net.Conn, req *http.Request, c *Client) (Stream, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	if err := req.Write(unix); err != nil {
		return nil, c.callError(err)
	}
	r := bufio.NewReader(unix)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, c.callError(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, c.remoteError(resp)
	}
	return upgraded{unix, r}, nil
}

// stream reads what came with the answer, too.
type upgraded struct {
	*net.UnixConn
	r io.Reader
}

func (s upgraded) Read(p []byte) (int, error) { return s.r.Read(p) }
