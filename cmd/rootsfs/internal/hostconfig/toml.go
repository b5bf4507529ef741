package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/guard/names"
)

// tomlValue is a key of a TOML document with its value. Offsets are in the body.
type tomlValue struct {
	path     []string // of the key, from the top of the document
	key      int      // where the key begins
	last     int      // where the last part of a dotted key begins
	from, to int      // the value
	kind     unstable.Kind
	text     string      // of a string
	elements []tomlValue // of an array
	inline   bool        // a key of an inline table
}

// tomlServer is where the members of a server stand that Wrap changes.
type tomlServer struct{ command, args *tomlValue }

// tomlReader collects the keys of a document in their order.
type tomlReader struct {
	c      *Config
	p      unstable.Parser
	values []tomlValue
	tables []tomlValue // headers
	seen   map[string]int
}

// parseTOML reads Codex's configuration.
func (c *Config) parseTOML(programs []string) error {
	r := &tomlReader{c: c, seen: map[string]int{}}
	r.p.Reset(c.body)
	var table []string
	for r.p.NextExpression() {
		e := r.p.Expression()
		if e.Kind == unstable.KeyValue {
			if err := r.keyValue(table, e, false); err != nil {
				return err
			}
			continue
		}
		h := tomlValue{kind: e.Kind}
		for keys := e.Key(); keys.Next(); {
			h.path = append(h.path, string(keys.Node().Data))
			h.key = int(keys.Node().Raw.Offset)
		}
		table = h.path
		if e.Kind == unstable.ArrayTable {
			// Each header begins another element, whose keys are its own.
			table = append(table, fmt.Sprintf("[%d]", len(r.tables)))
		} else if err := r.once(h); err != nil {
			return err
		}
		r.tables = append(r.tables, h)
	}
	if err := r.p.Error(); err != nil {
		return r.syntax(err)
	}
	c.toml = r.values
	return r.findServers(programs)
}

// syntax is the parser's error with its line.
func (r *tomlReader) syntax(err error) error {
	e := &Error{Err: fmt.Errorf("not TOML: %s", syntax(err))}
	var pe *unstable.ParserError
	if errors.As(err, &pe) && len(pe.Highlight) > 0 {
		e.Line = r.c.line(int(r.p.Range(pe.Highlight).Offset))
	}
	return e
}

// keyValue notes a key and, of an inline table, the keys in it.
func (r *tomlReader) keyValue(table []string, e *unstable.Node, inline bool) error {
	v := tomlValue{path: slices.Clone(table), inline: inline, key: int(e.Raw.Offset), to: int(e.Raw.Offset + e.Raw.Length)}
	for keys := e.Key(); keys.Next(); {
		n := keys.Node()
		v.path = append(v.path, string(n.Data))
		v.last = int(n.Raw.Offset)
		v.from = int(n.Raw.Offset + n.Raw.Length)
	}
	v.from += bytes.IndexByte(r.c.body[v.from:], '=') + 1
	for r.c.body[v.from] == ' ' || r.c.body[v.from] == '\t' {
		v.from++
	}
	if len(v.path) > maxDepth {
		return r.c.errorf(v.key, "nested deeper than the limit of %d", maxDepth)
	}
	if err := r.once(v); err != nil {
		return err
	}
	n := e.Value()
	v.kind, v.text = n.Kind, string(n.Data)
	if n.Kind == unstable.Array {
		for all := n.Children(); all.Next(); {
			raw := all.Node().Raw
			v.elements = append(v.elements, tomlValue{kind: all.Node().Kind, text: string(all.Node().Data),
				from: int(raw.Offset), to: int(raw.Offset + raw.Length)})
		}
	}
	r.values = append(r.values, v)
	if n.Kind == unstable.InlineTable {
		for all := n.Children(); all.Next(); {
			if err := r.keyValue(v.path, all.Node(), true); err != nil {
				return err
			}
		}
	}
	return nil
}

