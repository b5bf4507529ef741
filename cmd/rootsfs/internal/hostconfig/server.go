package hostconfig

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Kind is the way in which a host reaches a server.
type Kind int

// The kinds.
const (
	Stdio       Kind = iota // started by the host
	Wrapped                 // started by the host through rootsfs
	Remote                  // reached over HTTP, server-sent events or a socket
	Extension               // started by an extension of the host (Zed)
	Elsewhere               // switched on or off here, defined in another file (opencode)
	HostCommand             // no server: a command that the host itself runs, beside its servers (Gemini CLI)
)

// Server is one server of a configuration.
type Server struct {
	Name    names.Foreign
	Project names.Foreign // the project that it belongs to (~/.claude.json); "": all
	Line    int           // of its name
	Kind    Kind
	Type    names.Foreign // as written: stdio, http, sse, …; "": it is missing
	Command names.Foreign // of a Stdio or Wrapped server, like Args and Env
	Args    []names.Foreign
	Env     []names.Foreign // names of the variables that the host passes to the server
	EnvFile names.Foreign
	Dir     names.Foreign // "cwd"
	// HeadersHelper: the server has a command that the host itself runs (Claude Code).
	HeadersHelper bool
	// Err is an *Error if the server cannot be read. Then only Name, Project and Line are set.
	Err error

	obj     *hujson.Object
	command int           // index of the member "command"
	args    int           // index of the member "args"; -1: it is missing
	values  []string      // of Env
	set     []variable    // the variables that "env" sets or removes
	list    *hujson.Array // of args, or of a command with its arguments
	listed  bool          // the command is a list with the arguments in it (opencode)
	outer   string        // line end and indentation before the name
}

// variable is an entry of "env".
type variable struct{ name, value string }

// String returns the server's name for people, with its project.
func (s *Server) String() string {
	if s.Project == "" {
		return names.Quote(s.Name)
	}
	return names.Quote(s.Name) + " of " + names.Quote(s.Project)
}

// remoteKeys are the members in which hosts write a remote server's address.
var remoteKeys = []string{"url", "serverUrl", "httpUrl"}

func (c *Config) readServer(m *hujson.ObjectMember, project string, mcp bool, programs []string) *Server {
	s := &Server{Name: names.Foreign(text(&m.Name)), Project: names.Foreign(project), Line: c.line(m.Name.StartOffset)}
	s.outer, _ = newline(m.Name.BeforeExtra)
	if err := c.readMembers(s, m, mcp, programs); err != nil {
		return &Server{Name: s.Name, Project: s.Project, Line: s.Line, Err: err, obj: s.obj}
	}
	return s
}

// readMembers reads the members of a server. mcp says whether the server is in "mcp". Unknown members
// are ignored.
func (c *Config) readMembers(s *Server, m *hujson.ObjectMember, mcp bool, programs []string) error {
	var ok bool
	if s.obj, ok = m.Value.Value.(*hujson.Object); !ok {
		return c.errorf(m.Value.StartOffset, "server %s is %s; it should be an object", names.Quote(s.Name), kindOf(&m.Value))
	}
	for _, f := range []struct {
		key string
		to  *names.Foreign
	}{{"type", &s.Type}, {"command", &s.Command}, {"envFile", &s.EnvFile}, {"cwd", &s.Dir}} {
		if v, _ := member(s.obj, f.key); mcp && f.key == "command" && v != nil && v.Value.Kind() == '[' {
			if err := c.readCommand(s, v); err != nil {
				return err
			}
			continue
		}
		if err := c.readText(s, f.key, f.to); err != nil {
			return err
		}
	}
	_, s.command = member(s.obj, "command")
	at := m.Name.StartOffset
	remote := slices.ContainsFunc(remoteKeys, func(key string) bool { v, _ := member(s.obj, key); return v != nil })
	_, helper := member(s.obj, "headersHelper")
	s.HeadersHelper = helper >= 0
	if source, _ := member(s.obj, "source"); s.command < 0 && source != nil && text(source) == "extension" {
		s.Kind = Extension
		return nil
	}
	if enabled, _ := member(s.obj, "enabled"); mcp && enabled != nil && len(s.obj.Members) == 1 {
		s.Kind = Elsewhere
		return nil
	}
	if done, err := c.decideKind(s, at, s.command >= 0, remote); done || err != nil {
		return err
	}
	if !s.listed {
		if err := c.readArgs(s); err != nil {
			return err
		}
	}
	for _, key := range []string{"env", "environment"} {
		if err := c.readEnv(s, key); err != nil {
			return err
		}
	}
	s.readForwarded(c.Format)
	s.markIfWrapped(programs)
	return nil
}

