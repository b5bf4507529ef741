package hostconfig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// FileType is the type of the file that a path leads to.
type FileType int

// The types that matter here.
const (
	Nothing FileType = iota // no file, or one of another kind
	Dir
	File
)

// Machine has the facts about the machine that proposals need.
type Machine struct {
	Home string
	// Base is the project whose servers the configuration file configures (ProjectOf). If Base is
	// "", the host chooses the working directory of the servers.
	Base string
	// Look returns the type of the file at an absolute path.
	Look func(path string) FileType
	// Project is the repository or project that encloses a directory, "" for none.
	Project func(dir string) string
	// Getenv returns a variable of the host's environment, if it is known here.
	Getenv func(name string) string
}

// Root is a root for a server. The roots that Propose returns are read-only.
type Root struct {
	Spec string
	From string // the argument or variable that it comes from, for a person
	Path string // path that Spec leads to; "" for a path in the project that only the host knows
}

// Proposal has the roots that a server seems to need, and remarks.
type Proposal struct {
	Roots []Root
	Notes []string // remarks for a person, each a part of a sentence
	// Fetcher is the program that downloads the server's package before the server runs (see
	// FetcherOf); "": none. The program needs the network.
	Fetcher string
}

// Propose finds roots for a server in its arguments and in the values of its "env", also in
// parts of an argument or value (see inValue). An existing directory that an argument names becomes a
// root. Its path is absolute, or begins with ~ or a variable that the host expands (both are
// kept as written). If the path is relative to the server's working directory, the working
// directory becomes the root. For a file, the root is the file alone. For a script, the root is the
// script's project, without which the script cannot start. Every root is read-only.
//
// For a server that is not Stdio, or has an Err, the proposal is empty.
func (c *Config) Propose(s *Server, at Machine) Proposal {
	if s.Kind != Stdio || s.Err != nil {
		return Proposal{}
	}
	if s.Project != "" {
		at.Base = s.Project.Raw()
	}
	p := &proposer{format: c.Format, at: at, cwd: at.Base, isContainer: s.IsContainer()}
	if s.Dir != "" {
		p.directory(s.Dir.Raw())
	}
	p.command(s)
	for _, a := range s.Args {
		p.argument(a.Raw())
	}
	for i, name := range s.Env {
		if name != "PATH" {
			p.value(s.values[i], "the variable "+names.Quote(name), false)
		}
	}
	p.remarks(s)
	return p.Proposal
}

// proposer gathers a Proposal.
type proposer struct {
	Proposal
	format Format
	at     Machine
	// isContainer: a container tool starts the server. A text such as /a:/b in the arguments
	// then tells the tool's daemon to mount /a at /b: it is no list of paths.
	isContainer bool
	cwd         string   // where the server is started; "" if that is not known
	paths       []string // paths of the roots; "" if only the host knows the path
	names       []guard.RootName
}

// target has a text and the path that the text stands for.
type target struct {
	text string // as it is written
	path string // "" if only the host knows the path
}

// directory makes the server's "cwd" its first root: the first root is the working directory of
// the confined server.
func (p *proposer) directory(text string) {
	t, ok := p.expand(text)
	if ok && t.path != "" && !filepath.IsAbs(t.path) {
		// VS Code and Cursor resolve a relative "cwd" in the project.
		if ok = p.at.Base != ""; ok {
			t.path = filepath.Join(p.at.Base, t.path)
		}
		t.text = "."
	}
	p.cwd = ""
	if ok && (t.path == "" || p.at.Look(t.path) == Dir) {
		p.cwd = t.path
		p.add(t, "its working directory "+names.Quote(text))
	}
}

// command proposes the server's working directory as a root if the command is a relative path. The
// confined server starts in its first root, so the path must be relative to this root. If the
// working directory is not known, and there is no root yet, command adds a note.
func (p *proposer) command(s *Server) {
	t, ok := p.expand(s.Command.Raw())
	if !ok || t.path == "" || filepath.IsAbs(t.path) || !strings.Contains(t.path, "/") {
		return
	}
	switch from := "its command " + names.Quote(s.Command); {
	case filepath.IsAbs(p.cwd):
		p.relative(t, from)
	case len(p.Roots) == 0:
		p.notef("%s is a relative path, which leads nowhere without a root: write it in full", from)
	}
}

// argument proposes a root for one argument, or for the value in --flag=VALUE or -f/PATH.
func (p *proposer) argument(arg string) {
	text := arg
	if strings.HasPrefix(arg, "-") {
		_, value, ok := strings.Cut(arg, "=")
		if !ok && len(arg) > 2 && strings.HasPrefix(arg[2:], "/") {
			value, ok = arg[2:], true
		}
		if !ok {
			return
		}
		text = value
	}
	p.value(text, "the argument "+names.Quote(arg), true)
}

// looksRelative reports whether a text looks like a relative path, and not like a word that is
// also a file's name by chance.
func looksRelative(s string) bool {
	return s == "." || s == ".." || strings.Contains(s, "/") && !strings.HasPrefix(s, "@") || isScript(s)
}

// relative makes the server's working directory the first root, so that the argument keeps its
// meaning: the confined server starts in its first root.
func (p *proposer) relative(t target, from string) {
	switch path := filepath.Join(p.cwd, t.path); {
	case p.at.Look(path) == Nothing:
	case !names.Under(path, p.cwd):
		p.notef("%s leads out of the directory that the server is started in: name what it needs with --root", from)
	default:
		p.add(target{".", p.cwd}, "the directory it is started in, for "+from)
		p.moveFirst(filepath.Clean(p.cwd))
	}
}