// once refuses a key that is given twice.
func (r *tomlReader) once(v tomlValue) error {
	key := strings.Join(v.path, "\x00")
	if first, ok := r.seen[key]; ok {
		return r.c.errorf(v.key, "the key %s is given twice, first in line %d; remove one of them", names.Quote(v.path[len(v.path)-1]), r.c.line(first))
	}
	r.seen[key] = v.key
	return nil
}

// tomlServers is the table in which Codex keeps its servers.
const tomlServers = "mcp_servers"

// findServers reads the servers, in the order in which the document names them.
func (r *tomlReader) findServers(programs []string) error {
	found := false
	order := []string{}
	first := map[string]int{}
	members := map[string][]*tomlValue{}
	note := func(v *tomlValue, isTable bool) error {
		if v.path[0] != tomlServers {
			return nil
		}
		found = true
		if len(v.path) == 1 {
			if !isTable {
				return r.c.errorf(v.key, "%s should be a table of servers", names.Quote(tomlServers))
			}
			return nil
		}
		name := v.path[1]
		if _, ok := first[name]; !ok {
			order = append(order, name)
			first[name] = v.key
		}
		first[name] = min(first[name], v.key)
		if len(v.path) > 2 || !isTable {
			members[name] = append(members[name], v)
		}
		return nil
	}
	for i := range r.values {
		if err := note(&r.values[i], r.values[i].kind == unstable.InlineTable); err != nil {
			return err
		}
	}
	for i := range r.tables {
		if err := note(&r.tables[i], r.tables[i].kind == unstable.Table); err != nil {
			return err
		}
	}
	if !found {
		return &Error{Err: fmt.Errorf("has no %q: no MCP server is configured in it", tomlServers)}
	}
	slices.SortStableFunc(order, func(a, b string) int { return first[a] - first[b] })
	for _, name := range order {
		s := &Server{Name: names.Foreign(name), Line: r.c.line(first[name]), toml: &tomlServer{}}
		if err := r.fill(s, first[name], members[name], programs); err != nil {
			s = &Server{Name: names.Foreign(name), Line: s.Line, Err: err}
		}
		r.c.Servers = append(r.c.Servers, s)
	}
	return nil
}

// fill reads the members of a server. Members that are not known are left alone.
func (r *tomlReader) fill(s *Server, at int, members []*tomlValue, programs []string) error {
	remote := false
	for _, v := range members {
		if len(v.path) == 2 {
			return r.c.errorf(v.key, "server %s should be a table", names.Quote(s.Name))
		}
		var err error
		switch key := v.path[2]; {
		case len(v.path) == 4 && key == "env":
			err = r.variable(s, v)
		case len(v.path) > 3:
		case key == "url":
			remote = true
		case key == "command":
			s.toml.command = v
			s.Command, err = r.text(s, v)
		case key == "cwd":
			s.Dir, err = r.text(s, v)
		case key == "args":
			s.toml.args = v
			s.Args, err = r.texts(s, v)
		case key == "env" && v.kind != unstable.InlineTable && v.kind != unstable.Table:
			err = r.c.errorf(v.key, "\"env\" of server %s should be a table", names.Quote(s.Name))
		case key == "env_vars":
			r.forwarded(s, v)
		}
		if err != nil {
			return err
		}
	}
	if done, err := r.c.decide(s, at, s.toml.command != nil, remote); done || err != nil {
		return err
	}
	s.recognise(programs)
	return nil
}

// variable notes a name in "env".
func (r *tomlReader) variable(s *Server, v *tomlValue) error {
	name := v.path[3]
	text, err := r.text(s, v)
	switch {
	case err != nil:
	case name != "" && !strings.ContainsAny(name, "=\x00"):
		s.Env = append(s.Env, name)
		s.values = append(s.values, text)
	}
	s.set = append(s.set, variable{name, text})
	return err
}

// forwarded notes the names of the host's own variables that it lets through
// ("env_vars"). Entries of another form than a name are the host's affair.
func (r *tomlReader) forwarded(s *Server, v *tomlValue) {
	for _, e := range v.elements {
		if e.kind == unstable.String && e.text != "" && !strings.ContainsAny(e.text, "=\x00") && !slices.Contains(s.Env, e.text) {
			s.Env = append(s.Env, e.text)
			s.values = append(s.values, "")
		}
	}
}

