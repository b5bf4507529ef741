package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// judge returns a judge of the places that programs can write to: in earlier and live sessions, by
// the configuration and in this run.
func (p *runPlan) judge() *writabledirs.Judge {
	dirs := p.session.Config.WritableDirs()
	for _, g := range p.session.Roots {
		if g.Policy.Rights.Mutating() {
			dirs = append(dirs, g.Dir.Raw())
		}
	}
	if p.home != "" {
		dirs = append(dirs, p.home)
	}
	return writabledirs.NewJudge(dirs...)
}

// ownersEnviron returns the environment for programs that a run starts for the owner. It leaves
// out the variables that --env passes (see isPassed): they are the command's, and the project that
// brought the MCP host's configuration may have set them. It keeps variables that rootsfs itself
// obeys, since `rootsfs wrap` lets no project set these.
func (p *runPlan) ownersEnviron() []string {
	return p.judge().Environ(func(name string) bool { return p.isPassed(name) && !hostconfig.IsSteering(name) })
}

// isPassed reports whether --env passes this process's value of a variable, by NAME or PREFIX*.
func (p *runPlan) isPassed(name string) bool {
	return slices.ContainsFunc(p.passed, func(e string) bool {
		prefix, isPrefix := strings.CutSuffix(e, "*")
		return name == e || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// givenName returns the name of the run if the owner gave it: by --name, by the preset of an
// agent, or by a command. A command counts only if it lies in no root, in no kept HOME and in no
// other directory that programs can write to: a project chooses the names of the commands in it.
// [[net]], [[secret]] and [[root]] blocks refer to the name of the run.
func (p *runPlan) givenName() string {
	if p.session.Name != "" {
		return p.session.Name
	}
	name, word := nameAndWord(p.box.Args)
	if one, ok := agents.Find(p.agent); ok && (name == one.Command || name == one.Name) {
		return name
	}
	for _, option := range p.box.Args[1:max(1, slices.Index(p.box.Args, word))] {
		if strings.HasPrefix(option, "-") || strings.ContainsAny(option, " \n;") {
			return "" // an option may name the program, and word may be an argument of the program
		}
	}
	if word == p.box.Args[0] && !strings.Contains(word, "/") {
		word = p.search(word) // "" is not absolute
	}
	if _, err := os.Lstat(word); err != nil || !filepath.IsAbs(word) {
		return ""
	}
	dirs := p.session.Config.WritableDirs()
	for _, g := range p.session.Roots {
		dirs = append(dirs, g.Dir.Raw())
	}
	if p.home != "" {
		dirs = append(dirs, p.home)
	}
	if writabledirs.NewJudge(dirs...).File(word) != nil {
		return ""
	}
	return name
}

// resolveName finds the name that the owner gave the run, "" for none. Without a name, the run gets
// no block that is for a name. If there are blocks for the command's name, a hint says so.
func (p *runPlan) resolveName() {
	p.blockName = p.givenName()
	p.session.HasProgramName = p.blockName == ""
	if p.blockName != "" {
		return
	}
	name, conf := p.session.NameSource, p.session.Config
	// isForName reports whether a grant comes from a [[root]] block for runs of one name.
	isForName := func(g guard.Grant) bool { return g.Subject != "" && g.Origin == config.Origin }
	if slices.ContainsFunc(conf.Secrets, func(s config.Secret) bool { return s.Subject == name }) ||
		slices.ContainsFunc(conf.Net, func(n config.Net) bool { return n.Subject == name }) ||
		slices.ContainsFunc(p.session.Roots, func(g guard.Grant) bool { return isForName(g) && string(g.Subject) == name }) {
		p.otherBlockName = name
	}
	p.session.Roots = slices.DeleteFunc(p.session.Roots, isForName)
}

// hintNames prints that the session has another name than that of --name, and why blocks of the
// configuration are left out.
func (r *runner) hintNames() {
	if name := r.plan.session.Name; name != "" && name != r.s.Name() {
		r.a.warn("a live session is named %s: this one is %s", names.Quote(name), names.ShellWord(r.s.Name()))
	}
	if name := r.plan.otherBlockName; name != "" {
		r.a.warn("the configuration has [[net]], [[secret]] or [[root]] blocks for runs named %s, which this run does not get: the name is that of a file which programs can write or a root shows; add --name %s if this run is meant",
			names.Quote(name), names.ShellWord(name))
	}
}

// trustedHomeFiles returns the files to copy into a kept HOME. It leaves out, with a warning, files
// that programs could have replaced by a link to another file of the owner, files that the ceiling
// forbids, files that are too large, and files that hold a credential of --secret.
func (r *runner) trustedHomeFiles() (files []string) {
	judge := r.plan.judge()
	for _, file := range r.plan.homeParts {
		from, err := ownerFile(file)
		if err == nil {
			err = judge.File(from)
		}
		if err == nil {
			err = r.plan.session.Ceiling.CheckPath(session.Resolve(from), guard.ReadOnly)
		}
		if err == nil {
			err = r.plan.checkHomeFile(from)
		}
		if err != nil {
			r.a.warn("%s is left out of the kept HOME: %s", names.Quote(cmp.Or(from, file)), names.EscapeQuoted(err.Error()))
			continue
		}
		files = append(files, file)
	}
	return files
}

// checkHomeFile returns an error if a file is too large to be copied into a kept HOME, or holds a
// credential of --secret.
func (p *runPlan) checkHomeFile(file string) error {
	text, err := readSmallFile(file)
	if errors.Is(err, errLargeFile) {
		return err
	}
	if s := p.secretIn(text); s != nil {
		return fmt.Errorf("it holds the credential of --secret %s", s.Name)
	}
	return nil
}
