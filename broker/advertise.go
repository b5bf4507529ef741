package broker

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// Capability is the value of the extension wire.Extension in the client's capabilities. It tells
// servers which methods and limits the broker has. Servers rarely see the capability of SEP-1708,
// roots.filesystemBrokering: the SDKs drop unknown fields, but keep extensions.
type Capability struct {
	Methods  []string `json:"methods"`
	MaxChunk int64    `json:"maxChunk,omitempty"` // bytes of one read or write
	MaxFile  int64    `json:"maxFile,omitempty"`
	Watches  int      `json:"watches,omitempty"`
	InFlight int      `json:"inFlight,omitempty"`
	Uploads  bool     `json:"uploads"`
	ETags    bool     `json:"etags"`
}

func (l *Limits) capability() Capability {
	return Capability{
		Methods: []string{
			wire.Consent, wire.Read, wire.Write, wire.List, wire.Create, wire.Delete, wire.Rename,
			wire.Watch, wire.Unwatch, wire.Stat, wire.Copy,
		},
		MaxChunk: max(0, l.MaxChunk), MaxFile: max(0, l.MaxFile),
		Watches: max(0, l.Watches), InFlight: max(0, l.InFlight), Uploads: true, ETags: true,
	}
}

// advertise returns the change that adds the broker's capabilities to the client's. If handshake
// is set, the change is for the params of initialize, else for the _meta of a request: since the
// revision 2026-07-28 of the protocol each request carries the client's capabilities there. That
// revision has no list_changed, so the roots capability in a request has no listChanged. With
// NoRoots the change removes the client's own roots capability, and adds nothing.
func (c *Config) advertise(handshake bool) jsonline.Patch {
	object := func(key string, members ...jsonline.Patch) jsonline.Patch {
		return jsonline.Patch{Key: key, Members: members}
	}
	extension, _ := json.Marshal(c.Limits.capability()) // strings and numbers only: cannot fail
	all := []jsonline.Patch{{Key: "roots", Value: []byte(`{}`)}, object("extensions", jsonline.Patch{Key: wire.Extension, Value: extension})}
	if handshake {
		all[0] = object("roots",
			jsonline.Patch{Key: "listChanged", Value: strconv.AppendBool(nil, !c.NoListChanged)},
			jsonline.Patch{Key: "filesystemBrokering", Value: []byte("true")})
	}
	if c.NoRoots {
		all = []jsonline.Patch{{Key: "roots", Drop: true}}
	}
	if handshake {
		return object("params", object("capabilities", all...))
	}
	return object("params", object("_meta", object(mcp.MetaKeyClientCapabilities, all...)))
}

// Advertise returns the change that adds the broker's capabilities to a message of the
// client: to initialize if handshake is set, else to a request that carries the client's
// capabilities.
func (s *Session) Advertise(handshake bool) jsonline.Patch {
	if handshake {
		return s.b.inHandshake
	}
	return s.b.inRequest
}

// rewriteParams adds the broker's capabilities to the params of a message to the server. keep is
// false for a message that must not be sent: the SDK's own list_changed, because the session
// sends list_changed itself. If a request carries the client's capabilities and the revision of
// the protocol, rewriteParams records the revision.
func (s *Session) rewriteParams(method string, params []byte) (out []byte, keep bool) {
	switch {
	case method == wire.RootsChanged:
		return params, false
	case method == "initialize":
		return jsonline.Merge(params, s.Advertise(true).Members...), true
	case bytes.Contains(params, []byte(`"`+mcp.MetaKeyClientCapabilities+`"`)):
		s.SetPeer(textAt(params, "_meta", mcp.MetaKeyProtocolVersion), "")
		return jsonline.Merge(params, s.Advertise(false).Members...), true
	}
	return params, true
}

const maxServerName = 200 // bytes of a server's name and version together, which people read

// noteServerInfo records the server's name and version, and the revision of the protocol, if the
// result in b has them. The result of initialize has all three, and that of server/discover has
// the name and version in its _meta. b is an answer to the SDK, or only its result. keys are the
// path to the result in b. Once a name is recorded, noteServerInfo changes nothing.
func (s *Session) noteServerInfo(b []byte, keys ...string) {
	if !bytes.Contains(b, []byte(`serverInfo"`)) {
		return
	}
	text := func(more ...string) string { return textAt(b, slices.Concat(keys, more)...) }
	revision, info := text("protocolVersion"), []string{"serverInfo"}
	if revision == "" {
		info = []string{"_meta", mcp.MetaKeyServerInfo}
	}
	name := text(append(info, "name")...)
	if name == "" {
		return
	}
	name += " " + text(append(info, "version")...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != "" {
		return
	}
	s.server = name[:min(len(name), maxServerName)]
	if revision != "" {
		s.revision = revision
	}
}

// textAt returns the string at the path keys in object, "" if there is none.
func textAt(object []byte, keys ...string) string {
	whole := jsonline.Span{From: jsonline.SkipSpace(object, 0), To: len(object)}
	at, _ := jsonline.Lookup(object, whole, keys...)
	return string(jsonline.Unquote(at.Of(object)))
}
