package grantflags

import (
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/guard"
)

// Patterns are the flags about the names in a root, which `mount`, `run`,
// `roots add` and `policy set` share.
type Patterns struct {
	Hide, deny, Protect, allow []string
	gitignore, noDefaults      bool
}

func (f *Patterns) Add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.Hide, "hide", nil, "hide names that match this `pattern`, written as in .gitignore; repeatable")
	fs.StringArrayVar(&f.deny, "deny", nil, "show names that match this `pattern`, and open none of them; repeatable")
	fs.StringArrayVar(&f.Protect, "protect", nil, "let names that match this `pattern` be read and never changed; repeatable")
	fs.StringArrayVar(&f.allow, "allow", nil, "lift the built-in rules for names that match this `pattern`, and for everything below them; repeatable")
	fs.BoolVar(&f.gitignore, "respect-gitignore", false, "hide what the .gitignore files of a root name now")
	fs.BoolVar(&f.noDefaults, "no-default-policy", false, "turn the built-in rules off")
}

func (f *Patterns) Patterns() (guard.Patterns, error) {
	p := guard.Patterns{
		Hide: texts(f.Hide), Deny: texts(f.deny), Protect: texts(f.Protect), Allow: texts(f.allow),
		Gitignore: f.gitignore, NoDefaults: f.noDefaults,
	}
	return p, cli.Usage(p.Check())
}

// texts is nil for no pattern, so that a policy without any is the zero one.
func texts(list []string) []guard.Pattern {
	if len(list) == 0 {
		return nil
	}
	return guard.Texts(list...)
}
