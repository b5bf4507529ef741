package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/files"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// rootsfs serve passes the server scenarios of the MCP conformance package that work with any
// server. The other scenarios call the package's own tools, prompts and resources by name
// (test_simple_text, test://static-text and the like). R072.
func TestConformance(t *testing.T) {
	h := newHome(t)
	s := h.http("--no-token", "--root", "r="+t.TempDir()+":rw")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all, out, err := needPeers(t).Conformance(ctx, nil, "server", "--url", s.url, "--suite", "all")
	if errors.Is(err, files.ErrNode22) {
		t.Skip(err)
	}
	testkit.Must(t, err)
	for _, name := range []string{
		"server-initialize", "ping", "logging-set-level", "tools-list", "resources-list", "prompts-list", "completion-complete",
		"server-sse-multiple-streams", "dns-rebinding-protection",
	} {
		if got := all["server-"+name]; got == nil || len(got.Failed) > 0 || got.Passed == 0 {
			t.Errorf("%s: %+v\n%s", name, got, out)
		}
	}
}

// connection is a server, and what a client needs to connect to the server.
type connection struct {
	target []string // the end of a client's command line: the server's command line or URL
	env    []string
	dir    string
	site   *site // nil over stdio
	home   *home
}

// eachTransport runs a test over stdio and over HTTP.
func eachTransport(t *testing.T, f func(t *testing.T, r *connection)) {
	for _, how := range []string{"stdio", "http"} {
		t.Run(how, func(t *testing.T) {
			h := newHome(t)
			dir, err := filepath.EvalSymlinks(t.TempDir())
			testkit.Must(t, err)
			guardtest.Tree(t, dir, "", "in/a.txt=text", "in/pic.png=\x89PNG", "b.txt=beside")
			r := &connection{dir: dir, home: h, env: append(os.Environ(), h.env...)}
			if how == "stdio" {
				r.target = []string{h.program, "serve", "--root", "w=" + dir + ":rw"}
			} else {
				r.site = h.http("--root", "w="+dir+":rw")
				r.target = []string{r.site.url}
				r.env = append(r.env, "TOKEN="+r.site.token)
			}
			f(t, r)
		})
	}
}

// The TypeScript SDK's client works with rootsfs serve. R003, R071.
func TestTypeScriptClient(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *connection) {
		dir := t.TempDir()
		script, err := os.ReadFile("testdata/client.mjs")
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "client.mjs"), script, 0o644))
		testkit.Must(t, os.Symlink(needPeers(t).Module(), filepath.Join(dir, "node_modules")))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, "client.mjs"), r.dir}, r.target...)...)
		cmd.Env = r.env
		var errs bytes.Buffer
		cmd.Stderr = &errs
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, text, &errs)
		}
		var out struct {
			Tools, Resources, Templates, Complete          []string
			Read, Media, Outside, Resource, Write, Updated string
		}
		testkit.Must(t, json.Unmarshal(text, &out))
		a := "file://" + r.dir + "/in/a.txt"
		if len(out.Tools) != 19 || !slices.Contains(out.Tools, "write_file") || out.Read != "text" || out.Media != "image" ||
			!strings.Contains(out.Outside, "error: ") || !strings.Contains(out.Outside, "roots that the client names") ||
			out.Resource != "text" || !slices.Equal(out.Resources, []string{"file://" + r.dir}) || !slices.Equal(out.Templates, []string{"file:///{+path}"}) ||
			!slices.Equal(out.Complete, []string{strings.TrimPrefix(r.dir, "/") + "/in/a.txt"}) || out.Write != "Successfully wrote to w/in/a.txt" || out.Updated != a {
			t.Errorf("%s\n%s", text, &errs)
		}
	})
}

// The MCP Inspector, in its CLI mode, works with rootsfs serve.
func TestInspector(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *connection) {
		cli := needPeers(t).Module("@modelcontextprotocol", "inspector-cli", "build", "index.js")
		inspect := func(args ...string) string {
			t.Helper()
			argv := append([]string{cli, r.target[0]}, args...)
			if r.site != nil {
				argv = append(argv, "--transport", "http", "--header", "Authorization: Bearer "+r.site.token)
			} else {
				argv = append(append(argv, "--"), r.target[1:]...)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", argv...)
			cmd.Dir, cmd.Env = filepath.Dir(cli), r.env // from there the Inspector finds its package.json
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v\n%s%s", args, err, out, &errs)
			}
			return string(out)
		}
		if got := inspect("--method", "tools/list"); !strings.Contains(got, `"list_allowed_directories"`) || !strings.Contains(got, `"read_file_range"`) {
			t.Errorf("tools/list: %s", got)
		}
		var res mcp.CallToolResult
		got := inspect("--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=w/in/a.txt")
		if err := json.Unmarshal([]byte(got), &res); err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != "text" {
			t.Errorf("tools/call: %s, %v", got, err)
		}
		if got := inspect("--method", "resources/read", "--uri", "file://"+r.dir+"/in/a.txt"); !strings.Contains(got, `"text": "text"`) {
			t.Errorf("resources/read: %s", got)
		}
	})
}

// The Go SDK's client works with rootsfs serve in two revisions of the protocol. R003.
func TestGoClient(t *testing.T) {
	eachTransport(t, func(t *testing.T, r *connection) {
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(revision, func(t *testing.T) { checkGoClient(t, r, revision) })
		}
	})
}

func checkGoClient(t *testing.T, r *connection, revision string) {
	ctx := context.Background()
	var cs *mcp.ClientSession
	if r.site != nil {
		cs = r.site.client(revision)
	} else {
		cmd := exec.Command(r.target[0], r.target[1:]...)
		cmd.Env = r.env
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		var err error
		cs, err = c.Connect(ctx, &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		testkit.Must(t, err)
		defer func() {
			if err := cs.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
	}
	tools, err := cs.ListTools(ctx, nil)
	testkit.Must(t, err)
	if len(tools.Tools) != 19 {
		t.Errorf("%d tools", len(tools.Tools))
	}
	call := func(name string, args m) (string, bool) {
		t.Helper()
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
		testkit.Must(t, err)
		return res.Content[0].(*mcp.TextContent).Text, res.IsError
	}
	if got, failed := call("write_file", m{"path": "w/" + revision, "content": "new"}); failed {
		t.Error(got)
	}
	if got, _ := call("read_text_file", m{"path": r.dir + "/" + revision}); got != "new" {
		t.Errorf("%q", got)
	}
	if got, failed := call("read_text_file", m{"path": "/etc/passwd"}); !failed || !strings.Contains(got, "nobody approved") {
		t.Errorf("outside: %q", got)
	}
	res, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file://" + r.dir + "/b.txt"})
	if err != nil || res.Contents[0].Text != "beside" {
		t.Errorf("resource: %+v, %v", res, err)
	}
	n := 0
	for _, err := range cs.Resources(ctx, nil) {
		testkit.Must(t, err)
		n++
	}
	if n != 1 { // the root
		t.Errorf("%d resources", n)
	}
}
