package client

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// Capability holds a client's declarations about roots and files, made in initialize or,
// since revision 2026-07-28, in the _meta of a request. The SDK's structs drop some of these
// declarations, so this package reads them from the wire.
type Capability struct {
	Roots       bool            // the client answers roots/list
	ListChanged bool            // the client announces changes of its roots
	Brokering   bool            // the client executes files/*
	Extension   json.RawMessage // settings of extensions["io.github.rootsfs/files"]; nil if absent

	// insideOnly is set if the revision lets the server send requests only while it answers a request
	// of the client.
	insideOnly bool
}

const (
	revisionMRTR        = "2026-07-28" // the first without standalone server requests (multi round-trip requests, SEP-2322)
	metaVersion         = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities    = "io.modelcontextprotocol/clientCapabilities"
	methodInitialize    = "initialize"
	filesystemBrokering = "filesystemBrokering"
)

// capabilityOf reads a client's capabilities. A value of another type than the protocol's counts as
// absent: the text "yes" is not true. If roots or extensions has another type, all
// capabilities count as absent.
func capabilityOf(raw json.RawMessage) Capability {
	var caps struct {
		Roots      map[string]json.RawMessage `json:"roots"`
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	if json.Unmarshal(raw, &caps) != nil {
		return Capability{}
	}
	c := Capability{Roots: caps.Roots != nil, ListChanged: isTrue(caps.Roots["listChanged"]), Brokering: isTrue(caps.Roots[filesystemBrokering])}
	if ext := bytes.TrimSpace(caps.Extensions[wire.Extension]); len(ext) > 0 && ext[0] == '{' {
		c.Extension, c.Brokering = ext, true
	}
	return c
}

// Advertise declares in a server's capabilities (mcp.ServerOptions.Capabilities) that the server
// works with its client's files. SEP-1708 says that servers should declare this, but a host of
// rootsfs does not need the declaration. MCP has no such capability of servers, so Advertise adds
// an experimental one.
func Advertise(c *mcp.ServerCapabilities) {
	caps := maps.Clone(c.Experimental) // the SDK may hold the map already
	if caps == nil {
		caps = map[string]any{}
	}
	caps[filesystemBrokering] = true
	c.Experimental = caps
}

// maxChunkOf returns the client's own bound of one read or write; 0: not declared.
func maxChunkOf(extension json.RawMessage) int64 {
	var ext struct {
		MaxChunk int64 `json:"maxChunk"`
	}
	if json.Unmarshal(extension, &ext) != nil || ext.MaxChunk < 0 {
		return 0
	}
	return ext.MaxChunk
}

func isTrue(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "true" }

// readDeclaration returns a request's declarations about its client. It reports false if the
// request has none.
func readDeclaration(method string, params json.RawMessage) (Capability, bool) {
	if method == methodInitialize {
		var p struct {
			Capabilities json.RawMessage `json:"capabilities"`
		}
		if json.Unmarshal(params, &p) != nil {
			return Capability{}, false
		}
		return capabilityOf(p.Capabilities), true // insideOnly stays false: later revisions have no initialize
	}
	// Search the text first: most requests have no such member, and some are long.
	if !bytes.Contains(params, []byte(metaVersion)) {
		return Capability{}, false
	}
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var version string
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Meta[metaVersion], &version) != nil || version < revisionMRTR {
		return Capability{}, false
	}
	c := capabilityOf(p.Meta[metaCapabilities])
	c.insideOnly = true
	return c, true
}
