package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R097, R098: a server with a tool that asks for consent, reads a file and
// writes another, all of it at the client. main would end with
//
//	err := server.Run(ctx, broker.Stdio())
func Example() {
	broker := client.New(nil)
	server := mcp.NewServer(&mcp.Implementation{Name: "shout", Version: "1.0.0"}, nil)

	type input struct {
		Project string `json:"project"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "shout", Description: "write README.md in capitals"},
		func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			files, err := broker.Files(req.Session)
			if errors.Is(err, client.ErrNotSupported) {
				return nil, nil, fmt.Errorf("this tool needs a client that opens files for servers: %w", err)
			} else if err != nil {
				return nil, nil, err
			}
			granted, err := files.ConsentMode(ctx, "rw", "to read README.md and write LOUD.md", in.Project)
			if err != nil {
				return nil, nil, err // names.NoConsent: the person said no
			}
			text, err := files.ReadFile(ctx, in.Project+"/README.md")
			if err != nil {
				return nil, nil, err
			}
			loud := []byte(strings.ToUpper(string(text)))
			if _, err := files.WriteFile(ctx, in.Project+"/LOUD.md", loud, client.WriteOptions{Create: true}); err != nil {
				return nil, nil, err
			}
			answer := fmt.Sprintf("approved %v, wrote %d bytes", granted.ApprovedPaths, len(loud))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer}}}, nil, nil
		})

	// What follows plays the client.
	h, dir, stop := exampleHost(map[string]string{"project/README.md": "be quiet"})
	defer stop()
	session, err := h.join(server, broker)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "shout", Arguments: map[string]any{"project": "project"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	wrote, _ := os.ReadFile(filepath.Join(dir, "project", "LOUD.md"))
	fmt.Printf("%s\n", wrote)
	// Output:
	// approved [project], wrote 8 bytes
	// BE QUIET
}

// R103: a cache that asks whether the file is still the one it knows.
func ExampleFiles_ReadFileIf() {
	h, dir, stop := exampleHost(map[string]string{"project/config": "one"})
	defer stop()
	files, end := h.files()
	defer end()

	ctx := context.Background()
	var cached, etag string
	for range 3 {
		data, now, fresh, err := files.ReadFileIf(ctx, "project/config", etag)
		if err != nil {
			fmt.Println(err)
			return
		}
		if fresh {
			cached, etag = string(data), now
		}
		fmt.Println("fresh:", fresh, "content:", cached)
		if fresh && cached == "one" {
			continue // the second ReadFileIf finds the file unchanged
		}
		_ = os.WriteFile(filepath.Join(dir, "project", "config"), []byte("three"), 0o644)
	}

	// A write is refused if the file was changed since it was read.
	_ = os.WriteFile(filepath.Join(dir, "project", "config"), []byte("theirs"), 0o644)
	_, err := files.WriteFile(ctx, "project/config", []byte("ours"), client.WriteOptions{IfMatch: etag})
	fmt.Println("conflict:", errors.Is(err, names.Conflict))
	// Output:
	// fresh: true content: one
	// fresh: false content: one
	// fresh: true content: three
	// conflict: true
}

// The client's files as an fs.FS.
func ExampleFiles_FS() {
	h, _, stop := exampleHost(map[string]string{"project/a.go": "package a", "project/sub/b.go": "package b", "project/notes": ""})
	defer stop()
	files, end := h.files()
	defer end()

	tree := files.FS(context.Background(), "project")
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			fmt.Println(path)
		}
		return err
	})
	_, climb := tree.Open("../secret")
	fmt.Println(err, errors.Is(climb, fs.ErrInvalid))
	// Output:
	// a.go
	// sub/b.go
	// <nil> true
}

// R159: what the client declared about roots.
func ExampleBroker_Capability() {
	h, _, stop := exampleHost(nil)
	defer stop()
	broker := client.New(nil)
	server := newServer()
	session, err := h.join(server, broker)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	for ss := range server.Sessions() {
		c := broker.Capability(ss)
		fmt.Println("roots:", c.Roots, "listChanged:", c.ListChanged, "filesystemBrokering:", c.Brokering)
	}
	// Output: roots: true listChanged: true filesystemBrokering: true
}

// R113, R214, R222, R223, R224, R225: two tools behind the middleware, which read and
// list local files, and a resource that asks the guard itself.
func ExampleRootsService_RequireWithinRoots() {
	roots := client.NewRootsService(nil) // a local client: links are resolved
	server := newServer()
	type file struct {
		Path string `json:"path"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "read_file"}, func(_ context.Context, _ *mcp.CallToolRequest, in file) (*mcp.CallToolResult, any, error) {
		b, err := os.ReadFile(in.Path)
		return text(string(b)), nil, err
	})
	type directory struct {
		Directory string `json:"directory"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "list_files"}, func(_ context.Context, _ *mcp.CallToolRequest, in directory) (*mcp.CallToolResult, any, error) {
		entries, err := os.ReadDir(in.Directory)
		var out []string
		for _, e := range entries {
			if e.Type().IsRegular() {
				out = append(out, e.Name())
			}
		}
		return text(strings.Join(out, " ")), nil, err
	})
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "local", URITemplate: "file://local/{+path}"},
		func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			guard, err := roots.Guard(ctx, req.Session)
			if err != nil {
				return nil, err // also ErrInputRequired: the middleware then asks for the roots
			}
			// The host "local" is this template's; the rest is read as a file URI.
			path, err := names.ParseURI("file://" + strings.TrimPrefix(req.Params.URI, "file://local"))
			if err != nil {
				return nil, err
			}
			if err := guard.Check(path); err != nil {
				return nil, err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, mcp.ResourceNotFoundError(req.Params.URI)
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: string(b)}}}, nil
		})
	server.AddReceivingMiddleware(
		client.ForTools(roots.RequireWithinRoots(), "read_file"),
		client.ForTools(roots.RequireWithinRoots("directory"), "list_files"),
	)

	// What follows plays the client, with a project and a scratch directory (R222).
	h, dir, stop := exampleHost(map[string]string{"my project/README.md": "hello", "my project/src/x": "", "scratch #1/": ""})
	defer stop()
	_ = os.WriteFile(filepath.Join(dir, "secret"), nil, 0o644)
	session, err := h.join(server, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	ctx := context.Background()
	call := func(tool, arg, path string) {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{arg: path}})
		switch {
		case err != nil:
			fmt.Println("refused:", strings.ReplaceAll(err.Error(), dir, "…"))
		case res.IsError:
			fmt.Println("failed:", strings.ReplaceAll(res.Content[0].(*mcp.TextContent).Text, dir, "…"))
		default:
			fmt.Println("ok:", res.Content[0].(*mcp.TextContent).Text)
		}
	}
	project := filepath.Join(dir, "my project")
	call("read_file", "path", project+"/README.md")
	call("read_file", "path", names.FormatURI(project)+"/../../secret")
	call("read_file", "path", project+"/../secret")
	call("read_file", "path", project+"/missing")
	call("list_files", "directory", project)
	call("list_files", "directory", project+"/README.md")
	for _, path := range []string{"my project/README.md", "my project/missing", "secret"} {
		uri := strings.Replace(names.FormatURI(filepath.Join(dir, path)), "file://", "file://local", 1)
		res, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		switch {
		case err == nil:
			fmt.Println("resource:", res.Contents[0].Text)
		default:
			fmt.Println("resource:", strings.ReplaceAll(err.Error(), dir, "…"))
		}
	}
	// Output:
	// ok: hello
	// refused: calling "tools/call": path "file://…/my%20project/../../secret" cannot be resolved, so it is taken as outside the client's declared roots
	// refused: calling "tools/call": path "…/my project/../secret" is outside the client's declared roots
	// failed: open …/my project/missing: no such file or directory
	// ok: README.md
	// failed: open …/my project/README.md: not a directory
	// resource: hello
	// resource: calling "resources/read": Resource not found
	// resource: calling "resources/read": path "…/secret" is outside the client's declared roots
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// exampleHost is newHost for examples.
func exampleHost(files map[string]string) (h *host, dir string, stop func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	dir, _ = filepath.EvalSymlinks(dir)
	h, opened, err := makeHost(dir, files)
	if err != nil {
		panic(err)
	}
	return h, dir, func() {
		for _, r := range opened {
			r.Close()
		}
		os.RemoveAll(dir)
	}
}

// join connects the host to a server.
func (h *host) join(s *mcp.Server, b *client.Broker) (*mcp.ClientSession, error) {
	st, ct := mcp.NewInMemoryTransports()
	var server mcp.Transport = st
	if b != nil {
		server = b.Transport(st)
	}
	if _, err := s.Connect(context.Background(), server, nil); err != nil {
		return nil, err
	}
	return h.client().Connect(context.Background(), h.transport(ct), &mcp.ClientSessionOptions{ProtocolVersion: legacy})
}

func (h *host) files() (*client.Files, func()) {
	b, s := client.New(nil), newServer()
	session, err := h.join(s, b)
	if err != nil {
		panic(err)
	}
	for ss := range s.Sessions() {
		files, err := b.Files(ss)
		if err != nil {
			panic(err)
		}
		return files, func() { session.Close() }
	}
	panic("no session")
}
