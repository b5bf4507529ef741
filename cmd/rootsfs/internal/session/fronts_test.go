package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// serve connects an MCP server to the session's broker, and returns the server's client for the
// files of the session.
func serve(t *testing.T, s *Session, name string) *client.Files {
	t.Helper()
	b := client.New(nil)
	st, ct := mcp.NewInMemoryTransports()
	ss, err := mcp.NewServer(&mcp.Implementation{Name: name}, nil).Connect(t.Context(), b.Transport(st), nil)
	testkit.Must(t, err)
	host, err := mcp.NewClient(&mcp.Implementation{Name: "host"}, nil).Connect(t.Context(),
		s.Broker().Session(guard.Subject(name)).Transport(ct), &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = host.Close() })
	files, err := b.Files(ss)
	testkit.Must(t, err)
	return files
}

// agent connects a client to the tools that `rootsfs serve` offers on the session. The function
// that agent returns calls a tool, and returns the text of the tool's error, or "".
func agent(t *testing.T, s *Session) func(tool string, args map[string]any) string {
	t.Helper()
	srv := tools.New(tools.Config{Registry: s.Registry(), Tree: s.tree})
	t.Cleanup(srv.Close)
	st, ct := mcp.NewInMemoryTransports()
	_, err := srv.MCP().Connect(t.Context(), st, nil)
	testkit.Must(t, err)
	c, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(), ct, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return func(tool string, args map[string]any) string {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		testkit.Must(t, err)
		if !res.IsError {
			return ""
		}
		text, _ := json.Marshal(res.Content)
		return string(text)
	}
}

// R004, R009, R095: the mount, two servers at the broker and the tools of one session are
// fronts of one tree. None of them replaces a file that a program has open for writing in the
// mount. An etag that one server read is invalid after any of the others has written.
func TestFrontsShareOneTree(t *testing.T) {
	s, work := start(t, "r")
	if s.tree != s.mnt.Tree() {
		t.Error("the mount has a tree of its own")
	}
	testkit.Must(t, s.Registry().Set(context.Background(), "r", guard.ReadWrite))
	testkit.Must(t, os.WriteFile(filepath.Join(work, "r/f"), []byte("text"), 0o644))
	inMount := filepath.Join(work, "mnt/r/f")
	one, two, call := serve(t, s, "one"), serve(t, s, "two"), agent(t, s)

	f, err := childfs.OpenFile(inMount, os.O_RDWR, 0)
	testkit.Must(t, err)
	for _, files := range []*client.Files{one, two} {
		if _, err := files.WriteFile(t.Context(), "r/f", []byte("server"), client.WriteOptions{}); !errors.Is(err, names.Locked) {
			t.Errorf("a server's write with the file open in the mount: %v", err)
		}
	}
	for tool, args := range map[string]map[string]any{
		"write_file": {"path": "r/f", "content": "agent"},
		"edit_file":  {"path": "r/f", "edits": []map[string]any{{"oldText": "text", "newText": "agent"}}},
	} {
		if call(tool, args) == "" {
			t.Errorf("%s succeeds with the file open in the mount", tool)
		}
	}
	_, err = f.WriteString("program")
	testkit.Must(t, errors.Join(err, f.Close()))
	if b, err := os.ReadFile(filepath.Join(work, "r/f")); string(b) != "program" {
		t.Errorf("the program's update is %q, %v", b, err)
	}

	for name, write := range map[string]func() error{
		"a program in the mount": func() error { return childfs.WriteFile(inMount, []byte("1"), 0o644) },
		"another server": func() error {
			_, err := two.WriteFile(t.Context(), "r/f", []byte("2"), client.WriteOptions{})
			return err
		},
		"an agent": func() error {
			if failed := call("write_file", map[string]any{"path": "r/f", "content": "3"}); failed != "" {
				return errors.New(failed)
			}
			return nil
		},
	} {
		had, err := one.Stat(t.Context(), "r/f")
		testkit.Must(t, err)
		testkit.Must(t, write())
		if _, err := one.WriteFile(t.Context(), "r/f", []byte("lost"), client.WriteOptions{IfMatch: had.ETag}); !errors.Is(err, names.Conflict) {
			t.Errorf("a write with the etag from before the write of %s: %v", name, err)
		}
	}
}

// A client's root is not followed through a link that programs could have made.
func TestResolveNamedRefusesProgramsLinks(t *testing.T) {
	s, _ := start(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(base+"/early", 0o755))
	testkit.Must(t, os.Symlink(base, base+"/early/link"))
	testkit.Must(t, os.Symlink(base, base+"/own"))
	testkit.Must(t, s.reg.NoteWritable(base+"/early"))
	if got, err := s.resolveNamed(base + "/own/x"); err != nil || got != base+"/x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{base + "/early/link/x", base + "/own/early/link", "relative", ""} {
		if got, err := s.resolveNamed(path); err == nil {
			t.Errorf("%s leads to %q", path, got)
		}
	}
}
