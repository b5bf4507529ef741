package broker

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// Capability is what the extension's entry in the capabilities says, for servers
// that want to know before they try. Servers rarely see roots.filesystemBrokering
// itself: the SDKs drop what they do not know, but keep extensions.
type Capability struct {
	Methods  []string `json:"methods"`
	MaxChunk int64    `json:"maxChunk,omitempty"` // bytes of one read or write
	MaxFile  int64    `json:"maxFile,omitempty"`
	Watches  int      `json:"watches,omitempty"`
	InFlight int      `json:"inFlight,omitempty"`
	Uploads  bool     `json:"uploads"`
	ETags    bool     `json:"etags"`
}

func (s *Session) capability() Capability {
	c := Capability{
		Methods: []string{
			wire.Consent, wire.Read, wire.Write, wire.List, wire.Create, wire.Delete, wire.Rename,
			wire.Watch, wire.Unwatch, wire.Stat, wire.Copy,
		},
		MaxChunk: max(0, s.limits.MaxChunk), MaxFile: max(0, s.limits.MaxFile),
		Watches: max(0, s.limits.Watches), InFlight: max(0, s.limits.InFlight), Uploads: true, ETags: true,
	}
	return c
}

// outgoing looks at a message on its way to the server, and returns its params
// with our capabilities among the client's: in initialize, or, since 2026-07-28,
// in the _meta of every request. keep is false for what must not be sent: the
// SDK's own list_changed, which would come beside ours.
func (s *Session) outgoing(method string, params []byte) (out []byte, keep bool) {
	switch {
	case method == wire.RootsChanged:
		return params, false
	case method == "initialize":
		return jsonline.Merge(params, jsonline.Patch{Key: "capabilities", Members: s.capabilities(true)}), true
	case bytes.Contains(params, []byte(`"`+mcp.MetaKeyClientCapabilities+`"`)):
		s.SetPeer(textAt(params, "_meta", mcp.MetaKeyProtocolVersion), "")
		return jsonline.Merge(params, jsonline.Patch{Key: "_meta", Members: []jsonline.Patch{
			{Key: mcp.MetaKeyClientCapabilities, Members: s.capabilities(false)},
		}}), true
	}
	return params, true
}

// capabilities returns what the client's capabilities get: roots, and the extension. With
// NoRoots, the roots that the SDK declares are taken out. Revisions without a handshake
// have no list_changed, and no field for it.
func (s *Session) capabilities(handshake bool) []jsonline.Patch {
	if s.b.cfg.NoRoots {
		return []jsonline.Patch{{Key: "roots", Drop: true}}
	}
	roots := jsonline.Patch{Key: "roots", Value: []byte(`{}`)}
	if handshake {
		roots.Value = fmt.Appendf(nil, `{"listChanged":%t,"filesystemBrokering":true}`, !s.b.cfg.NoListChanged)
	}
	return []jsonline.Patch{roots, {Key: "extensions", Members: []jsonline.Patch{{Key: wire.Extension, Value: s.Extension()}}}}
}

const longestServer = 200 // bytes of a name that a person reads

// incoming looks at an answer on its way to the SDK: the one of initialize says who the
// server is and which revision is spoken. keys lead to the result in b.
func (s *Session) incoming(b []byte, keys ...string) {
	if !bytes.Contains(b, []byte(`"serverInfo"`)) {
		return
	}
	text := func(more ...string) string { return textAt(b, slices.Concat(keys, more)...) }
	revision := text("protocolVersion")
	name := text("serverInfo", "name") + " " + text("serverInfo", "version")
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != "" && s.server == "" {
		s.revision, s.server = revision, name[:min(len(name), longestServer)]
	}
}

// textAt returns a string in an object, "" if there is none.
func textAt(object []byte, keys ...string) string {
	whole := jsonline.Span{From: jsonline.SkipSpace(object, 0), To: len(object)}
	at, _ := jsonline.Lookup(object, whole, keys...)
	return string(jsonline.Unquote(at.Of(object)))
}
