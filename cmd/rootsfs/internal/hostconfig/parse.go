package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/tomltree"
	"github.com/rootsfs/rootsfs/guard/names"
)

// MaxSize is the size of the largest document, in bytes. Claude Code keeps its history in the
// file of its servers, which grows to some megabytes.
const MaxSize = 32 << 20

// maxDepth bounds the nesting, because the parser recurses. The deepest value that is read is
// in projects, a directory, mcpServers, a server, args.
const maxDepth = 500

// bom is the byte order mark that some editors put before UTF-8.
const bom = "\xef\xbb\xbf"

// Error describes a mistake in a document, and its place.
type Error struct {
	Line int // counted from 1; 0: the mistake has no line, or the text of Err has it
	Err  error
}

// Error returns one line of text, such as "line 3: not UTF-8".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", e.Line, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Config is a parsed configuration.
type Config struct {
	Format  Format
	Servers []*Server // in the order of the document

	head     []byte                 // a byte order mark, or nothing
	body     []byte                 // the rest
	newlines []int                  // offsets of the line ends in body
	keys     map[int]*tomltree.Node // the keys of a TOML document, by the offset of the key's value
}

// Parse reads the document of the file at path. If path ends in .toml, the document is Codex's TOML.
// Otherwise the document is JSON, and its Format depends on its content and the last elements of path.
// A server counts as wrapped if its command has the name rootsfs, or is one of programs.
//
// The error is an *Error. A single server that cannot be read is no error of Parse: its Err
// says why.
func Parse(path string, doc []byte, programs ...string) (*Config, error) {
	c := &Config{body: doc}
	if bytes.HasPrefix(doc, []byte(bom)) {
		c.head, c.body = doc[:len(bom)], doc[len(bom):]
	}
	for i, b := range c.body {
		if b == '\n' {
			c.newlines = append(c.newlines, i)
		}
	}
	switch at := invalidUTF8(c.body); {
	case len(doc) > MaxSize:
		return nil, &Error{Err: fmt.Errorf("larger than the limit of %d bytes", MaxSize)}
	case at >= 0:
		return nil, c.errorf(at, "not UTF-8; save the file as UTF-8")
	}
	if filepath.Ext(path) == ".toml" {
		c.Format = Codex
		if err := c.parseTOML(programs); err != nil {
			return nil, err
		}
		return c, nil
	}
	if at := tooDeep(c.body); at >= 0 {
		return nil, c.errorf(at, "nested deeper than the limit of %d", maxDepth)
	}
	top, err := hujson.Parse(endLastLine(c.body))
	if err != nil {
		return nil, &Error{Err: fmt.Errorf("not JSON: %s", syntaxMessage(err))}
	}
	if err := c.checkKeys(&top); err != nil {
		return nil, err
	}
	if err := c.findServers(path, &top, programs); err != nil {
		return nil, err
	}
	c.Format = formatOf(path, &top)
	return c, nil
}

// endLastLine returns a document whose last line, if it may be a comment, ends in a newline. hujson
// requires that, and hosts do not.
func endLastLine(body []byte) []byte {
	if last := body[bytes.LastIndexByte(body, '\n')+1:]; bytes.Contains(last, []byte("//")) {
		return append(bytes.Clone(body), '\n')
	}
	return body
}

// syntaxMessage returns hujson's message, which begins with the place. The message quotes the
// document, so it is escaped.
func syntaxMessage(err error) string {
	const before, most = "invalid literal: ", 80
	text, literal, found := strings.Cut(strings.TrimPrefix(err.Error(), "hujson: "), before)
	if text = names.Escape(text); !found {
		return text
	}
	more := ""
	if len(literal) > most {
		literal, more = strings.ToValidUTF8(literal[:most], ""), "…"
	}
	return text + before + names.Quote(literal) + more
}

