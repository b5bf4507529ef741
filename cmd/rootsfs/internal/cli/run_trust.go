package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// judge returns what programs can write: in earlier sessions, by the configuration and in this
// run.
func (p *runPlan) judge() *written.Judge {
	dirs := p.session.Config.WritableDirs()
	for _, g := range p.session.Roots {
		if g.Policy.Rights.Mutating() {
			dirs = append(dirs, g.Dir)
		}
	}
	if p.flags.home != "" {
		dirs = append(dirs, p.flags.home)
	}
	return written.NewJudge(dirs...)
}

// ownersEnviron is the environment of what a run runs for the owner. Variables that --env
// passes on by name are the command's: whoever wrote its line in a host's configuration may
// have set them. Those that rootsfs itself obeys are kept, since wrap lets no project set them.
func (p *runPlan) ownersEnviron() []string {
	return p.judge().Environ(func(name string) bool { return p.isPassed(name) && !hostconfig.IsSteering(name) })
}

// isPassed reports whether --env passes a variable on by name.
func (p *runPlan) isPassed(name string) bool {
	return slices.ContainsFunc(p.passed, func(e string) bool {
		prefix, isPrefix := strings.CutSuffix(e, "*")
		return name == e || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// givenName returns the name of the run if the owner gave it, which [[net]],
// [[secret]] and [[root]] blocks go by: by --name, by the preset of an agent, or by a command that lies in no root and
// no kept HOME. A project chooses the names of its own files.
func (f *runFlags) givenName(p *runPlan) string {
	if f.Name != "" {
		return f.Name
	}
	name, word := nameAndWord(p.box.Args)
	if one, ok := agents.Find(f.Agent); ok && (name == one.Command || name == one.Name) {
		return name
	}
	for _, option := range p.box.Args[1:max(1, slices.Index(p.box.Args, word))] {
		if strings.HasPrefix(option, "-") || strings.ContainsAny(option, " \n;") {
			return "" // of an interpreter: it may run what the option says, with word as an argument
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
		dirs = append(dirs, g.Dir)
	}
	if f.home != "" {
		dirs = append(dirs, f.home)
	}
	if written.NewJudge(dirs...).File(word) != nil {
		return ""
	}
	return name
}

// takeName is told the name that the owner gave the run, "" for none. Without one the run gets
// nothing that the configuration has for a name, and a hint if it has something for the
// command's.
func (p *runPlan) takeName(given string) {
	p.given, p.session.NameUngiven = given, given == ""
	if given != "" {
		return
	}
	name, conf := p.session.NameFor, p.session.Config
	isOthers := func(g guard.Grant) bool { return g.Subject != "" && g.Origin == config.Origin }
	if slices.ContainsFunc(conf.Secrets, func(s config.Secret) bool { return s.Subject == name }) ||
		slices.ContainsFunc(conf.Net, func(n config.Net) bool { return n.Subject == name }) ||
		slices.ContainsFunc(p.session.Roots, func(g guard.Grant) bool { return isOthers(g) && string(g.Subject) == name }) {
		p.ungiven = name
	}
	p.session.Roots = slices.DeleteFunc(p.session.Roots, isOthers)
}

// hintNames says that the session has another name than --name says, and why blocks of the
// configuration are left out.
func (r *runner) hintNames() {
	if name := r.plan.flags.Name; name != "" && name != r.s.Name() {
		r.a.warn("a live session is named %s: this one is %s", names.Quote(name), names.ShellWord(r.s.Name()))
	}
	if name := r.plan.ungiven; name != "" {
		r.a.warn("the configuration has [[net]], [[secret]] or [[root]] blocks for runs named %s, which this run does not get: the name is that of a file which programs can write or a root shows; add --name %s if this run is meant",
			names.Quote(name), names.ShellWord(name))
	}
}

// trustedHome returns the files that are brought into a kept HOME, without those that programs
// could have made a link to another file of the owner's.
func (r *runner) trustedHome() (files []string) {
	judge := r.plan.judge()
	for _, file := range r.plan.flags.homeParts {
		from, err := ownerFile(file)
		if err == nil {
			err = judge.File(from)
		}
		if err != nil {
			r.a.warn("%s is left out of the kept HOME: %s", names.Quote(cmp.Or(from, file)), names.EscapeQuoted(err.Error()))
			continue
		}
		files = append(files, file)
	}
	return files
}
