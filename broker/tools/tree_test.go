package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work

type node struct {
	Name, Type string
	Children   []node
}

// leaves returns the paths of the files in a tree.
func leaves(t *testing.T, text string) (out []string) {
	t.Helper()
	var walk func(prefix string, list []node)
	walk = func(prefix string, list []node) {
		for _, n := range list {
			if n.Type == "file" {
				out = append(out, prefix+n.Name)
			}
			walk(prefix+n.Name+"/", n.Children)
		}
	}
	walk("", treeOf(t, text))
	return out
}

func treeOf(t *testing.T, text string) (tree []node) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return tree
}

// R225: files are resources, which a template describes. The server completes their paths.
func TestResources_R225(t *testing.T) {
	updated := make(chan string, 64)
	b := start(t, nil, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }})
	dir := b.root("code", guard.ReadWrite, "a.txt=text", "bin=\xff\x00", "sub/b.md=b")
	page := filepath.Join(t.TempDir(), "page.html")
	testkit.Must(t, os.WriteFile(page, nil, 0o600))
	_, err := b.reg.Grant(t.Context(), guard.Grant{Root: "page", Dir: names.Foreign(page), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}})
	testkit.Must(t, err)
	b.connect("2025-11-25")
	ctx := context.Background()
	got := map[string]string{}
	for r, err := range b.host.Resources(ctx, nil) {
		testkit.Must(t, err)
		got[r.URI] = r.MIMEType
	}
	if got["file://"+dir] != "inode/directory" || got["file://"+page] != "text/html" || len(got) != 2 {
		t.Errorf("resources: %v", got)
	}
	read := func(uri string) *mcp.ResourceContents {
		t.Helper()
		res, err := b.host.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		testkit.Must(t, err)
		return res.Contents[0]
	}
	for _, scheme := range []string{"file", "FILE", "File"} { // RFC 3986, section 3.1
		if c := read(scheme + "://" + dir + "/a.txt"); c.Text != "text" {
			t.Errorf("%s: %+v", scheme, c)
		}
	}
	if c := read("file://" + dir + "/bin"); string(c.Blob) != "\xff\x00" {
		t.Errorf("%+v", c)
	}
	if c := read("file://" + dir + "/sub"); c.MIMEType != "inode/directory" || !strings.Contains(c.Text, dir+"/sub/b.md") {
		t.Errorf("%+v", c)
	}
	if _, err := b.host.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///etc/passwd"}); err == nil || strings.Contains(err.Error(), "root:") {
		t.Errorf("outside: %v", err)
	}
	// A text that is not a URI is refused before the SDK sees it: the SDK's own error is not JSON,
	// and would end the connection.
	for _, uri := range []string{"root/a\x00x", "file://" + dir + "/\a", "\v", "file:///\U000e0001"} {
		if _, err := b.host.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "uri: it has a character") {
			t.Errorf("%q: %v", uri, err)
		}
	}
	res, err := b.host.Complete(ctx, &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: "file:///{+path}"},
		Argument: mcp.CompleteParamsArgument{Name: "path", Value: strings.TrimPrefix(dir, "/") + "/s"},
	})
	testkit.Must(t, err)
	if v := res.Completion.Values; len(v) != 1 || v[0] != strings.TrimPrefix(dir, "/")+"/sub/" {
		t.Errorf("completion: %q", v)
	}
	uri := "file://" + dir + "/sub"
	testkit.Must(t, b.host.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}))
	b.ok("write_file", m{"path": "code/sub/b.md", "content": "changed"})
	if got := <-updated; got != uri {
		t.Errorf("updated: %s", got)
	}
	testkit.Must(t, b.host.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}))
}

