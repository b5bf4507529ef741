package client_test

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
)

// R016: a server can declare in initialize that it works with its client's files, besides
// its other capabilities. A server that does not is served as well.
func TestAdvertise(t *testing.T) {
	for _, advertised := range []bool{true, false} {
		mine := map[string]any{"mine": true}
		caps := &mcp.ServerCapabilities{Experimental: mine}
		if advertised {
			client.Advertise(caps)
		}
		h := newHost(t, map[string]string{"p/a": "alpha"})
		b := client.New(nil)
		s := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, &mcp.ServerOptions{Capabilities: caps})
		ss, cs := connect(t, s, b, h, legacy)
		got := cs.InitializeResult().Capabilities.Experimental
		if declared, _ := got["filesystemBrokering"].(bool); declared != advertised || got["mine"] != true || len(mine) != 1 {
			t.Errorf("advertised %v: the client was told %v", advertised, got)
		}
		f, err := b.Files(ss)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := f.ReadFile(bg, "p/a"); err != nil || string(data) != "alpha" {
			t.Errorf("advertised %v: %q, %v", advertised, data, err)
		}
	}
}