func (r *tomlReader) text(s *Server, v *tomlValue) (string, error) {
	if v.kind != unstable.String {
		return "", r.c.errorf(v.key, "%s of server %s should be a text", names.Quote(v.path[len(v.path)-1]), names.Quote(s.Name))
	}
	return v.text, nil
}

func (r *tomlReader) texts(s *Server, v *tomlValue) ([]string, error) {
	if v.kind != unstable.Array {
		return nil, r.c.errorf(v.key, "\"args\" of server %s should be a list of texts", names.Quote(s.Name))
	}
	var list []string
	for i, e := range v.elements {
		if e.kind != unstable.String {
			return nil, r.c.errorf(v.key, "argument %d of server %s should be a text", i+1, names.Quote(s.Name))
		}
		list = append(list, e.text)
	}
	return list, nil
}

// tomlString is a basic string of TOML. JSON's strings are such, but for DEL.
func tomlString(s string) string {
	return strings.ReplaceAll(string(hujson.String(s)), "\x7f", `\u007f`)
}

// wrapTOML does what wrap does. A missing "args" is written before the command, so
// that a comment behind the command stays there.
func (c *Config) wrapTOML(s *Server, program string, h How) []edit {
	command, args := s.toml.command, s.toml.args
	var words []string
	for _, a := range h.args() {
		words = append(words, tomlString(a))
	}
	words = append(words, string(c.body[command.from:command.to]))
	first := edit{command.from, command.to, tomlString(program)}
	switch {
	case args == nil:
		key := string(c.body[command.key:command.last]) + "args = [ " + strings.Join(words, ", ") + " ]"
		return []edit{first, {command.key, command.key, key + c.gap(command)}}
	case len(args.elements) == 0:
		// Right after the bracket; see unwrapTOML.
		return []edit{first, {args.from + 1, args.from + 1, strings.Join(words, ", ")}}
	}
	at := args.elements[0].from
	sep := ", "
	if line, ok := c.lineStart(at); ok {
		sep = "," + line
	}
	return []edit{first, {at, at, strings.Join(words, sep) + sep}}
}

// gap is what stands between a new key and v: a line end with the indentation of v,
// and in an inline table a comma.
func (c *Config) gap(v *tomlValue) string {
	line, ok := c.lineStart(v.key)
	switch {
	case v.inline && ok:
		return "," + line
	case v.inline:
		return ", "
	case ok:
		return line
	}
	return "\n" // the document's first line
}

// lineStart is the line end and the indentation before an offset; false if something
// else stands before it in its line, or if it is in the first line.
func (c *Config) lineStart(at int) (string, bool) { return newline(hujson.Extra(c.body[:at])) }

// unwrapTOML does what unwrap does; argument i is the command. A list of arguments of
// which none was the server's own goes if Wrap wrote it: before the command, with white
// space after its bracket.
func (c *Config) unwrapTOML(s *Server, i int) []edit {
	command, args := s.toml.command, s.toml.args
	list := args.elements
	first := edit{command.from, command.to, string(c.body[list[i].from:list[i].to])}
	if i+1 < len(list) {
		return []edit{first, {list[0].from, list[i+1].from, ""}}
	}
	if args.to <= command.key && c.body[args.from+1] == ' ' && len(bytes.Trim(c.body[args.to:command.key], ", \t\r\n")) == 0 {
		return []edit{first, {args.key, command.key, ""}}
	}
	end := list[i].to
	if rest := bytes.TrimLeft(c.body[end:args.to], " \t\r\n"); rest[0] == ',' {
		end = args.to - len(rest) + 1
	}
	return []edit{first, {list[0].from, end, ""}}
}

// shownTOML are the edits that blot out the values of variables and headers.
func (c *Config) shownTOML() []edit {
	var edits []edit
	for _, v := range c.toml {
		if len(v.path) == 4 && v.path[0] == tomlServers && (v.path[2] == "env" || v.path[2] == "http_headers") && v.kind == unstable.String && v.text != "" {
			edits = append(edits, edit{v.from, v.to, `"…"`})
		}
	}
	return edits
}