// decideKind sets the server's Kind to Remote if the server has no command, but an address or a "type"
// such as "http". A server with a command counts as one that the host starts, whatever its "type":
// hosts differ in how they treat both together. decideKind reports whether no further member needs to
// be read.
func (c *Config) decideKind(s *Server, at int, hasCommand, hasAddress bool) (done bool, err error) {
	kind := s.Type
	if kind == "local" { // opencode's word
		kind = "stdio"
	}
	switch {
	case !hasCommand && (kind != "" && kind != "stdio" || hasAddress && kind == ""):
		s.Kind = Remote
		return true, nil
	case hasCommand && hasAddress && kind == "":
		return false, c.errorf(at, "server %s has both a command and a URL; write its \"type\", or remove one of them", names.Quote(s.Name))
	case !hasCommand:
		return false, c.errorf(at, "server %s has no \"command\" and no \"url\"", names.Quote(s.Name))
	case s.Command == "":
		return false, c.errorf(at, "the command of server %s is empty", names.Quote(s.Name))
	}
	return false, nil
}

// markIfWrapped marks a server as Wrapped if its command is one of the programs, or has the name
// rootsfs.
func (s *Server) markIfWrapped(programs []string) {
	if slices.Contains(programs, s.Command.Raw()) || filepath.Base(s.Command.Raw()) == "rootsfs" {
		s.Kind = Wrapped
	}
}

// readCommand reads opencode's "command", which is a list with the arguments in it.
func (c *Config) readCommand(s *Server, v *hujson.Value) error {
	s.listed = true
	words, err := c.texts(s, "command", v)
	if len(words) > 0 {
		s.Command, s.Args = words[0], words[1:]
	}
	return err
}

func (c *Config) readText(s *Server, key string, to *names.Foreign) error {
	v, _ := member(s.obj, key)
	switch {
	case v == nil:
	case v.Value.Kind() != '"':
		return c.errorf(v.StartOffset, "%s of server %s is %s; it should be a text", names.Quote(key), names.Quote(s.Name), kindOf(v))
	default:
		*to = names.Foreign(text(v))
	}
	return nil
}

func (c *Config) readArgs(s *Server) error {
	v, i := member(s.obj, "args")
	if s.args = i; v == nil {
		return nil
	}
	var err error
	s.Args, err = c.texts(s, "args", v)
	return err
}

// texts reads a list of texts, and keeps it as the server's list.
func (c *Config) texts(s *Server, key string, v *hujson.Value) ([]names.Foreign, error) {
	list, ok := v.Value.(*hujson.Array)
	if !ok {
		return nil, c.errorf(v.StartOffset, "%s of server %s is %s; it should be a list of texts", names.Quote(key), names.Quote(s.Name), kindOf(v))
	}
	s.list = list
	var words []names.Foreign
	for i := range list.Elements {
		e := &list.Elements[i]
		if e.Value.Kind() != '"' {
			return nil, c.errorf(e.StartOffset, "argument %d of server %s is %s; it should be a text", i+1, names.Quote(s.Name), kindOf(e))
		}
		words = append(words, names.Foreign(text(e)))
	}
	return words, nil
}

// readEnv notes the variables in "env" ("environment" in opencode): in set all of them, and in Env and
// values only the variables that reach the server. The value null removes a variable (VS Code), and a
// name that no variable can have does not reach the server.
func (c *Config) readEnv(s *Server, key string) error {
	v, _ := member(s.obj, key)
	if v == nil {
		return nil
	}
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return c.errorf(v.StartOffset, "%s of server %s is %s; it should be an object", names.Quote(key), names.Quote(s.Name), kindOf(v))
	}
	for i := range obj.Members {
		m := &obj.Members[i]
		name := text(&m.Name)
		switch kind := m.Value.Value.Kind(); {
		case kind == '{' || kind == '[' || kind != '"' && c.Format == Codex:
			return c.errorf(m.Value.StartOffset, "%s in %s of server %s is %s; it should be a text", names.Quote(name), names.Quote(key), names.Quote(s.Name), kindOf(&m.Value))
		case kind != 'n' && name != "" && !strings.ContainsAny(name, "=\x00"):
			s.Env = append(s.Env, names.Foreign(name))
			s.values = append(s.values, text(&m.Value))
		}
		s.set = append(s.set, variable{name, text(&m.Value)})
	}
	return nil
}

// readForwarded notes the host's own variables that Codex passes to the server ("env_vars").
// Entries that are not names are ignored.
func (s *Server) readForwarded(format Format) {
	v, _ := member(s.obj, "env_vars")
	if v == nil || format != Codex {
		return
	}
	list, _ := v.Value.(*hujson.Array)
	for i := 0; list != nil && i < len(list.Elements); i++ {
		e := &list.Elements[i]
		if name := text(e); e.Value.Kind() == '"' && name != "" && !strings.ContainsAny(name, "=\x00") && !slices.Contains(s.Env, names.Foreign(name)) {
			s.Env = append(s.Env, names.Foreign(name))
			s.values = append(s.values, "")
		}
	}
}

// Inner returns the index of the server's own command in Args, and whether there is one: only a
// server of the form "run FLAGS… -- COMMAND ARGS…" can be unwrapped.
func (s *Server) Inner() (int, bool) {
	if s.Kind != Wrapped || len(s.Args) == 0 || s.Args[0] != "run" {
		return 0, false
	}
	i := slices.Index(s.Args, "--")
	return i + 1, i > 0 && i+1 < len(s.Args)
}
