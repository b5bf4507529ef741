// Command server is a small MCP server. Its tool counts the words of a file of the
// client, writes the number to another file, and does so again when the file
// changes. The client opens the files; the server opens none.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
)

type input struct {
	File    string `json:"file" jsonschema:"the file whose words are counted"`
	Reports string `json:"reports" jsonschema:"the directory that gets the number, in words.txt"`
	Changes int    `json:"changes,omitempty" jsonschema:"for how many changes of the file to stay"`
}

func main() {
	broker := client.New(nil)
	server := mcp.NewServer(&mcp.Implementation{Name: "example-server", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "count", Description: "count the words of a file"},
		func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			answer, err := count(ctx, broker, req.Session, in)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer}}}, nil, err
		})
	if err := server.Run(context.Background(), broker.Stdio()); err != nil {
		log.Fatal(err)
	}
}

func count(ctx context.Context, broker *client.Broker, session *mcp.ServerSession, in input) (string, error) {
	// Files fails at once if the client does not offer files/*.
	files, err := broker.Files(session)
	if errors.Is(err, client.ErrNotSupported) {
		return "", fmt.Errorf("this tool needs a client that opens files for servers: %w", err)
	} else if err != nil {
		return "", err
	}
	// Ask for consent to write. The user is not asked again about an approved
	// directory. A refusal is an error of kind names.NoConsent.
	if _, err := files.ConsentMode(ctx, "rw", "to write down how many words "+in.File+" has", in.Reports); err != nil {
		return "", err
	}
	// The watch begins before the first look, so that no change is missed.
	events, err := files.Watch(ctx, in.File, client.WatchOptions{})
	if err != nil {
		return "", err
	}
	for n := 0; ; n++ {
		// The path is absolute, as the client names its roots, or "root/path".
		text, err := files.ReadFile(ctx, in.File)
		if err != nil {
			return "", err
		}
		words := len(strings.Fields(string(text)))
		// The new contents appear at once: no reader gets half a report.
		_, err = files.WriteFile(ctx, in.Reports+"/words.txt", fmt.Appendln(nil, words), client.WriteOptions{Create: true})
		if err != nil || n == in.Changes {
			return fmt.Sprintf("words: %d, changes: %d", words, n), err
		}
		if e, ok := <-events; !ok || e.Ended { // the channel is closed when ctx ends
			return "", errors.New("the file is not there any more, or was taken back")
		}
	}
}