// moveFirst moves the root at path, if there is one, before the other roots.
func (p *proposer) moveFirst(path string) {
	if i := slices.Index(p.paths, path); i > 0 {
		root := p.Roots[i]
		p.Roots = slices.Insert(slices.Delete(p.Roots, i, i+1), 0, root)
		p.paths = slices.Insert(slices.Delete(p.paths, i, i+1), 0, path)
	}
}

// absolute proposes a root for a path in an argument or a variable. The path is not relative.
func (p *proposer) absolute(t target, from string) {
	what := Dir
	if t.path != "" {
		what = p.at.Look(t.path)
	}
	if what != Nothing && strings.HasPrefix(t.text, "~") && p.format != VSCode {
		p.notef("%s is left to the server to expand, whose ~ is a private directory: write the path in full", from)
	}
	head, _, _ := strings.Cut(t.text, "/")
	switch script := isScript(t.text); {
	case what == Nothing:
		if dir := filepath.Dir(filepath.Clean(t.path)); dir != "/" && p.at.Look(dir) == Dir {
			p.notef("%s names what does not exist in %s: if the server makes it, it needs a directory that is given with --root PATH:rw", from, names.Quote(dir))
		}
	case script && isWorkspace(head):
		// The workspace is the project.
		if t = (target{text: head}); p.at.Base != "" {
			t.path = p.at.Base
		}
		p.add(t, from)
	case script && what == File:
		if dir := p.at.Project(filepath.Dir(t.path)); dir != "" {
			t, from = target{dir, dir}, "the project of "+from
		}
		p.add(t, from)
	default:
		p.add(t, from)
	}
}

// scripts are the extensions of scripts. A script needs the files beside it.
var scripts = []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".py", ".rb", ".php", ".lua", ".pl", ".sh"}

func isScript(path string) bool { return slices.Contains(scripts, filepath.Ext(path)) }

// neverProposed are directories that a confined server sees without a root, or that are the
// kernel's.
var neverProposed = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys", "/dev"}

// add proposes a root, unless it is proposed already, or a confined server sees it without a root. A
// root that is or contains the home directory is not proposed either: add notes this.
func (p *proposer) add(t target, from string) {
	path := ""
	if t.path != "" {
		path = filepath.Clean(t.path)
	}
	if t.text == t.path {
		t.text = path
	}
	spec := t.text + ":ro"
	switch {
	case path == "":
		if slices.ContainsFunc(p.Roots, func(r Root) bool { return r.Spec == spec }) {
			return
		}
	case slices.Contains(p.paths, path), slices.ContainsFunc(neverProposed, func(dir string) bool { return names.Under(path, dir) }):
		return
	case names.Under(p.at.Home, path):
		p.notef("%s is your home directory, or holds it, where rootsfs keeps its own files: name directories inside with --root", from)
		return
	default:
		spec = p.name(path) + spec
	}
	p.Roots = append(p.Roots, Root{Spec: spec, From: from, Path: path})
	p.paths = append(p.paths, path)
}

// name returns the "NAME=" that the SPEC of the root at path needs. It returns "" if the default name
// of the root is valid and no other root has it.
func (p *proposer) name(path string) string {
	own, err := rootspec.DefaultName(path)
	if err != nil {
		own = "root"
	}
	name := own
	for n := 2; slices.Contains(p.names, name); n++ {
		name = own + guard.RootName(fmt.Sprintf("-%d", n))
	}
	p.names = append(p.names, name)
	if err == nil && name == own {
		return ""
	}
	return string(name) + "="
}

func (p *proposer) notef(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// remarks sets Fetcher. It also notes the effects of wrapping on this server, apart from files.
func (p *proposer) remarks(s *Server) {
	words, name := s.words(), filepath.Base(s.Command.Raw())
	p.Fetcher = FetcherOf(words)
	if fetcher := mentionedFetcher(names.List[string](s.Args)); fetcher != "" && p.Fetcher == "" {
		p.notef("its arguments name %s: if it fetches with that what it runs, it needs --net", fetcher)
	}
	if i := slices.Index(versionManagers, name); i >= 0 {
		p.notef("%s keeps its versions in your HOME, and HOME is private inside: write the full path of the program that it starts, which \"%[1]s which\" tells, or give its directory with --root", versionManagers[i])
	}
	for _, inner := range finalCommands(words, maxLaunchers) {
		if i := slices.Index(containerTools, filepath.Base(inner[0])); i >= 0 && containerTools[i] != name {
			p.notef("it is started by %s, whose daemon a confined server does not reach: leave it out with --server, or use another way to start it", containerTools[i])
		}
	}
	if strings.ContainsAny(s.Command.Raw(), " \t") && p.at.Look(s.Command.Raw()) != File {
		p.notef("its command has spaces, as for a shell, which rootsfs run does not use: split it into \"command\" and \"args\"")
	}
	if s.EnvFile != "" {
		p.notef("the variables of its \"envFile\" do not reach it unless they are named: add --env NAME for each")
	}
	if v, _ := member(s.obj, "sandboxEnabled"); v != nil && text(v) == "true" {
		p.notef("\"sandboxEnabled\" puts rootsfs itself into VS Code's sandbox, where it may not be able to mount: use one of the two")
	}
}

// IsContainer reports whether a container tool starts the server. Confining such a tool has no
// effect on the server: the tool's daemon does the work. The tool must be found by PATH or lie in one
// of its usual directories: a program in the project may have the same name.
func (s *Server) IsContainer() bool {
	dir, base := filepath.Split(s.Command.Raw())
	return slices.Contains(containerTools, base) && slices.Contains([]string{"", "/bin/", "/usr/bin/", "/usr/local/bin/"}, dir)
}
