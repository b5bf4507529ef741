package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// A command is started in its confinement by the same file and name as on the host. Any of the
// following can be a link, or be reached through a link:
//   - a directory of PATH (nvm's "current")
//   - a program whose name decides its behaviour (bunx is bun)
//   - HOME (/home leads to /var/home)
//   - a directory above a root
//
// The private mount shows these links, unless a confined program can have made them.

// command returns the path of the command on the host, or the command's name if no directory of
// PATH has it. A relative path behind -- is relative to the command's working directory.
func (p *runPlan) command() (string, error) {
	name := p.box.Args[0]
	switch {
	case !strings.Contains(name, "/"):
		return cmp.Or(p.search(name), name), nil
	case filepath.IsAbs(name):
		return p.outside(name), nil
	}
	dir := p.workDir()
	if dir == "" {
		return "", usage(fmt.Errorf("the command %s is a relative path, and there is no root that it could be relative to: write it in full", names.Quote(name)))
	}
	return filepath.Join(dir, name), nil
}

// search looks for a command in the directories of the command's PATH (see searchPath), at their
// paths on the host. It returns "" if no directory has the command.
func (p *runPlan) search(name string) string {
	for _, dir := range filepath.SplitList(p.searchPath()) {
		path, err := filepath.Abs(filepath.Join(p.outside(cmp.Or(dir, ".")), name))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && !info.IsDir() && unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil {
			return path
		}
	}
	return ""
}

// searchPath returns the PATH of the command: the PATH of --env, or else that of this process.
func (p *runPlan) searchPath() string {
	path := os.Getenv("PATH")
	for _, e := range p.env {
		if given, ok := strings.CutPrefix(e, "PATH="); ok {
			path = given
		}
	}
	return path
}

// setProgram makes the sandbox execute the file that was found, and no other program of its name.
// It does nothing for a relative path, for a command that was not found, or if PATH has a directory
// that only the command sees.
func (p *runPlan) setProgram(command string) {
	if strings.Contains(p.box.Args[0], "/") && !filepath.IsAbs(p.box.Args[0]) || !filepath.IsAbs(command) {
		return
	}
	if slices.ContainsFunc(filepath.SplitList(p.searchPath()), sandbox.IsPrivate) {
		return // the program may lie in the directory that only the command sees
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(command)); err == nil {
		command = filepath.Join(dir, filepath.Base(command))
	}
	if p.box.Map == sandbox.Flat {
		if real, err := filepath.EvalSymlinks(command); err == nil && !p.covered(command) {
			command = real
		}
		for _, g := range p.session.Roots {
			if rel, err := filepath.Rel(p.resolve(g.Dir.Raw()), command); err == nil && filepath.IsLocal(rel) {
				command = filepath.Join(sandbox.DefaultFlatAt, string(g.Root), rel)
				break
			}
		}
	}
	p.box.Program = command
}

