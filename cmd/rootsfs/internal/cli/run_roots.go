package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// planRoots decides where the roots appear, and which roots the command needs beside those of the
// flags.
func (p *runPlan) planRoots() error {
	if err := p.checkRoots(); err != nil {
		return err
	}
	p.box.UID, p.box.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	if os.Geteuid() == 0 && p.box.Level != sandbox.None {
		p.box.UID, p.box.GID = sandbox.DefaultID()
	}
	p.session.Mount.Owner = &rules.User{UID: p.box.UID, GID: p.box.GID}
	// A command that the user root starts runs as another user if it is confined. The mount must
	// admit that user. No third user can reach the mount.
	p.session.Mount.AllowOther = p.box.UID != uint32(os.Geteuid())
	if p.box.Map == sandbox.Same {
		// /tmp, /var and /run are bound if a root lies there at the start.
		tops := append(sandbox.TopDirs(), "tmp", "var", "run")
		p.session.Mount.Layout = mount.Layout{ByPath: true, Tops: tops, Spare: spareDirs}
		for i := range spareDirs {
			p.box.Spare = append(p.box.Spare, mount.SparePath(i))
		}
	}
	if p.box.Home != "" {
		if err := p.checkHome(); err != nil {
			return err
		}
	}
	return p.addNeededRoots()
}

// addNeededRoots adds roots for the files that the command itself needs, and shows the links by
// which they are found.
func (p *runPlan) addNeededRoots() error {
	command, err := p.command()
	if err != nil {
		return err
	}
	writable := p.writable()
	needs, err := sandbox.Interpreter(command, func(place string) bool { return writable(place) != "" })
	if err != nil && command != p.box.Args[0] && strings.Contains(p.box.Args[0], "/") && !filepath.IsAbs(p.box.Args[0]) {
		err = fmt.Errorf("%w (a relative path behind -- is one from the command's working directory)", err)
	}
	if err != nil {
		return noCommand(err)
	}
	for _, n := range needs {
		if p.covered(n.Path) {
			continue
		}
		if n.Link != "" {
			if err := p.showLink(n); err != nil {
				return err
			}
			continue // the target is among the needed files as well
		}
		if n.FoundVia != "" {
			// A file that the command may write must not decide which files the command sees. By a
			// link or a #! line that an earlier run left there, the command could see any file.
			return usage(fmt.Errorf("the command is found through %s, which lies in the writable root %s of this run or an earlier one, and needs %s outside of it: if that is meant, say --root %s",
				names.Quote(n.FoundVia), names.Quote(writable(n.FoundVia)), names.Quote(n.Path), names.ShellWord(n.Path+":ro")))
		}
		p.addImplicitRoot(n.Path, command)
	}
	p.noteShim(command)
	p.showOtherNames(writable)
	p.setProgram(command)
	p.session.Mount.Layout.Links = p.box.Links
	return nil
}

// checkRoots refuses a root that holds the private mounts of runs. The session would refuse it,
// too, but name a mountpoint that the owner does not know.
func (p *runPlan) checkRoots() error {
	for _, g := range p.session.Roots {
		if names.Under(cleanup.Base(), session.Resolve(g.Dir.Raw())) {
			return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf(
				"%s cannot be a root of a run: it holds %s, where rootsfs mounts the roots; name the directories that the command needs, such as --root ~/project",
				names.Quote(g.Dir), names.Quote(cleanup.Base()))}
		}
	}
	return nil
}

// addImplicitRoot makes a directory or file a root that no flag names.
func (p *runPlan) addImplicitRoot(path, command string) {
	p.implicit = append(p.implicit, path)
	name := guard.RootName("interpreter")
	if n := len(p.implicit); n > 1 {
		name = guard.RootName(fmt.Sprintf("interpreter-%d", n))
	}
	if own, ok := p.flatName(path, command); ok {
		name = own
	}
	p.session.Roots = append(p.session.Roots, guard.Grant{
		Root: name, Dir: names.Foreign(path), Policy: guard.Policy{Rights: guard.ReadOnly},
		Origin: originInterpreter, Implicit: true,
	})
}

// originInterpreter is the origin of roots that no flag names.
const originInterpreter = "interpreter of the command"

// workDir returns the command's working directory on the host, "" if it has none there.
func (p *runPlan) workDir() string {
	if p.box.Dir != "" {
		return p.outside(p.box.Dir)
	}
	for _, g := range p.session.Roots {
		if g.Implicit {
			continue
		}
		if info, err := os.Stat(g.Dir.Raw()); err == nil && !info.IsDir() {
			return filepath.Dir(g.Dir.Raw())
		}
		return g.Dir.Raw()
	}
	return ""
}

// outside returns the path on the host for an absolute path in the confinement. They differ only with
// --map flat.
func (p *runPlan) outside(path string) string {
	if p.box.Map != sandbox.Flat {
		return path
	}
	for _, g := range p.session.Roots {
		if rel, err := filepath.Rel(sandbox.DefaultFlatAt+"/"+string(g.Root), path); err == nil && filepath.IsLocal(rel) && !g.Implicit {
			return filepath.Join(g.Dir.Raw(), rel)
		}
	}
	return path
}

