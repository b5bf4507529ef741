package broker

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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
		return edit(params, "capabilities", s.advertise(true)), true
	case bytes.Contains(params, []byte(`"`+mcp.MetaKeyClientCapabilities+`"`)):
		s.learnRevision(params)
		return edit(params, "_meta", func(meta []byte) []byte {
			return edit(meta, mcp.MetaKeyClientCapabilities, s.advertise(false))
		}), true
	}
	return params, true
}

// advertise returns the editor of a capabilities object. Revisions without
// list_changed have no field for it.
func (s *Session) advertise(handshake bool) func([]byte) []byte {
	if s.b.cfg.NoRoots { // the SDK declares them by itself
		return func(caps []byte) []byte { return edit(caps, "roots", func([]byte) []byte { return nil }) }
	}
	return func(caps []byte) []byte {
		roots := func([]byte) []byte {
			if !handshake {
				return []byte(`{}`)
			}
			b, _ := json.Marshal(struct {
				ListChanged bool `json:"listChanged"`
				Brokering   bool `json:"filesystemBrokering"`
			}{!s.b.cfg.NoListChanged, true})
			return b
		}
		caps = edit(caps, "roots", roots)
		return edit(caps, "extensions", func(ext []byte) []byte {
			return edit(ext, wire.Extension, func([]byte) []byte {
				b, _ := json.Marshal(s.capability())
				return b
			})
		})
	}
}

// edit replaces one member of a JSON object by what f makes of it, or takes it out
// for nil; an object that is absent is made. What is no object stays as it is.
func edit(object []byte, key string, f func([]byte) []byte) []byte {
	fields := map[string]json.RawMessage{}
	if t := bytes.TrimSpace(object); len(t) > 0 && !bytes.Equal(t, []byte("null")) {
		if json.Unmarshal(object, &fields) != nil {
			return object
		}
	}
	if fields[key] = f(fields[key]); fields[key] == nil {
		delete(fields, key)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return object
	}
	return b
}

// learnRevision takes the revision from a request that carries its own.
func (s *Session) learnRevision(params []byte) {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var v string
	if json.Unmarshal(params, &p) == nil && json.Unmarshal(p.Meta[mcp.MetaKeyProtocolVersion], &v) == nil {
		s.mu.Lock()
		s.revision = v
		s.mu.Unlock()
	}
}

const longestServer = 200 // bytes of a name that a person reads

// incomingFrame is incoming for a whole response.
func (s *Session) incomingFrame(frame []byte) {
	if !bytes.Contains(frame, []byte(`"protocolVersion"`)) {
		return
	}
	var f struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal(frame, &f) == nil {
		s.incoming(f.Result)
	}
}

// incoming looks at a result on its way to the SDK: the one of initialize says
// who the server is and which revision is spoken.
func (s *Session) incoming(result []byte) {
	if !bytes.Contains(result, []byte(`"protocolVersion"`)) || !bytes.Contains(result, []byte(`"serverInfo"`)) {
		return
	}
	var r struct {
		ProtocolVersion string `json:"protocolVersion"`
		ServerInfo      struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	if json.Unmarshal(result, &r) != nil || r.ProtocolVersion == "" {
		return
	}
	name := r.ServerInfo.Name + " " + r.ServerInfo.Version
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == "" {
		s.revision, s.server = r.ProtocolVersion, name[:min(len(name), longestServer)]
	}
}
