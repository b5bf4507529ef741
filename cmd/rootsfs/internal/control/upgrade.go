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
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A connection to a session can change to another protocol (HTTP's Upgrade). It then carries an
// MCP session, or it keeps a front end for MCP over HTTP alive. For such a front end, a command
// of the owner opens a port and passes the listening socket to the session. So the session
// judges every request itself, and the port is in the network namespace of the command.

// The protocols of upgraded connections.
const (
	toolsProtocol = "mcp"
	frontProtocol = "mcp-http"
	maxUpgrade    = 256 << 10 // bytes of a request, which may have a chain of certificates
)

// ToolsRequest has the options of an MCP session over a connection.
type ToolsRequest struct {
	Ask         bool `json:"ask,omitempty"`          // ask the owner about paths that no root holds
	IgnoreRoots bool `json:"ignore_roots,omitempty"` // ignore the roots that the client names
}

// HTTPRequest has the options for serving MCP over HTTP, from the flags of "rootsfs serve".
type HTTPRequest struct {
	ToolsRequest
	Path     string   `json:"path"`
	Token    string   `json:"token,omitempty"`
	Port     string   `json:"port"` // port that clients connect to
	Hosts    []string `json:"hosts,omitempty"`
	Origins  []string `json:"origins,omitempty"`
	Sessions int      `json:"sessions"`
	// UserSessions is how many of the Sessions one user of the Issuer may have; 0: the default.
	UserSessions int      `json:"user_sessions,omitempty"`
	Issuer       string   `json:"issuer,omitempty"`
	Audiences    []string `json:"audiences,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	Resources    []string `json:"resources,omitempty"`
	// Certificate and Key are for TLS, in PEM; empty: no TLS.
	Certificate []byte `json:"certificate,omitempty"`
	Key         []byte `json:"key,omitempty"`
}

// Front is one front end of a session.
type Front interface {
	// Serve serves the clients of a port until ctx or the session ends.
	Serve(ctx context.Context, l net.Listener) error
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
	conn, err := upgrade(w, toolsProtocol)
	if err == nil {
		err = serve(conn)
	}
	if err != nil {
		s.log.Warn("an MCP client's session ended badly", "error", err)
	}
}

// front makes a front end serve the port that comes over the request's connection, for as long
// as the connection lasts.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	var req HTTPRequest
	if !readUpgrade(w, r, frontProtocol, &req) {
		return
	}
	front, err := s.service.HTTP(r.Context(), req)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, problemOf(err))
		return
	}
	defer front.Close()
	conn, err := upgrade(w, frontProtocol)
	if err != nil {
		return // the client has gone
	}
	defer conn.Close()
	l, err := conn.receiveListener()
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, conn) // until the other end hangs up
		}()
		err = front.Serve(ctx, l)
	}
	if err != nil {
		s.log.Error("MCP over HTTP has failed", "error", err)
	}
}

// readUpgrade reads a request to upgrade. If it reports false, it has answered with an error.
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

// upgrade changes the protocol of a request's connection.
func upgrade(w http.ResponseWriter, protocol string) (*upgradedConn, error) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", protocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return &upgradedConn{conn, buf.Reader}, nil
}

// upgradedConn is an upgraded connection. Its Read also returns data that came with the
// request.
type upgradedConn struct {
	net.Conn
	r io.Reader
}

func (c *upgradedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// receiveListener takes the listening socket that the other end sends (unix(7), SCM_RIGHTS).
// It requests the socket by sending a byte. A socket that was sent earlier could get lost in a
// plain read.
func (c *upgradedConn) receiveListener() (net.Listener, error) {
	owner, _ := c.Conn.(*ownerConn)
	if owner == nil {
		return nil, errNoListener
	}
	conn, ok := owner.Conn.(*net.UnixConn)
	if !ok {
		return nil, errNoListener // no epoll watch is left for the connection; the port would need one, too
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		return nil, err
	}
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, err
	}
	list, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(list) != 1 {
		return nil, errNoListener
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(fds) != 1 {
		return nil, errNoListener
	}
	f := os.NewFile(uintptr(fds[0]), "port")
	defer f.Close()
	return net.FileListener(f)
}

var errNoListener = errors.New("no listening socket came over the control socket")

// Stream is an upgraded connection. Its Read also returns data that came with the answer.
// CloseWrite ends one direction: requests in progress still get their answers.
type Stream struct {
	*net.UnixConn
	r io.Reader
}

func (s *Stream) Read(p []byte) (int, error) { return s.r.Read(p) }

// Tools begins an MCP session. The client's session serves it, with its roots. Data written to the
// stream goes to the MCP server, and data read from the stream comes from there. ctx bounds only
// the upgrade of the connection. The stream ends with the client's session.
func (c *Client) Tools(ctx context.Context, in ToolsRequest) (*Stream, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return c.upgrade(ctx, "/v1/tools", toolsProtocol, body)
}

// HTTP makes the session serve the clients of a port until the stream is closed for writing, or
// the session ends. The stream ends in both cases. ctx bounds only the time until the session has
// the port.
func (c *Client) HTTP(ctx context.Context, in HTTPRequest, port *net.TCPListener) (*Stream, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	front, err := c.upgrade(ctx, "/v1/http", frontProtocol, body)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = front.SetDeadline(time.Now()) })()
	if _, err = io.ReadFull(front, []byte{0}); err != nil {
		err = c.callError(err)
	} else {
		err = front.sendListener(port)
	}
	if err != nil {
		_ = front.Close()
		return nil, err
	}
	return front, nil
}

// upgrade opens a connection to the session and changes its protocol. It does not use
// http.Client, whose upgraded connections have no CloseWrite.
func (c *Client) upgrade(ctx context.Context, path, protocol string, body []byte) (_ *Stream, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://session"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if err := req.Write(conn); err != nil {
		return nil, c.callError(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, c.callError(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, c.remoteError(resp, nil)
	}
	return &Stream{conn, r}, nil
}

// sendListener sends a listening socket. The other end gets its own descriptor of the socket.
func (s *Stream) sendListener(l *net.TCPListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		_, _, sendErr = s.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sendErr)
}
