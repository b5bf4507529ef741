package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/integration/files"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work

// The environment variables that make the test binary run another program: Serve, or a server on
// the Go SDK. The variable stdinVar is a third one.
const (
	serveVar  = "ROOTSFS_PROXY_SERVE"  // a Config in JSON
	serverVar = "ROOTSFS_PROXY_SERVER" // any value
)

func TestMain(m *testing.M) {
	lab.Main(m, map[string]func(string) error{
		serveVar: func(arg string) error {
			var cfg Config
			if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
				return err
			}
			return Serve(context.Background(), cfg)
		},
		serverVar: func(string) error { return goServer() },
		stdinVar:  func(string) error { return copyStdin() },
	})
}

// peers installs the published peers once for all tests.
var peers = sync.OnceValues(func() (*files.Peers, error) { return files.InstallPeers(context.Background()) })

func needPeers(t testing.TB) *files.Peers {
	t.Helper()
	p, err := peers()
	testkit.Must(t, err)
	return p
}

// runner runs a server, behind the proxy only (see Serve) or confined by `rootsfs run`. A test
// can change the server's roots while the server runs.
type runner interface {
	// command returns the command line by which a host starts the server.
	command(server ...string) []string
	grant(name, mode, dir string)
	revoke(name string)
}

// newRunnerFunc makes a runner with roots.
type newRunnerFunc func(t testing.TB, roots ...Root) runner

// withEachRunner runs a test with each kind of runner.
func withEachRunner(t *testing.T, f func(t *testing.T, newRunner newRunnerFunc)) {
	t.Run("proxy", func(t *testing.T) { f(t, newProxyRunner) })
	t.Run("run", func(t *testing.T) { f(t, newConfinedRunner) })
}

// proxyRunner runs a server through Serve.
type proxyRunner struct {
	t       testing.TB
	cfg     Config
	control net.Conn
	answers *bufio.Scanner
}

func newProxyRunner(t testing.TB, roots ...Root) runner {
	t.Helper()
	return &proxyRunner{t: t, cfg: Config{Roots: roots, Control: filepath.Join(t.TempDir(), "control")}}
}

func (p *proxyRunner) command(server ...string) []string {
	p.t.Helper()
	p.cfg.Command = server
	self, err := os.Executable()
	testkit.Must(p.t, err)
	arg, err := json.Marshal(p.cfg)
	testkit.Must(p.t, err)
	return []string{"env", serveVar + "=" + string(arg), self}
}

// tell sends a line to Serve's control socket, and waits for the answer "ok".
func (p *proxyRunner) tell(format string, args ...any) {
	p.t.Helper()
	if p.control == nil {
		c, err := net.Dial("unix", p.cfg.Control)
		testkit.Must(p.t, err)
		p.control, p.answers = c, bufio.NewScanner(c)
		p.t.Cleanup(func() { _ = c.Close() })
	}
	_, err := fmt.Fprintf(p.control, format+"\n", args...)
	testkit.Must(p.t, err)
	if !p.answers.Scan() || p.answers.Text() != "ok" {
		p.t.Fatalf("%s: %s", fmt.Sprintf(format, args...), p.answers.Text())
	}
}

func (p *proxyRunner) grant(name, mode, dir string) {
	p.t.Helper()
	p.tell("grant %s %s %s", name, mode, dir)
}
func (p *proxyRunner) revoke(name string) { p.t.Helper(); p.tell("revoke %s", name) }

// goServer is a server on the Go SDK, with tools that ask for a file, for consent and for the
// roots.
func goServer() error {
	b := client.New(nil)
	s := mcp.NewServer(&mcp.Implementation{Name: "go-peer", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "read"}, func(ctx context.Context, req *mcp.CallToolRequest, in struct{ Path string }) (*mcp.CallToolResult, any, error) {
		f, err := b.Files(req.Session)
		if err != nil {
			return nil, nil, err
		}
		c, err := f.Read(ctx, in.Path, client.ReadOptions{})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(c.Data)}}}, nil, err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "consent"}, func(ctx context.Context, req *mcp.CallToolRequest, in struct{ Path string }) (*mcp.CallToolResult, any, error) {
		f, err := b.Files(req.Session)
		if err != nil {
			return nil, nil, err
		}
		granted, err := f.Consent(ctx, "to read", in.Path)
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(granted)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, err
	})
	s.AddTool(&mcp.Tool{Name: "roots", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r, ok := req.Params.InputResponses["r"].(*mcp.ListRootsResult); ok {
			text, err := json.Marshal(r.Roots)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"r": &mcp.ListRootsParams{}}}, nil
	})
	return s.Run(context.Background(), b.Stdio())
}

// goCommand returns the command line of goServer.
func goCommand(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	testkit.Must(t, err)
	return []string{"env", "-u", serveVar, serverVar + "=1", self}
}

// commandOf returns an exec.Cmd of a command line.
func commandOf(argv []string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
