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
	switch {
	case s.toml != nil:
		return c.unwrapTOML(s, i)
	case s.listed: // the first element is the program
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
	from, to := c.memberSpan(s)
	keep := len(list[0].BeforeExtra) == 0 || hasComment(c.body[from:to])
	if !keep {
		return []edit{{from, to, ""}}
	}
	edits := []edit{{list[0].StartOffset, last.EndOffset, ""}}
	// A comma after the last argument goes, too.
	if end := value.EndOffset - 1 - len(s.list.AfterExtra); c.body[end-1] == ',' && end > last.EndOffset {
		edits = append(edits, edit{end - 1, end, ""})
	}
	return edits
}

// memberSpan is where args stands, with one comma.
func (c *Config) memberSpan(s *Server) (from, to int) {
	m := &s.obj.Members[s.args]
	if s.args == 0 {
		// There is another member: the command.
		return m.Name.StartOffset, s.obj.Members[1].Name.StartOffset
	}
	before := &s.obj.Members[s.args-1].Value
	return before.EndOffset + len(before.AfterExtra), m.Value.EndOffset
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

// Shown is the document as it may be shown: the values in "env", "environment" and "headers" of
// servers, which hold keys and tokens, are dots. Values that only name a variable
// (${…}) stay.
func (c *Config) Shown() []byte {
	edits := c.shownTOML()
	for _, s := range c.Servers {
		if s.obj == nil {
			continue
		}
		for _, key := range []string{"env", "environment", "headers"} {
			v, _ := member(s.obj, key)
			if v == nil {
				continue
			}
			obj, ok := v.Value.(*hujson.Object)
			if !ok {
				continue
			}
			for i := range obj.Members {
				v := &obj.Members[i].Value
				if l, ok := v.Value.(hujson.Literal); ok && len(l) > len(`""`) && l.Kind() == '"' && !bytes.Contains(l, []byte("${")) && !bytes.HasPrefix(l, []byte(`"{env:`)) {
					edits = append(edits, edit{v.StartOffset, v.EndOffset, `"…"`})
				}
			}
		}
	}
	return c.apply(edits)
}
