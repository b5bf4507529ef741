package control

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A connection to a session can become one of another protocol (HTTP's Upgrade): an MCP
// session, or MCP over HTTP. A program of the owner's that has a port carries each of its
// clients' connections here as it is. So the session judges every request itself, and its
// network is that program's.

// What connections become: an MCP session; one that keeps a front end for HTTP alive;
// and those of its clients.
const (
	toolsProtocol  = "mcp"
	frontProtocol  = "mcp-http"
	clientProtocol = "mcp-http-client"
	frontHeader    = "Rootsfs-Front"
	remoteHeader   = "Rootsfs-Remote"
	maxUpgrade     = 64 << 10 // bytes of a request
)

// ToolsRequest says how an MCP session over a connection is to be served.
type ToolsRequest struct {
	Ask         bool `json:"ask,omitempty"`          // about paths that no root holds
	IgnoreRoots bool `json:"ignore_roots,omitempty"` // that the client names
}

// HTTPRequest says how MCP is to be served over HTTP, as the flags of "rootsfs serve"
// have it.
type HTTPRequest struct {
	ToolsRequest
	ID       string   `json:"id"` // of the front end; nobody can guess it
	Path     string   `json:"path"`
	Token    string   `json:"token,omitempty"`
	Port     string   `json:"port"` // that clients call
	Hosts    []string `json:"hosts,omitempty"`
	Origins  []string `json:"origins,omitempty"`
	Sessions int      `json:"sessions"`
	// UserSessions is how many of them one user of the issuer's has; 0: the default.
	UserSessions int      `json:"user_sessions,omitempty"`
	Issuer       string   `json:"issuer,omitempty"`
	Audiences    []string `json:"audiences,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	Resources    []string `json:"resources,omitempty"`
}

// Front is one front end of a session.
type Front interface {
	// Take serves one client's connection, which it closes, and does not wait.
	Take(conn net.Conn)
	// Done is closed when the session ends.
	Done() <-chan struct{}
	// Close ends every connection.
	Close()
}

// tools turns a request's connection into an MCP session.
func (s *Server) tools(w http.ResponseWriter, r *http.Request) {
	var req ToolsRequest
	if !readUpgrade(w, r, toolsProtocol, &req) {
		return
	}
	serve, err := s.service.Tools(req)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, problemOf(err))
		return
	}
	conn, err := upgrade(w, toolsProtocol, "")
	if err == nil {
		err = serve(conn)
	}
	if err != nil {
		s.log.Warn("an MCP client's session ended badly", "error", err)
	}
}

// front keeps a front end for as long as the connection lasts.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	var req HTTPRequest
	if !readUpgrade(w, r, frontProtocol, &req) {
		return
	}
	if req.ID == "" {
		notUpgrade(w, frontProtocol)
		return
	}
	front, err := s.service.HTTP(r.Context(), req)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, problemOf(err))
		return
	}
	defer front.Close()
	if _, taken := s.fronts.LoadOrStore(req.ID, front); taken {
		notUpgrade(w, frontProtocol)
		return
	}
	defer s.fronts.Delete(req.ID)
	conn, err := upgrade(w, frontProtocol, "")
	if err != nil {
		return // whoever asked has gone away
	}
	defer conn.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn) // until the other end hangs up
	}()
	select {
	case <-closed:
	case <-front.Done():
	}
}

// frontClient hands a client's connection to its front end.
func (s *Server) frontClient(w http.ResponseWriter, r *http.Request) {
	front, ok := s.fronts.Load(r.Header.Get(frontHeader))
	if !ok || r.Header.Get("Upgrade") != clientProtocol {
		notUpgrade(w, clientProtocol)
		return
	}
	if conn, err := upgrade(w, clientProtocol, r.Header.Get(remoteHeader)); err == nil {
		front.(Front).Take(conn)
	}
}

// readUpgrade reads a request to upgrade; it has answered if it reports false.
func readUpgrade(w http.ResponseWriter, r *http.Request, protocol string, req any) bool {
	if err := readRequest(w, r, maxUpgrade, req); err != nil || r.Header.Get("Upgrade") != protocol {
		notUpgrade(w, protocol)
		return false
	}
	return true
}

func notUpgrade(w http.ResponseWriter, protocol string) {
	fail(w, http.StatusBadRequest, problem{Error: "request not understood: it must be an upgrade to " + protocol, Class: Usage, Kind: names.Invalid.String()})
}

// upgrade makes a request's connection one of another protocol.
func upgrade(w http.ResponseWriter, protocol, remote string) (net.Conn, error) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", protocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return upgradedConn{conn, buf.Reader, clientAddr(remote)}, nil
}

// upgradedConn reads what came with the request, too, and is from where the client is.
type upgradedConn struct {
	net.Conn
	r      io.Reader
	remote clientAddr
}

func (c upgradedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// RemoteAddr implements net.Conn.
func (c upgradedConn) RemoteAddr() net.Addr { return c.remote }

// clientAddr is the address of a client, as the program that listens saw it.
type clientAddr string

func (clientAddr) Network() string  { return "tcp" }
func (a clientAddr) String() string { return string(a) }

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
	return c.upgrade(ctx, "/v1/tools", toolsProtocol, body, nil)
}

// HTTP makes a front end that lasts until the stream is closed, or the session ends,
// which ends the stream. ctx is about the beginning only.
func (c *Client) HTTP(ctx context.Context, in HTTPRequest) (id string, front Stream, err error) {
	in.ID = rand.Text()
	body, err := json.Marshal(in)
	if err != nil {
		return "", nil, err
	}
	front, err = c.upgrade(ctx, "/v1/http", frontProtocol, body, nil)
	return in.ID, front, err
}

// HTTPClient carries one client's connection to a front end.
func (c *Client) HTTPClient(ctx context.Context, front, remote string) (Stream, error) {
	return c.upgrade(ctx, "/v1/http/client", clientProtocol, nil, map[string]string{frontHeader: front, remoteHeader: remote})
}

// upgrade makes a connection to the session one of another protocol. It does not go
// through http.Client, whose upgraded connections cannot be ended in one direction.
func (c *Client) upgrade(ctx context.Context, path, protocol string, body []byte, header map[string]string) (_ Stream, err error) {
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
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
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
		return nil, c.remoteError(resp, nil)
	}
	return upgradedStream{unix, r}, nil
}

// upgradedStream reads what came with the answer, too.
type upgradedStream struct {
	*net.UnixConn
	r io.Reader
}

func (s upgradedStream) Read(p []byte) (int, error) { return s.r.Read(p) }
