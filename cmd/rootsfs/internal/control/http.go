package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A session serves MCP over HTTP to whoever listens for it: a program of the owner's
// that has the port, and carries each connection here as it is. So the session judges
// every request itself, and its network is that program's.

// What connections turn to: one that keeps the front end alive, and those of its
// clients.
const (
	frontProtocol  = "mcp-http"
	clientProtocol = "mcp-http-client"
	frontHeader    = "Rootsfs-Front"
	remoteHeader   = "Rootsfs-Remote"
	maxFront       = 64 << 10 // bytes of an HTTPRequest
)

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

// httpOwner is the part of Owner that serves MCP over HTTP.
type httpOwner interface {
	HTTP(ctx context.Context, req HTTPRequest) (Front, error)
}

// front keeps a front end for as long as the connection lasts.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	var req HTTPRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFront))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil || req.ID == "" || r.Header.Get("Upgrade") != frontProtocol {
		notUpgrade(w, frontProtocol)
		return
	}
	front, err := s.owner.HTTP(r.Context(), req)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, problem{Error: Text(err), Class: Classify(err), Kind: names.Reason(err).String()})
		return
	}
	defer front.Close()
	if _, taken := s.fronts.LoadOrStore(req.ID, front); taken {
		notUpgrade(w, frontProtocol)
		return
	}
	defer s.fronts.Delete(req.ID)
	conn, err := turn(w, frontProtocol, "")
	if err != nil {
		return // whoever asked has gone away
	}
	defer conn.Close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, conn) // until the other end hangs up
	}()
	select {
	case <-over:
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
	if conn, err := turn(w, clientProtocol, r.Header.Get(remoteHeader)); err == nil {
		front.(Front).Take(conn)
	}
}

func notUpgrade(w http.ResponseWriter, protocol string) {
	fail(w, http.StatusBadRequest, problem{Error: "request not understood: it must be an upgrade to " + protocol, Class: Usage, Kind: names.Invalid.String()})
}

// turn makes a request's connection one of another protocol.
func turn(w http.ResponseWriter, protocol, remote string) (net.Conn, error) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", protocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return turned{conn, buf.Reader, where(remote)}, nil
}

// turned reads what came with the request, too, and is from where the client is.
type turned struct {
	net.Conn
	r      io.Reader
	remote where
}

func (t turned) Read(p []byte) (int, error) { return t.r.Read(p) }

// RemoteAddr implements net.Conn.
func (t turned) RemoteAddr() net.Addr { return t.remote }

// where is the address of a client, as the program that listens saw it.
type where string

func (where) Network() string  { return "tcp" }
func (w where) String() string { return string(w) }

// HTTP makes a front end that lasts until the stream is closed, or the session ends,
// which ends the stream. ctx is about the beginning only.
func (c *Client) HTTP(ctx context.Context, in HTTPRequest) (id string, front Stream, err error) {
	in.ID = rand.Text()
	body, err := json.Marshal(in)
	if err != nil {
		return "", nil, err
	}
	front, err = c.turn(ctx, "/v1/http", frontProtocol, body, nil)
	return in.ID, front, err
}

// HTTPClient carries one client's connection to a front end.
func (c *Client) HTTPClient(ctx context.Context, front, remote string) (Stream, error) {
	return c.turn(ctx, "/v1/http/client", clientProtocol, nil, map[string]string{frontHeader: front, remoteHeader: remote})
}