// flatName returns the name of the root for a single file with --map flat, which shows roots by
// name: the command's name if the command is this file, otherwise the file's own name. The
// command's name decides the behaviour of some programs. flatName reports false with another
// layout, for a directory, or if the name is invalid or taken.
func (p *runPlan) flatName(path, command string) (guard.RootName, bool) {
	info, err := os.Stat(path)
	if p.box.Map != sandbox.Flat || err != nil || info.IsDir() {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(command); err == nil && real == path {
		path = command
	}
	name, err := rootspec.DefaultName(path)
	isTaken := slices.ContainsFunc(p.session.Roots, func(g guard.Grant) bool { return g.Root == name })
	return name, err == nil && !isTaken
}

// showLink shows a link by which the command, or a file that it needs, is found.
func (p *runPlan) showLink(n sandbox.Needed) error {
	if n.FoundVia != "" || p.box.Map != sandbox.Same {
		return nil
	}
	if err := writabledirs.CheckLinks(n.Path); err != nil {
		return fmt.Errorf("the command is found through a link that is not trusted: %w", err)
	}
	p.addLink(n.Path, n.Link)
	return nil
}

func (p *runPlan) addLink(at, target string) {
	if p.box.Links == nil {
		p.box.Links = map[string]string{}
	}
	p.box.Links[at] = target
}

// showOtherNames shows the links by which a path leads to a root under another name. It looks for
// such links in the paths of HOME, PWD, --dir and PATH, in the paths of the roots as the owner
// named them, and in the words behind --.
func (p *runPlan) showOtherNames(writable func(place string) string) {
	if p.box.Map != sandbox.Same {
		return
	}
	paths := append(filepath.SplitList(p.searchPath()), os.Getenv("HOME"), os.Getenv("PWD"), p.box.Dir)
	for _, arg := range p.box.Args {
		if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = value
		}
		paths = append(paths, arg)
	}
	roots := make([]string, len(p.session.Roots))
	for i, g := range p.session.Roots {
		roots[i] = p.resolve(g.Dir.Raw())
		paths = append(paths, g.Dir.Raw())
	}
	for _, path := range paths {
		if !filepath.IsAbs(path) || sandbox.IsShown(path) || len(path) > maxPath || p.covered(path) && !p.isRootName(path) {
			continue
		}
		links := sandbox.LinksOn(path)
		if len(links) == 0 {
			continue
		}
		end := names.FollowLinks(links, path)
		meets := func(root string) bool {
			return names.Under(end, root) || names.Under(root, end) || filepath.Dir(root) == end
		}
		if !slices.ContainsFunc(roots, meets) || writabledirs.CheckLinks(path) != nil {
			continue
		}
		for at, target := range links {
			if !p.covered(at) && writable(at) == "" {
				p.addLink(at, target)
			}
		}
	}
	maps.DeleteFunc(p.box.Links, func(at, _ string) bool { return !sandbox.CanShowLink(at, roots) })
	// If a link in the path of a root is not shown, such as a link in /tmp itself, the whole path
	// becomes a link to the root.
	for i, g := range p.session.Roots {
		if names.FollowLinks(p.box.Links, g.Dir.Raw()) != roots[i] && sandbox.CanShowLink(g.Dir.Raw(), roots) {
			p.addLink(g.Dir.Raw(), roots[i])
		}
	}
}

// maxPath is PATH_MAX. A longer argument is no path: it may be the text of a program.
const maxPath = 4096

// isRootName reports whether a root was granted by exactly this path.
func (p *runPlan) isRootName(path string) bool {
	return slices.ContainsFunc(p.session.Roots, func(g guard.Grant) bool { return g.Dir.Raw() == path })
}

// noteShim handles a command that is a shim of a version manager whose directory is in a root. It
// passes the path of the directory to the manager. Unless the shim itself knows the directory, it
// adds a note for the owner in case the manager also needs its settings in HOME.
func (p *runPlan) noteShim(command string) {
	shim, ok := findShim(command)
	if !ok || !p.covered(shim.Dir) {
		return
	}
	isGiven := func(e string) bool { return e == shim.Variable || strings.HasPrefix(e, shim.Variable+"=") }
	if shim.Variable != "" && !slices.ContainsFunc(p.env, isGiven) {
		p.env = append(p.env, shim.Variable+"="+shim.Dir)
	}
	if shim.KnowsDir {
		return
	}
	name := filepath.Base(command)
	note := fmt.Sprintf("%s is a shim of %s, whose settings in HOME are not shown: if it finds no version, write in its place, or make a root of, what this prints: %s which %s",
		names.Quote(name), names.Escape(shim.Manager), names.ShellWord(shim.Manager), names.ShellWord(name))
	if home, err := os.UserHomeDir(); err == nil && shim.Settings != "" {
		note += fmt.Sprintf("; or add --root %s --env %s", names.ShellWord(filepath.Join(home, shim.Settings)+":ro"), names.ShellWord("HOME="+home))
	}
	p.notes = append(p.notes, note)
}

// findShim looks for a shim among the links of a command.
func findShim(command string) (sandbox.Shim, bool) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(command))
	if err != nil {
		return sandbox.Shim{}, false
	}
	return sandbox.ShimOf(filepath.Join(dir, filepath.Base(command)))
}