func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// tooDeep returns the offset of the first bracket beyond maxDepth, or -1. It skips strings and
// comments. The parser reports mistakes in them.
func tooDeep(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '/':
			i += commentLength(b[i:])
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// commentLength returns the length, without the last byte, of the comment at the beginning of b, or
// 0.
func commentLength(b []byte) int {
	end := ""
	switch {
	case bytes.HasPrefix(b, []byte("//")):
		end = "\n"
	case bytes.HasPrefix(b, []byte("/*")):
		end = "*/"
	default:
		return 0
	}
	n := bytes.Index(b[2:], []byte(end))
	if n < 0 {
		return len(b) - 1
	}
	return 2 + n + len(end) - 1
}

// line returns the line of an offset in the body.
func (c *Config) line(offset int) int { return 1 + sort.SearchInts(c.newlines, offset) }

func (c *Config) errorf(offset int, format string, args ...any) *Error {
	return &Error{Line: c.line(offset), Err: fmt.Errorf(format, args...)}
}

// checkKeys refuses a duplicate key, and the key __proto__. Hosts differ in how they read such
// documents, so the effect of a change would not be known.
func (c *Config) checkKeys(v *hujson.Value) error {
	for v := range v.All() {
		obj, ok := v.Value.(*hujson.Object)
		if !ok {
			continue
		}
		seen := make(map[string]int, len(obj.Members))
		for _, m := range obj.Members {
			name := text(&m.Name)
			if name == "__proto__" {
				return c.errorf(m.Name.StartOffset, "the key \"__proto__\" adds what it holds to the object around it, in some hosts; remove it")
			}
			if first, ok := seen[name]; ok {
				return c.errorf(m.Name.StartOffset, "the key %s is given twice, first in line %d; remove one of them", names.Quote(name), c.line(first))
			}
			seen[name] = m.Name.StartOffset
		}
	}
	return nil
}

// text returns the content of a string, and other literals as written.
func text(v *hujson.Value) string {
	l, _ := v.Value.(hujson.Literal)
	return l.String()
}

// member returns the value of the member of obj with the name, and the member's index, or nil and -1.
func member(obj *hujson.Object, name string) (*hujson.Value, int) {
	for i := range obj.Members {
		if text(&obj.Members[i].Name) == name {
			return &obj.Members[i].Value, i
		}
	}
	return nil, -1
}

// kindOf returns a word for the kind of a value, for messages.
func kindOf(v *hujson.Value) string {
	switch v.Value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "true or false"
}

// findServers reads all servers of a JSON document.
func (c *Config) findServers(path string, top *hujson.Value, programs []string) error {
	obj, ok := top.Value.(*hujson.Object)
	if !ok {
		return c.errorf(top.StartOffset, "%s, not the configuration of an MCP host, which is an object", kindOf(top))
	}
	found := false
	for i := range obj.Members {
		v := &obj.Members[i].Value
		var err error
		switch text(&obj.Members[i].Name) {
		case "mcpServers", "servers", "context_servers":
			found = true
			err = c.readServers(&obj.Members[i], "", false, programs)
		case "mcp":
			if m := mcpServers(path, &obj.Members[i]); m != nil {
				found = true
				err = c.readServers(m, "", true, programs)
			}
		case "projects":
			projects, ok := v.Value.(*hujson.Object)
			if !ok {
				continue // not Claude Code's
			}
			for j := range projects.Members {
				p, ok := projects.Members[j].Value.Value.(*hujson.Object)
				if !ok {
					continue
				}
				if _, k := member(p, "mcpServers"); k >= 0 {
					found = true
					if err := c.readServers(&p.Members[k], text(&projects.Members[j].Name), false, programs); err != nil {
						return err
					}
				}
			}
		}
		if err != nil {
			return err
		}
	}
	if found = c.addHostCommands("", top) || found; !found {
		return &Error{Err: errors.New(`has neither "mcpServers" nor "servers" nor "context_servers" nor "mcp": no MCP server is configured in it`)}
	}
	return nil
}

// addHostCommands looks in the object v for commands that Gemini CLI itself runs, and adds each to
// c.Servers with the Kind HostCommand. within is the path of v in the document, such as "tools.", or
// "" for the whole document. It reports whether it has found a command.
func (c *Config) addHostCommands(within string, v *hujson.Value) (found bool) {
	obj, ok := v.Value.(*hujson.Object)
	for i := 0; ok && i < len(obj.Members); i++ {
		m := &obj.Members[i]
		switch name := within + text(&m.Name); name {
		case "mcp.serverCommand", "mcpServerCommand", "tools.discoveryCommand", "tools.callCommand", "toolDiscoveryCommand", "toolCallCommand":
			found = true
			c.Servers = append(c.Servers, &Server{Name: names.Foreign(name), Line: c.line(m.Name.StartOffset), Kind: HostCommand})
		case "mcp", "tools":
			found = c.addHostCommands(name+".", &m.Value) || found
		}
	}
	return found
}

// mcpServers returns the member that holds the servers of "mcp": its member "servers" (VS
// Code's settings.json, opencode 2) or "mcp" itself (opencode). It returns nil if "mcp" holds
// no servers, as in Gemini CLI's file.
func mcpServers(path string, m *hujson.ObjectMember) *hujson.ObjectMember {
	obj, ok := m.Value.Value.(*hujson.Object)
	if named := strings.HasPrefix(filepath.Base(path), "opencode."); !ok || !named && !hasOnlyObjects(obj) {
		if named {
			return m
		}
		return nil
	}
	if v, i := member(obj, "servers"); v != nil {
		// A server may have the name "servers".
		if servers, ok := v.Value.(*hujson.Object); ok && hasOnlyObjects(servers) {
			return &obj.Members[i]
		}
	}
	return m
}

// hasOnlyObjects reports whether each member of obj is an object.
func hasOnlyObjects(obj *hujson.Object) bool {
	return !slices.ContainsFunc(obj.Members, func(m hujson.ObjectMember) bool { return m.Value.Value.Kind() != '{' })
}

// readServers reads the servers in a member. mcp says whether the servers are in "mcp".
func (c *Config) readServers(m *hujson.ObjectMember, project string, mcp bool, programs []string) error {
	obj, ok := m.Value.Value.(*hujson.Object)
	if !ok {
		return c.errorf(m.Value.StartOffset, "%s is %s; it should be an object of servers", names.Quote(text(&m.Name)), kindOf(&m.Value))
	}
	for i := range obj.Members {
		c.Servers = append(c.Servers, c.readServer(&obj.Members[i], project, mcp, programs))
	}
	return nil
}
