package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// reply answers one request in a goroutine and passes the response to write.
func (h *host) reply(req *jsonrpc.Request, write func(jsonrpc.Message)) {
	ctx, cancel := context.WithCancel(context.Background())
	id := fmt.Sprint(req.ID.Raw())
	h.mu.Lock()
	h.inflight[id] = cancel
	h.mu.Unlock()
	go func() {
		defer cancel()
		res, err := h.answer(ctx, req.Method, req.Params)
		h.mu.Lock()
		delete(h.inflight, id)
		h.mu.Unlock()
		resp := &jsonrpc.Response{ID: req.ID, Error: err}
		if err == nil {
			resp.Result, _ = json.Marshal(res)
		}
		write(resp)
	}()
}

// intercept reports whether a message is for the host itself, and not for its SDK. It returns a
// request that the caller has to answer, and nil for a cancellation, which it handles.
func (h *host) intercept(msg jsonrpc.Message) (*jsonrpc.Request, bool) {
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return nil, false
	}
	if req.Method == wire.Cancelled {
		var p struct{ RequestID string }
		_ = json.Unmarshal(req.Params, &p)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.log = append(h.log, wire.Cancelled)
		if cancel := h.inflight[p.RequestID]; cancel != nil {
			cancel()
			return nil, true
		}
		return nil, false
	}
	return req, req.IsCall() && (strings.HasPrefix(req.Method, wire.MethodPrefix) || req.Method == wire.RootsList)
}

// transport returns the host's end of a connection.
func (h *host) transport(inner mcp.Transport) mcp.Transport { return &hostTransport{h, inner} }

type hostTransport struct {
	h     *host
	inner mcp.Transport
}

func (t *hostTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	hc := &hostConn{c, t.h}
	t.h.setNotifier(func(method string, params any) {
		raw, _ := json.Marshal(params)
		_ = c.Write(context.Background(), &jsonrpc.Request{Method: method, Params: raw})
	})
	return hc, nil
}

type hostConn struct {
	mcp.Connection
	h *host
}

func (c *hostConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.Connection.Read(ctx)
		if err != nil {
			return nil, err
		}
		req, ok := c.h.intercept(msg)
		if !ok {
			return msg, nil
		}
		if req != nil {
			c.h.reply(req, func(m jsonrpc.Message) { _ = c.Connection.Write(context.Background(), m) })
		}
	}
}

// initParams is mcp.InitializeParams with any capabilities, including those the SDK does not know.
type initParams struct {
	mcp.ParamsBase
	ProtocolVersion string              `json:"protocolVersion"`
	ClientInfo      *mcp.Implementation `json:"clientInfo"`
	Capabilities    json.RawMessage     `json:"capabilities"`
}

func (h *host) client() *mcp.Client {
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	caps := h.caps
	if caps == "" {
		caps = fullCaps
	}
	c.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, ok := req.GetParams().(*mcp.InitializeParams); ok {
				req = &mcp.ClientRequest[*initParams]{Session: req.GetSession().(*mcp.ClientSession), Params: &initParams{
					ProtocolVersion: p.ProtocolVersion, ClientInfo: p.ClientInfo, Capabilities: json.RawMessage(caps)}}
			} else if p := req.GetParams(); p != nil {
				if m := p.GetMeta(); m["io.modelcontextprotocol/clientCapabilities"] != nil {
					m["io.modelcontextprotocol/clientCapabilities"] = json.RawMessage(caps)
				}
			}
			return next(ctx, method, req)
		}
	})
	return c
}

func newServer() *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
}

// connect connects a server to the host over an in-memory transport. version is the protocol
// revision; "" is the newest.
func connect(t testing.TB, s *mcp.Server, b *client.Broker, h *host, version string) (*mcp.ServerSession, *mcp.ClientSession) {
	t.Helper()
	st, ct := mcp.NewInMemoryTransports()
	var server mcp.Transport = st
	if b != nil {
		server = b.Transport(st)
	}
	ss, err := s.Connect(context.Background(), server, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := h.client().Connect(context.Background(), h.transport(ct), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	return ss, cs
}

// filesOf connects a new server to the host and returns the files/* calls of the session.
func filesOf(t testing.TB, h *host, o *client.Options) *client.Files {
	t.Helper()
	b := client.New(o)
	ss, _ := connect(t, newServer(), b, h, legacy)
	f, err := b.Files(ss)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// second returns the error of a call with two results.
func second[T any](_ T, err error) error { return err }
