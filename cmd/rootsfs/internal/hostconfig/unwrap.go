package hostconfig

import (
	"bytes"

	"github.com/tailscale/hujson"
)

// Unwrap returns the document with the servers started by their own commands
// again. Servers that are not wrapped, or not in a form that says what they were
// (Server.Inner), are left as they are.
func (c *Config) Unwrap(servers []*Server) []byte {
	var edits []edit
	for _, s := range servers {
		if i, ok := s.Inner(); ok {
			edits = append(edits, c.unwrap(s, i)...)
		}
	}
	return c.apply(edits)
}

// unwrap puts the command, which is argument i, back, as it is written.
func (c *Config) unwrap(s *Server, i int) []edit {
	if s.listed { // the first element is the program
		return []edit{{s.list.Elements[0].StartOffset, s.list.Elements[i+1].StartOffset, ""}}
	}
	command := &s.obj.Members[s.command].Value
	list := s.list.Elements
	first := edit{command.StartOffset, command.EndOffset, c.raw(&list[i])}
	if i+1 < len(list) {
		return []edit{first, {list[0].StartOffset, list[i+1].StartOffset, ""}}
	}
	return append([]edit{first}, c.emptied(s)...)
}

// emptied takes away a list of arguments of which none was the server's own. Wrap
// writes into an empty list without white space after the bracket, and a new one
// with some, so that each becomes what it was. What a person's editor made of it
// since means the same either way.
func (c *Config) emptied(s *Server) []edit {
	value := &s.obj.Members[s.args].Value
	list := s.list.Elements
	last := &list[len(list)-1]
	if from, to, isNew := c.memberSpan(s); isNew {
		return []edit{{from, to, ""}}
	}
	edits := []edit{{list[0].StartOffset, last.EndOffset, ""}}
	// A comma after the last argument goes, too.
	if end := value.EndOffset - 1 - len(s.list.AfterExtra); c.body[end-1] == ',' && end > last.EndOffset {
		edits = append(edits, edit{end - 1, end, ""})
	}
	return edits
}

// memberSpan is where args stands, with one comma. isNew reports whether it can be taken
// for a list that Wrap has added.
func (c *Config) memberSpan(s *Server) (from, to int, isNew bool) {
	m := &s.obj.Members[s.args]
	switch {
	case c.Format == Codex:
		return c.newKeySpan(&s.obj.Members[s.command].Value, &m.Value)
	case s.args == 0: // there is another member: the command
		from, to = m.Name.StartOffset, s.obj.Members[1].Name.StartOffset
	default:
		before := &s.obj.Members[s.args-1].Value
		from, to = before.EndOffset+len(before.AfterExtra), m.Value.EndOffset
	}
	return from, to, len(s.list.Elements[0].BeforeExtra) > 0 && !hasComment(c.body[from:to])
}

// hasComment reports whether a piece of a document, cut between values, has a
// comment. Those within strings are none.
func hasComment(b []byte) bool {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '/':
			return true
		}
	}
	return false
}

// secretKeys are the members of a server whose values hold keys and tokens.
var secretKeys = []string{"env", "environment", "headers", "http_headers"}

// Shown is the document as it may be shown: the values in secretKeys are dots. Values that
// only name a variable (${…}) stay, where the host expands them.
func (c *Config) Shown() []byte {
	var edits []edit
	for _, s := range c.Servers {
		for _, key := range secretKeys {
			obj := s.object(key)
			for i := 0; obj != nil && i < len(obj.Members); i++ {
				v := &obj.Members[i].Value
				if l, ok := v.Value.(hujson.Literal); ok && len(l) > len(`""`) && l.Kind() == '"' && !c.isVariable(l) {
					edits = append(edits, edit{v.StartOffset, v.EndOffset, `"…"`})
				}
			}
		}
	}
	return c.apply(edits)
}

// object is the object that a member of the server is, nil if it is none.
func (s *Server) object(key string) *hujson.Object {
	if s.obj == nil {
		return nil
	}
	v, _ := member(s.obj, key)
	if v == nil {
		return nil
	}
	obj, _ := v.Value.(*hujson.Object)
	return obj
}

// isVariable reports whether a text names a variable that the host expands. Codex expands
// none.
func (c *Config) isVariable(text hujson.Literal) bool {
	return c.Format != Codex && (bytes.Contains(text, []byte("${")) || bytes.HasPrefix(text, []byte(`"{env:`)))
}