// In both revisions of the protocol, the roots that a client names narrow its access and never
// widen it. When the client takes its last root back, it reaches nothing.
func TestClientRoots(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			b := start(t, nil, nil)
			dir := b.root("code", guard.ReadOnly, "a=1", "sub/b=2", "sub/up => ../a")
			b.mcp.AddRoots(&mcp.Root{URI: "file://" + dir + "/sub"}, &mcp.Root{URI: "file:///etc"})
			b.connect(revision)
			b.ok("read_text_file", m{"path": "code/sub/b"})
			b.refused("read_text_file", m{"path": "code/a"}, "outside the roots that the client names")
			b.refused("read_text_file", m{"path": "code/sub/up"}, "outside the roots that the client names")
			b.refused("read_text_file", m{"path": "/etc/passwd"}, "nobody approved")
			b.mcp.RemoveRoots("file://"+dir+"/sub", "file:///etc")
			for range 2000 { // until the change has arrived
				if _, _, failed := b.call("read_text_file", m{"path": "code/sub/b"}); failed {
					return
				}
			}
			t.Error("an empty list of roots leaves everything")
		})
	}
}

// A client that knows an approved directory under another path may use that path. A link that
// is not trusted leads nowhere.
func TestClientRootsOfOtherNames(t *testing.T) {
	other := t.TempDir()
	b := start(t, func(c *tools.Config) {
		c.Resolve = func(path string) (string, error) {
			if strings.Contains(path, "planted") {
				return "", errors.New("a program may have made this link")
			}
			return filepath.EvalSymlinks(path)
		}
	}, nil)
	dir := b.root("code", guard.ReadOnly, "a=1", "sub/b=2")
	testkit.Must(t, os.Symlink(filepath.Dir(dir), other+"/above"))
	testkit.Must(t, os.Symlink(dir, other+"/planted"))
	testkit.Must(t, os.Symlink(dir+"/sub", other+"/link"))
	b.mcp.AddRoots(&mcp.Root{URI: "file://" + other + "/above/" + filepath.Base(dir) + "/sub"})
	b.connect("2025-11-25")
	b.ok("read_text_file", m{"path": other + "/above/" + filepath.Base(dir) + "/sub/b"})
	b.ok("read_text_file", m{"path": dir + "/sub/b"})
	b.refused("read_text_file", m{"path": dir + "/a"}, "outside the roots that the client names")
	b.refused("read_text_file", m{"path": other + "/above/" + filepath.Base(dir) + "/a"}, "nobody approved")
	b.refused("read_text_file", m{"path": other + "/link/b"}, "nobody approved")
	c := start(t, func(cfg *tools.Config) {
		cfg.Resolve = b.cfg.Resolve
		cfg.Registry, cfg.Tree = b.cfg.Registry, b.cfg.Tree
	}, nil)
	c.mcp.AddRoots(&mcp.Root{URI: "file://" + other + "/planted"})
	c.connect("2025-11-25")
	c.refused("read_text_file", m{"path": "code/a"}, "the roots that the client names hold nothing that is approved")
	c.refused("read_text_file", m{"path": other + "/planted/a"}, "nobody approved")
}

// A result is for the subject of the grant alone, and only while the grant lasts. So a result tells
// each cache between server and client that the result is private, and stale at once.
func TestResultsArePrivate(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadWrite, "a.txt=text")
	b.connect("2025-11-25")
	ctx := t.Context()
	contents, err := b.host.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file://" + dir + "/a.txt"})
	testkit.Must(t, err)
	resources, err := b.host.ListResources(ctx, nil)
	testkit.Must(t, err)
	templates, err := b.host.ListResourceTemplates(ctx, nil)
	testkit.Must(t, err)
	offered, err := b.host.ListTools(ctx, nil)
	testkit.Must(t, err)
	for name, c := range map[string]mcp.CacheableResult{
		"resources/read": contents, "resources/list": resources, "resources/templates/list": templates, "tools/list": offered,
	} {
		if c.GetCacheScope() != "private" || c.GetTTLMs() != 0 {
			t.Errorf("%s: cache scope %s for %d ms, want private for 0 ms", name, c.GetCacheScope(), c.GetTTLMs())
		}
	}
}
