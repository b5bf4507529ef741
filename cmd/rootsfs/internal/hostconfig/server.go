package hostconfig

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Kind is how a host gets to a server.
type Kind int

// The kinds.
const (
	Stdio     Kind = iota // started by the host
	Wrapped               // started by the host through rootsfs
	Remote                // reached over HTTP, server-sent events or a socket
	Extension             // started by an extension of the host's own (Zed)
)

// Server is one server of a configuration.
type Server struct {
	Name    string
	Project string // the directory it is for (~/.claude.json); "" for all
	Line    int    // of its name
	Kind    Kind
	Type    string // as written: stdio, http, sse, …; "" where it is left out
	Command string // of a Stdio or Wrapped server, like the fields below
	Args    []string
	Env     []string // names in "env" that the host gives a value
	EnvFile string
	Dir     string // "cwd"
	// Err is an *Error if the server cannot be understood. Nothing but Name,
	// Project and Line is known then.
	Err error

	obj     *hujson.Object
	command int           // index of the member
	args    int           // the same, -1 where it is left out
	values  []string      // of Env
	list    *hujson.Array // of args
	outer   string        // line end and indentation before the name
}

// String is the server's name for people, with its project.
func (s *Server) String() string {
	if s.Project == "" {
		return names.Quote(s.Name)
	}
	return names.Quote(s.Name) + " of " + names.Quote(s.Project)
}

// remoteKeys are where hosts write a remote server's address.
var remoteKeys = []string{"url", "serverUrl", "httpUrl"}

func (c *Config) readServer(m *hujson.ObjectMember, project string, programs []string) *Server {
	s := &Server{Name: text(&m.Name), Project: project, Line: c.line(m.Name.StartOffset)}
	s.outer, _ = newline(m.Name.BeforeExtra)
	if err := c.fill(s, m, programs); err != nil {
		return &Server{Name: s.Name, Project: project, Line: s.Line, Err: err}
	}
	return s
}

// fill reads the members of a server. Members that are not known are left alone.
func (c *Config) fill(s *Server, m *hujson.ObjectMember, programs []string) error {
	var ok bool
	if s.obj, ok = m.Value.Value.(*hujson.Object); !ok {
		return c.errorf(m.Value.StartOffset, "server %s is %s; it should be an object", names.Quote(s.Name), kindOf(&m.Value))
	}
	for _, f := range []struct {
		key string
		to  *string
	}{{"type", &s.Type}, {"command", &s.Command}, {"envFile", &s.EnvFile}, {"cwd", &s.Dir}} {
		if err := c.readText(s, f.key, f.to); err != nil {
			return err
		}
	}
	_, s.command = member(s.obj, "command")
	remote := slices.ContainsFunc(remoteKeys, func(key string) bool { v, _ := member(s.obj, key); return v != nil })
	if source, _ := member(s.obj, "source"); source != nil && text(source) == "extension" {
		s.Kind = Extension
		return nil
	}
	switch started := s.command >= 0; {
	case s.Type != "" && s.Type != "stdio", !started && remote && s.Type == "":
		s.Kind = Remote
		return nil
	case started && remote && s.Type == "":
		return c.errorf(m.Name.StartOffset, "server %s has both a command and a URL; write its \"type\", or remove one of them", names.Quote(s.Name))
	case !started:
		return c.errorf(m.Name.StartOffset, "server %s has no \"command\" and no \"url\"", names.Quote(s.Name))
	case s.Command == "":
		return c.errorf(m.Name.StartOffset, "the command of server %s is empty", names.Quote(s.Name))
	}
	if err := c.readArgs(s); err != nil {
		return err
	}
	if err := c.readEnv(s); err != nil {
		return err
	}
	if slices.Contains(programs, s.Command) || filepath.Base(s.Command) == "rootsfs" {
		s.Kind = Wrapped
	}
	return nil
}

func (c *Config) readText(s *Server, key string, to *string) error {
	v, _ := member(s.obj, key)
	switch {
	case v == nil:
	case v.Value.Kind() != '"':
		return c.errorf(v.StartOffset, "%s of server %s is %s; it should be a text", names.Quote(key), names.Quote(s.Name), kindOf(v))
	default:
		*to = text(v)
	}
	return nil
}

func (c *Config) readArgs(s *Server) error {
	v, i := member(s.obj, "args")
	if s.args = i; v == nil {
		return nil
	}
	list, ok := v.Value.(*hujson.Array)
	if !ok {
		return c.errorf(v.StartOffset, "\"args\" of server %s is %s; it should be a list of texts", names.Quote(s.Name), kindOf(v))
	}
	s.list = list
	for i := range list.Elements {
		e := &list.Elements[i]
		if e.Value.Kind() != '"' {
			return c.errorf(e.StartOffset, "argument %d of server %s is %s; it should be a text", i+1, names.Quote(s.Name), kindOf(e))
		}
		s.Args = append(s.Args, text(e))
	}
	return nil
}

// readEnv notes the names that reach the server. A value of null takes a variable
// away (VS Code), and a name that no variable can have is the host's affair.
func (c *Config) readEnv(s *Server) error {
	v, _ := member(s.obj, "env")
	if v == nil {
		return nil
	}
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return c.errorf(v.StartOffset, "\"env\" of server %s is %s; it should be an object", names.Quote(s.Name), kindOf(v))
	}
	for i := range obj.Members {
		m := &obj.Members[i]
		name := text(&m.Name)
		switch kind := m.Value.Value.Kind(); {
		case kind == '{' || kind == '[':
			return c.errorf(m.Value.StartOffset, "%s in \"env\" of server %s is %s; it should be a text", names.Quote(name), names.Quote(s.Name), kindOf(&m.Value))
		case kind != 'n' && name != "" && !strings.ContainsAny(name, "=\x00"):
			s.Env = append(s.Env, name)
			s.values = append(s.values, text(&m.Value))
		}
	}
	return nil
}

// Inner is where the server's own command stands in Args, and whether there is
// one: only what has the form "run FLAGS… -- COMMAND ARGS…" can be unwrapped.
func (s *Server) Inner() (int, bool) {
	if s.Kind != Wrapped || len(s.Args) == 0 || s.Args[0] != "run" {
		return 0, false
	}
	i := slices.Index(s.Args, "--")
	return i + 1, i > 0 && i+1 < len(s.Args)
}
