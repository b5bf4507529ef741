package hostconfig

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// RunFlags has the flags of `rootsfs run` for starting a server.
type RunFlags struct {
	Name  string   // of the run; "": the name of the command
	Roots []string // SPECs
	Env   []string // names, or NAME=VALUE
	Home  string   // a lasting directory for HOME; "": a new one each time
	Net   bool
}

// args returns the arguments of rootsfs that stand before the server's own command.
func (h RunFlags) args() []string {
	list := []string{"run"}
	if h.Name != "" {
		list = append(list, option("--name", h.Name)...)
	}
	if h.Net {
		list = append(list, "--net")
	}
	if h.Home != "" {
		list = append(list, option("--home", h.Home)...)
	}
	for _, spec := range h.Roots {
		list = append(list, option("--root", spec)...)
	}
	for _, name := range h.Env {
		list = append(list, option("--env", name)...)
	}
	return append(list, "--")
}

// option returns a flag as two arguments, or as one if the value looks like a flag itself: a
// variable can have the name "--".
func option(name, value string) []string {
	if strings.HasPrefix(value, "-") {
		return []string{name + "=" + value}
	}
	return []string{name, value}
}

// edit replaces body[from:to].
type edit struct {
	from, to int
	text     string
}

// apply returns the document with the edits, which must not overlap.
func (c *Config) apply(edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return a.from - b.from })
	out := bytes.Clone(c.head)
	at := 0
	for _, e := range edits {
		out = append(append(out, c.body[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, c.body[at:]...)
}

// Wrap returns the document in which program starts the servers in flags. Servers that are not
// Stdio, or have an Err, are left as they are.
func (c *Config) Wrap(program string, flags map[*Server]RunFlags) []byte {
	var edits []edit
	for s, h := range flags {
		if s.Kind == Stdio && s.Err == nil {
			edits = append(edits, c.wrap(s, program, h)...)
		}
	}
	return c.apply(edits)
}

// wrap moves the server's command, as written, behind the flags in its arguments, and writes
// program as the command.
func (c *Config) wrap(s *Server, program string, h RunFlags) []edit {
	if s.listed {
		return c.wrapListed(s, program, h)
	}
	command := &s.obj.Members[s.command].Value
	var words []string
	for _, a := range h.args() {
		words = append(words, quoted(a))
	}
	words = append(words, c.raw(command))
	first := edit{command.StartOffset, command.EndOffset, quoted(program)}
	switch {
	case s.args < 0 && c.Format == Codex:
		return []edit{first, c.newKey(command, words)}
	case s.args < 0:
		first.text += c.newArgs(s, words)
		return []edit{first}
	}
	list := s.obj.Members[s.args].Value
	if len(s.list.Elements) == 0 {
		// Insert right after the bracket; see removeArgs.
		at := list.StartOffset + 1
		return []edit{first, {at, at, strings.Join(words, ", ")}}
	}
	// Insert right before the first argument, so that a comment above the arguments stays above them.
	at := s.list.Elements[0].StartOffset
	sep := "," + separator(s.list)
	return []edit{first, {at, at, strings.Join(words, sep) + sep}}
}

// wrapListed puts program and the flags in front of a command that is a list.
func (c *Config) wrapListed(s *Server, program string, h RunFlags) []edit {
	at := s.list.Elements[0].StartOffset
	sep := "," + separator(s.list)
	text := ""
	for _, word := range append([]string{program}, h.args()...) {
		text += quoted(word) + sep
	}
	return []edit{{at, at, text}}
}

// quoted returns a text as a string of JSON and TOML. Only TOML requires that DEL is escaped.
func quoted(s string) string {
	return strings.ReplaceAll(string(hujson.String(s)), "\x7f", `\u007f`)
}

// raw returns a value as written.
func (c *Config) raw(v *hujson.Value) string { return string(c.body[v.StartOffset:v.EndOffset]) }

// newArgs returns the member "args" for a server without it, in the style of the object around
// it. White space after the bracket tells Unwrap that Wrap has added the member.
func (c *Config) newArgs(s *Server, words []string) string {
	m := &s.obj.Members[s.command]
	colon := ": "
	if len(m.Value.BeforeExtra) == 0 {
		colon = ":"
	}
	if line, ok := newline(m.Name.BeforeExtra); ok {
		inner := s.deeper(line)
		return "," + line + `"args"` + colon + "[" + inner + strings.Join(words, ","+inner) + line + "]"
	}
	gap := " "
	if colon == ":" {
		gap = ""
	}
	return "," + gap + `"args"` + colon + "[ " + strings.Join(words, ","+gap) + gap + "]"
}

// separator returns the white space before the arguments of a list.
func separator(list *hujson.Array) string {
	if line, ok := newline(list.Elements[0].BeforeExtra); ok {
		return line
	}
	if len(list.Elements) > 1 {
		if extra := list.Elements[1].BeforeExtra; extra.IsStandard() && !bytes.Contains(extra, []byte("\n")) {
			return string(extra)
		}
	}
	return " "
}

// newline returns the last line end in the white space and comments of extra, with the
// indentation after it. It reports false if there is none, or if a comment follows it.
func newline(extra hujson.Extra) (string, bool) {
	i := bytes.LastIndexByte(extra, '\n')
	if i < 0 || len(bytes.Trim(extra[i:], "\n\t ")) > 0 {
		return "", false
	}
	if i > 0 && extra[i-1] == '\r' {
		i--
	}
	return string(extra[i:]), true
}

// deeper returns line with one more level of indentation. The indentation of the server's members
// shows how deep a level is.
func (s *Server) deeper(line string) string {
	step, ok := strings.CutPrefix(line, s.outer)
	if !ok || step == "" || s.outer == "" {
		step = "  "
	}
	return line + step
}

// Unwrap returns the document in which their own commands start the servers again. Servers that
// are not wrapped, or whose own command is not known (Server.Inner), are left as they are.
func (c *Config) Unwrap(servers []*Server) []byte {
	var edits []edit
	for _, s := range servers {
		if i, ok := s.Inner(); ok {
			edits = append(edits, c.unwrap(s, i)...)
		}
	}
	return c.apply(edits)
}

// unwrap moves the server's own command, which is argument i, back to its place, as written.
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
	return append([]edit{first}, c.removeArgs(s)...)
}

// removeArgs removes what Wrap has added for a server without arguments of its own: the whole member
// "args", or only the elements if the list was there before and was empty. Wrap leaves white space
// after the bracket of a new list, and none after the bracket of a list that was there. So Unwrap
// knows which of the two to remove. If an editor has changed the white space since, either result
// means the same to the host.
func (c *Config) removeArgs(s *Server) []edit {
	value := &s.obj.Members[s.args].Value
	list := s.list.Elements
	last := &list[len(list)-1]
	if from, to, isNew := c.memberSpan(s); isNew {
		return []edit{{from, to, ""}}
	}
	edits := []edit{{list[0].StartOffset, last.EndOffset, ""}}
	// A comma after the last argument is removed, too.
	if end := value.EndOffset - 1 - len(s.list.AfterExtra); c.body[end-1] == ',' && end > last.EndOffset {
		edits = append(edits, edit{end - 1, end, ""})
	}
	return edits
}

// memberSpan returns the span of the member args, with one comma. isNew reports whether Wrap
// can have added the member.
func (c *Config) memberSpan(s *Server) (from, to int, isNew bool) {
	m := &s.obj.Members[s.args]
	switch {
	case c.Format == Codex:
		return c.newKeySpan(&s.obj.Members[s.command].Value, &m.Value)
	case s.args == 0: // a member follows, because the server also has a command
		from, to = m.Name.StartOffset, s.obj.Members[1].Name.StartOffset
	default:
		before := &s.obj.Members[s.args-1].Value
		from, to = before.EndOffset+len(before.AfterExtra), m.Value.EndOffset
	}
	return from, to, len(s.list.Elements[0].BeforeExtra) > 0 && !hasComment(c.body[from:to])
}

// hasComment reports whether a piece of a document, cut between values, has a comment. Text in
// strings does not count.
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

// WithoutSecrets returns the document without secrets: "…" replaces the texts in the members of
// secretKeys. A text that consists of variables, such as ${NAME}, stays if the host replaces the
// variables.
func (c *Config) WithoutSecrets() []byte {
	var edits []edit
	for _, s := range c.Servers {
		for _, key := range secretKeys {
			obj := s.object(key)
			for i := 0; obj != nil && i < len(obj.Members); i++ {
				v := &obj.Members[i].Value
				if l, ok := v.Value.(hujson.Literal); ok && len(l) > len(`""`) && l.Kind() == '"' && !isVariable(c.Format, l.String()) {
					edits = append(edits, edit{v.StartOffset, v.EndOffset, `"…"`})
				}
			}
		}
	}
	return c.apply(edits)
}

// object returns the member of the server if it is an object, else nil.
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