// writable returns a function for the path of a file. The function returns the directory by which a
// program can change the file: a writable root or the kept HOME of this run, or a directory of an
// earlier session or of the configuration. It returns "" if there is no such directory.
func (p *runPlan) writable() func(place string) string {
	type root struct{ name, at string }
	var roots []root
	add := func(name string) {
		roots = append(roots, root{name, name})
		if real, err := filepath.EvalSymlinks(name); err == nil && real != name {
			roots = append(roots, root{name, real})
		}
	}
	for _, g := range p.session.Roots {
		if g.Policy.Rights.Mutating() {
			add(g.Dir.Raw())
		}
	}
	if p.box.Home != "" {
		add(p.box.Home) // the command may write to it in each run
	}
	judge := p.judge()
	return func(place string) string {
		for _, r := range roots {
			if names.Under(place, r.at) {
				return r.name
			}
		}
		return judge.Holder(place) // a directory of an earlier session or of the configuration
	}
}

// covered reports whether a path lies in a granted root.
func (p *runPlan) covered(path string) bool {
	return slices.ContainsFunc(p.session.Roots, func(g guard.Grant) bool {
		return names.Under(path, g.Dir.Raw()) || names.Under(path, p.resolve(g.Dir.Raw()))
	})
}

// resolve is session.Resolve, with a cache.
func (p *runPlan) resolve(dir string) string {
	real, ok := p.resolved[dir]
	if !ok {
		real = session.Resolve(dir)
		if p.resolved == nil {
			p.resolved = map[string]string{}
		}
		p.resolved[dir] = real
	}
	return real
}

// noCommand adds a shell's exit code to the error of a command that does not exist, or cannot
// be executed.
func noCommand(err error) error {
	switch {
	case errors.Is(err, sandbox.ErrNotExecutable):
		return &exitError{Code: exitNotExecutable, Err: err}
	case names.Reason(err) == names.NotExist:
		return &exitError{Code: exitNoCommand, Err: err}
	}
	return err
}

// The command gets a kept home (`run --home`) whole and writable, without the patterns of a
// root. So the rules for roots apply to it, and stricter ones.

// homeRefused returns the error for a directory that must not be a kept home.
func homeRefused(dir, format string, args ...any) error {
	return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf("--home %s %s; choose a directory for this alone, such as ~/.cache/rootsfs/NAME, which is made if it is not there",
		names.Quote(dir), fmt.Sprintf(format, args...))}
}

// checkHome refuses a kept home that would show the command more than its own home.
func (p *runPlan) checkHome() error {
	home := p.box.Home
	if err := writabledirs.CheckLinks(home); err != nil {
		var link *rules.LinkError
		if errors.As(err, &link) {
			return homeRefused(home, "passes the link %s, which %s can change, and leads to %s", names.Quote(link.Link), link.Others, names.Quote(link.Resolved))
		}
		return fmt.Errorf("--home: %w", err)
	}
	keeps, err := session.ReservedPaths(p.session.Mount.Point, p.session.Config.ReservedPaths())
	if err != nil {
		return err
	}
	at := session.Resolve(home)
	for _, owner := range homeDirs() {
		if names.Under(owner, at) {
			return homeRefused(home, "is or holds the home directory %s", names.Quote(owner))
		}
	}
	if holdsHomes(at) {
		return homeRefused(home, "holds the HOMEs that are kept for agents, one for each repository")
	}
	lenient := rules.RootRules{AllowSystem: true, AllowRootDir: true, ReservedPaths: keeps}
	if err := lenient.Check(at, guard.ReadWrite); err != nil {
		return homeRefused(home, "is refused: %v", err)
	}
	if (rules.RootRules{}).Check(at, guard.ReadWrite) != nil {
		return homeRefused(home, "is a system directory")
	}
	if err := p.session.Ceiling.CheckPath(at, guard.ReadWrite); err != nil && !isKept(at) {
		return homeRefused(home, "is refused: %v", err)
	}
	for _, g := range p.session.Roots {
		if names.Under(session.Resolve(g.Dir.Raw()), at) {
			return homeRefused(home, "contains the root %s", names.Quote(g.Dir))
		}
	}
	return p.checkHomeOutside()
}

// checkHomeOutside refuses a kept home whose path leads through a root: by a link there, the command
// could choose its next HOME.
func (p *runPlan) checkHomeOutside() error {
	for dir := filepath.Dir(p.box.Home); ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			real = dir // it does not exist yet
		}
		for _, g := range p.session.Roots {
			if names.Under(real, session.Resolve(g.Dir.Raw())) {
				return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf(
					"--home %s is reached through the root %s, where the command could make it a link; choose a directory outside of the roots",
					names.Quote(p.box.Home), names.Quote(g.Dir))}
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
