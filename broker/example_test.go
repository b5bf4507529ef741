package broker_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// A Go host that starts an MCP server, gives it one directory to read and asks
// its user on the terminal about anything else the server wants.
func Example_host() {
	ctx := context.Background()
	project, _ := os.MkdirTemp("", "project")
	defer os.RemoveAll(project)

	// The owner's part: the approved roots, and the Asker for the rest.
	registry := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	defer registry.RevokeAll(ctx)
	_, err := registry.Grant(ctx, guard.Grant{
		Root: "project", Dir: names.Foreign(project), Origin: "command line",
		Policy: guard.Policy{Rights: guard.ReadOnly},
	})
	if err != nil {
		log.Fatal(err)
	}
	files := broker.New(broker.Config{
		Registry: registry, Tree: vfs.New(registry),
		Asker: &broker.Terminal{Open: func() (io.ReadWriteCloser, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }},
	})
	defer files.Close()

	// Each server has its own session. Grants and audit records have the name that Session gets.
	session := files.Session("my-server")
	client := mcp.NewClient(&mcp.Implementation{Name: "my-host", Version: "1"}, nil)
	session.Bind(client)

	// Here the server is in this process. For a child process use
	// &mcp.CommandTransport{Command: exec.Command("some-server")}, and for
	// Streamable HTTP use &http.Client{Transport: session.HTTP(nil)}.
	ours, theirs := mcp.NewInMemoryTransports()
	server := mcp.NewServer(&mcp.Implementation{Name: "my-server", Version: "1"}, nil)
	go server.Run(ctx, theirs)

	// files/* needs a revision with requests from the server to the client.
	connection, err := client.Connect(ctx, session.Transport(ours), &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	fmt.Println("connected to", connection.InitializeResult().ServerInfo.Name)

	// Revoke ends all access to the root at once, even for requests in progress.
	ended, err := registry.Revoke(ctx, "project")
	fmt.Println("revoked", len(ended), err)
	// Output:
	// connected to my-server
	// revoked 1 <nil>
}

// The calls of a manager of roots, on the registry: add, duplicate, list,
// allowed, set, remove (R152, R154, R155, R158, R162).
func Example_rootsManager() {
	ctx := context.Background()
	base, _ := os.MkdirTemp("", "manager")
	defer os.RemoveAll(base)
	for _, d := range []string{"frontend", "frontend-evil"} {
		_ = os.Mkdir(filepath.Join(base, d), 0o755)
	}
	registry := guard.NewRegistry(guard.Config{
		Opener: vfs.Opener(),
		Observe: func(e guard.Event) { // R161
			if e.Kind != guard.EventRefusal {
				fmt.Println("changed:", e.Kind, e.Root)
			}
		},
	})
	add := func(uri string) bool {
		dir, err := names.ParseURI(uri)
		if err != nil {
			return false
		}
		name, err := names.ParseRootName(filepath.Base(dir)) // R153
		if err != nil {
			return false
		}
		_, err = registry.Grant(ctx, guard.Grant{Root: name, Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}})
		return err == nil
	}
	fmt.Println(add("file://" + base + "/frontend"))
	fmt.Println(add("file://" + base + "/frontend")) // a duplicate
	fmt.Println(add("http://example.com"))           // no file URI
	within := func(path string) bool { _, err := registry.Parse("", path); return err == nil }
	fmt.Println(within(base+"/frontend/src/x.ts"), within(base+"/frontend-evil/x.ts"))
	roots := registry.Roots()
	roots[0].Grant.Root = "mine to change"
	fmt.Println(registry.Roots()[0].Grant.Root, registry.Roots()[0].Grant.Policy.Rights)
	rights, _ := rules.ParseMode("read,list,create")
	fmt.Println(registry.Set(ctx, "frontend", rights), registry.Roots()[0].Grant.Policy.Rights)
	_, err := registry.Revoke(ctx, "frontend")
	fmt.Println(err, len(registry.Roots()))
	_, err = registry.Revoke(ctx, "frontend")
	fmt.Println(err != nil)
	// Output:
	// changed: added frontend
	// true
	// false
	// false
	// true false
	// frontend ro
	// changed: changed frontend
	// <nil> read,list,create
	// changed: revoked frontend
	// <nil> 0
	// true
}
