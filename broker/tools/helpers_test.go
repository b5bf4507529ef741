package tools_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// bench is a server with a client on the Go SDK.
type bench struct {
	t    testing.TB
	reg  *guard.Registry
	cfg  tools.Config
	ask  *broker.Broker // asks the owner, for clients over HTTP and after letClientAnswer; nil: nobody is asked
	srv  *tools.Server
	mcp  *mcp.Client
	host *mcp.ClientSession
	recs *guardtest.Recorder
}

// start makes a bench. configure changes the server's configuration, options the client's.
func start(t testing.TB, configure func(*tools.Config), options *mcp.ClientOptions) *bench {
	t.Helper()
	recs := &guardtest.Recorder{}
	b := startOn(t, guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: recs}), configure, options)
	b.recs = recs
	return b
}

// startOn is start for a registry.
func startOn(t testing.TB, reg *guard.Registry, configure func(*tools.Config), options *mcp.ClientOptions) *bench {
	t.Helper()
	b := &bench{t: t, reg: reg}
	cfg := tools.Config{Registry: b.reg, Tree: vfs.New(b.reg), Subject: "test"}
	if configure != nil {
		configure(&cfg)
	}
	b.cfg, b.srv = cfg, tools.New(cfg)
	b.mcp = mcp.NewClient(&mcp.Implementation{Name: "test-host", Version: "1"}, options)
	t.Cleanup(func() {
		b.srv.Close()
		if _, err := b.reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// letClientAnswer replaces b.srv, the server for other transports than HTTP. The new server asks
// through b.ask, and its client may answer the questions (Config.ClientAnswers).
func (b *bench) letClientAnswer() {
	b.srv.Close()
	cfg := b.cfg
	cfg.Ask, cfg.ClientAnswers = b.ask.Session(cfg.Subject), true
	b.srv = tools.New(cfg)
}

// connect connects the client over memory, in a revision of the protocol; "": the newest.
func (b *bench) connect(revision string) *bench {
	b.t.Helper()
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := b.srv.MCP().Connect(context.Background(), theirs, nil)
	testkit.Must(b.t, err)
	b.host, err = b.mcp.Connect(context.Background(), ours, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(b.t, err)
	b.t.Cleanup(func() {
		_ = b.host.Close()
		_ = ss.Wait()
	})
	return b
}

// overStdio connects the client over a pair of streams.
func (b *bench) overStdio(revision string) {
	b.t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(context.Background(), toServer, fromServer) }()
	var err error
	b.host, err = b.mcp.Connect(context.Background(), &mcp.IOTransport{Reader: toClient, Writer: fromClient}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(b.t, err)
	b.t.Cleanup(func() {
		_ = b.host.Close()
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			b.t.Error(err)
		}
	})
}

// overHTTP connects the client over HTTP.
func (b *bench) overHTTP(revision string) {
	b.t.Helper()
	site := b.site(tools.HTTPOptions{})
	var err error
	b.host, err = b.mcp.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: site.URL, HTTPClient: &http.Client{Transport: bearer{}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(b.t, err)
	b.t.Cleanup(func() { _ = b.host.Close() })
}

// root grants a new directory as the root name, and returns the directory. tree has its entries, as
// guardtest.Tree takes them.
func (b *bench) root(name string, rights guard.Rights, tree ...string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	guardtest.Tree(b.t, dir, "", tree...)
	_, err := b.reg.Grant(context.Background(), guard.Grant{
		Root: guard.RootName(name), Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: rights},
	})
	testkit.Must(b.t, err)
	return dir
}

// call calls a tool. It returns the text of the answer, the text of its second block, and
// whether the answer is an error.
func (b *bench) call(name string, args map[string]any) (text, note string, failed bool) {
	b.t.Helper()
	res, err := b.host.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return err.Error(), "", true
	}
	for i, c := range res.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			if i == 0 {
				text = tc.Text
			} else {
				note = tc.Text
			}
		}
	}
	return text, note, res.IsError
}

// ok checks that a call succeeds, and returns its text.
func (b *bench) ok(name string, args map[string]any) string {
	b.t.Helper()
	text, _, failed := b.call(name, args)
	if failed {
		b.t.Errorf("%s %v: %s", name, args, text)
	}
	return text
}

// refused checks that a call fails, and that the error contains why.
func (b *bench) refused(name string, args map[string]any, why string) {
	b.t.Helper()
	text, _, failed := b.call(name, args)
	if !failed || !strings.Contains(text, why) {
		b.t.Errorf("%s %v: failed %v: %s; want an error with %q", name, args, failed, text, why)
	}
}

func (b *bench) file(elem ...string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	testkit.Must(b.t, err)
	return string(data)
}

type m = map[string]any
