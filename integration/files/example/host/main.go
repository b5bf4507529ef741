// Command host is a small MCP host. It starts a server, gives it one directory to read, and
// calls one of its tools. If the server wants more, it asks the person at the terminal.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func main() {
	if len(os.Args) < 5 {
		log.Fatal(`usage: host DIRECTORY TOOL '{"its": "arguments"}' SERVER [ARG]...`)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1], os.Args[2], json.RawMessage(os.Args[3]), os.Args[4:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir, tool string, arguments json.RawMessage, server []string) error {
	// One root is approved from the beginning. The Asker decides about all others.
	registry := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	_, err := registry.Grant(ctx, guard.Grant{
		Root: "project", Dir: names.Foreign(dir), Origin: "command line", Policy: guard.Policy{Rights: guard.ReadOnly},
	})
	if err != nil {
		return err
	}
	terminal := func() (io.ReadWriteCloser, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }
	files := broker.New(broker.Config{Registry: registry, Tree: vfs.New(registry), Asker: &broker.Terminal{Open: terminal}})
	defer files.Close()

	// One session for each server: grants and records name it. It answers
	// files/* and roots/list; everything else reaches the SDK.
	session := files.Session("example-server")
	client := mcp.NewClient(&mcp.Implementation{Name: "example-host", Version: "1"}, nil)
	session.Bind(client) // roots for servers of revision 2026-07-28
	command := exec.Command(server[0], server[1:]...)
	command.Stderr = os.Stderr
	transport := session.Transport(&mcp.CommandTransport{Command: command})
	// files/* needs a revision in which servers may send requests.
	connection, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return err
	}
	defer connection.Close()

	result, err := connection.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return err
	}
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			fmt.Println(names.Escape(text.Text)) // a server's text must not control the terminal
		}
	}
	// When RevokeAll returns, the server has no access left.
	ended, err := registry.RevokeAll(ctx)
	fmt.Println("roots revoked:", len(ended))
	return err
}
