package files

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// filesRevision is the last revision of MCP in which a server may send requests of its own.
const filesRevision = "2025-11-25"

// host is the side that executes requests: a registry with its broker.
type host struct {
	t    testing.TB
	reg  *guard.Registry
	b    *broker.Broker
	recs *guardtest.Recorder
}

func newHost(t testing.TB, change func(*broker.Config)) *host {
	t.Helper()
	recs := &guardtest.Recorder{}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: recs})
	h := &host{t, reg, newBroker(t, reg, change), recs}
	t.Cleanup(func() {
		if _, err := reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func newBroker(t testing.TB, reg *guard.Registry, change func(*broker.Config)) *broker.Broker {
	cfg := broker.Config{Registry: reg, Tree: vfs.New(reg), Debounce: 20 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	b := broker.New(cfg)
	t.Cleanup(b.Close)
	return b
}

// root makes a directory with the files of tree, which guardtest.Tree describes, grants the
// directory as a root, and returns its path.
func (h *host) root(name string, rights guard.Rights, tree ...string) string {
	h.t.Helper()
	dir := h.t.TempDir()
	guardtest.Tree(h.t, dir, "", tree...)
	h.grant(name, dir, rights)
	return dir
}

func (h *host) grant(name, dir string, rights guard.Rights) {
	h.t.Helper()
	_, err := h.reg.Grant(context.Background(), guard.Grant{
		Root: guard.RootName(name), Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: rights},
	})
	testkit.Must(h.t, err)
}

// transports are the transports of a session, by name. Each function makes p's server reachable
// and returns the transport for the host's MCP client.
var transports = map[string]func(t testing.TB, p *pair) mcp.Transport{
	"memory": func(t testing.TB, p *pair) mcp.Transport {
		ours, theirs := mcp.NewInMemoryTransports()
		p.serve(t, theirs)
		return p.session.Transport(ours)
	},
	"lines": func(t testing.TB, p *pair) mcp.Transport {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p.serve(t, &mcp.IOTransport{Reader: outR, Writer: inW})
		return p.session.Lines(inR, outW, 0)
	},
	"http": func(t testing.TB, p *pair) mcp.Transport {
		handler := p.server.HTTPHandler(func(*http.Request) *mcp.Server { return p.mcp }, nil)
		site := httptest.NewServer(handler)
		t.Cleanup(func() { site.CloseClientConnections(); site.Close() })
		t.Cleanup(handler.Close)
		return &mcp.StreamableClientTransport{
			Endpoint: site.URL, HTTPClient: &http.Client{Transport: p.session.HTTP(nil)},
		}
	},
}

// pair is an MCP session between a host that uses package broker and a server that uses package
// broker/client, both with the Go SDK. ctx belongs to a tool call that lasts as long as the
// test: over HTTP, the call carries the server's requests.
type pair struct {
	session *broker.Session
	server  *client.Broker
	mcp     *mcp.Server
	host    *mcp.ClientSession
	files   *client.Files
	ctx     context.Context
}

func connect(t testing.TB, b *broker.Broker, transport string, opts *client.Options) *pair {
	t.Helper()
	p := &pair{session: b.Session("peer"), server: client.New(opts)}
	t.Cleanup(p.session.Close)
	p.mcp = mcp.NewServer(&mcp.Implementation{Name: "test-server", Version: "1"}, nil)
	type holding struct {
		files *client.Files
		ctx   context.Context
		err   error
	}
	held, end := make(chan holding), make(chan struct{})
	mcp.AddTool(p.mcp, &mcp.Tool{Name: "hold"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		f, err := p.server.Files(req.Session)
		held <- holding{f, ctx, err}
		<-end
		return nil, nil, nil
	})
	c := mcp.NewClient(&mcp.Implementation{Name: "test-host", Version: "1"}, nil)
	var err error
	p.host, err = c.Connect(context.Background(), transports[transport](t, p), &mcp.ClientSessionOptions{ProtocolVersion: filesRevision})
	testkit.Must(t, err)
	called := make(chan error, 1)
	go func() {
		_, err := p.host.CallTool(context.Background(), &mcp.CallToolParams{Name: "hold", Arguments: struct{}{}})
		called <- err
	}()
	t.Cleanup(func() {
		close(end)
		<-called
		_ = p.host.Close()
	})
	select {
	case got := <-held:
		testkit.Must(t, got.err)
		p.files, p.ctx = got.files, got.ctx
	case err := <-called:
		t.Fatalf("the tool was not reached: %v", err)
	}
	return p
}

func (p *pair) serve(t testing.TB, tr mcp.Transport) {
	t.Helper()
	_, err := p.mcp.Connect(context.Background(), p.server.Transport(tr), nil)
	testkit.Must(t, err)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o644))
}
