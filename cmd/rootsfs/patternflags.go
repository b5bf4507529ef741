package main

import (
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/guard"
)

// patternFlags are the flags about the names in a root, which `mount`, `run`,
// `roots add` and `policy set` share.
type patternFlags struct {
	hide, deny, protect, allow []string
	gitignore, noDefaults      bool
}

func (f *patternFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.hide, "hide", nil, "hide what matches this `pattern`, written as in .gitignore: it is not there; may be given again")
	fs.StringArrayVar(&f.deny, "deny", nil, "deny what matches this `pattern`: it is seen and not opened; may be given again")
	fs.StringArrayVar(&f.protect, "protect", nil, "protect what matches this `pattern`: it is read and never changed; may be given again")
	fs.StringArrayVar(&f.allow, "allow", nil, "lift the built-in protections of what matches this `pattern`, and of all below (see: rootsfs policy show); may be given again")
	fs.BoolVar(&f.gitignore, "respect-gitignore", false, "hide what the .gitignore files of a root name, as they are now")
	fs.BoolVar(&f.noDefaults, "no-default-policy", false, "turn the built-in protections off")
}

func (f *patternFlags) patterns() (guard.Patterns, error) {
	p := guard.Patterns{
		Hide: texts(f.hide), Deny: texts(f.deny), Protect: texts(f.protect), Allow: texts(f.allow),
		Gitignore: f.gitignore, NoDefaults: f.noDefaults,
	}
	return p, usage(p.Check())
}

// texts is nil for no pattern, so that a policy without any is the zero one.
func texts(list []string) []guard.Pattern {
	if len(list) == 0 {
		return nil
	}
	return guard.Texts(list...)
}
