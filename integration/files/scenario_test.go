package files

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// scenarioVar is the environment variable that makes the test binary the client of a conformance
// scenario. Its value is the scenario's name. The last argument of the test binary is the server's
// address.
const scenarioVar = "ROOTSFS_FILES_SCENARIO"

// A host with the broker's filter in its HTTP client passes client scenarios of the MCP conformance
// package: the filter's changes do not break the protocol. R001, R071.
func TestConformanceScenarios(t *testing.T) {
	p := needPeers(t)
	self, err := os.Executable()
	testkit.Must(t, err)
	for _, name := range []string{"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			all, out, err := p.Conformance(ctx, []string{scenarioVar + "=" + name}, "client", "--command", self, "--scenario", name)
			if errors.Is(err, ErrNode22) {
				t.Skip(err)
			}
			testkit.Must(t, err)
			if got := all[name]; got == nil || len(got.Failed) > 0 || got.Passed == 0 {
				t.Errorf("%+v\n%s", got, out)
			}
		})
	}
}

// playScenario runs the client of the scenario: a host with one root.
func playScenario(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "rootsfs-scenario-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600); err != nil {
		return err
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	if _, err := reg.Grant(ctx, guard.Grant{Root: "r", Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
		return err
	}
	b := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg)})
	defer b.Close()
	s := b.Session("peer")
	c := mcp.NewClient(&mcp.Implementation{Name: "rootsfs-host", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	tr := &mcp.StreamableClientTransport{Endpoint: os.Args[len(os.Args)-1], HTTPClient: &http.Client{Transport: s.HTTP(nil)}}
	session, err := c.Connect(ctx, tr, &mcp.ClientSessionOptions{ProtocolVersion: filesRevision})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	args := map[string]any{}
	if name == "tools_call" {
		args = map[string]any{"a": 2, "b": 3}
	}
	for _, tool := range tools.Tools {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool.Name, Arguments: args})
		if err != nil {
			return fmt.Errorf("%s: %w", tool.Name, err)
		}
		if res.IsError {
			return fmt.Errorf("%s: %v", tool.Name, res.Content)
		}
	}
	return nil
}
