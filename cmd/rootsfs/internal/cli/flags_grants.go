package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/project"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// grantFlags are the flags about grants, which `mount`, `run`, `serve` and `roots add` share.
type grantFlags struct {
	ForTime  time.Duration
	ForAgent bool // --for of `run` names an agent, perhaps without a duration
	Until    string
	Limits   keyFlags[guard.Limits]
	oneFS    bool
	crossFS  bool
	Once     []string
	trash    keyFlags[rules.Trash]
	trashOn  bool
	Patterns patternFlags
	Fs       *pflag.FlagSet // the set that the flags were added to
}

func (g *grantFlags) Add(cmd *cobra.Command) {
	fs := cmd.Flags()
	g.Fs = fs
	fs.DurationVar(&g.ForTime, "for", 0, "revoke after this `duration`, such as 30m or 8h")
	fs.StringVar(&g.Until, "until", "", "revoke at this `time`: 15:04, 2006-01-02T15:04 or RFC 3339")
	addLimits(cmd, &g.Limits)
	fs.BoolVar(&g.oneFS, "one-file-system", true, "do not enter other file systems mounted inside a root")
	hideFlags(fs, "one-file-system") // the default
	fs.BoolVar(&g.crossFS, "cross-file-systems", false, "enter other file systems mounted inside a root")
	fs.StringArrayVar(&g.Once, "once", nil, "approve one use of one file: `SPEC` is [NAME=]FILE[:MODE]; repeatable")
	g.Patterns.Add(fs)
	fs.BoolVar(&g.trashOn, "trash", false, "keep what is removed, replaced or truncated in "+rules.TrashName+" of the root")
	g.trash.addEach(cmd, "trash-", config.TrashBounds()) // keys of [trash]
}

// isGiven reports whether the command line has the flag.
func (g *grantFlags) isGiven(flag string) bool { return g.Fs != nil && g.Fs.Changed(flag) }

// checkCombination refuses flags that contradict each other, or need another one.
func (g *grantFlags) checkCombination() error {
	switch {
	case g.isGiven("one-file-system") && g.isGiven("cross-file-systems") && g.oneFS == g.crossFS:
		return usage(errors.New("--one-file-system and --cross-file-systems cannot be combined: use one of them"))
	case g.Limits.Values.Burst > 0 && g.Limits.Values.OpsPerSecond == 0:
		return usage(errors.New("--limit burst needs --limit ops_per_second: write both"))
	case !g.trashOn && len(g.trash.setKeys) > 0:
		return usage(errors.New("--trash-size and --trash-age need --trash: write it as well"))
	}
	return nil
}

// policy returns the policy that the flags set, without the rights.
func (g *grantFlags) policy() (guard.Policy, error) {
	// --one-file-system is true by default, so it does not overrule --cross-file-systems.
	p := guard.Policy{OtherFileSystems: g.crossFS || !g.oneFS}
	err := g.checkCombination()
	if err != nil {
		return p, err
	}
	if p.Limits = g.Limits.Values; p.Limits.Timeout == 0 {
		p.Limits.Timeout = rules.DefaultTimeout
	}
	p.Trash = g.trash.Values
	p.Trash.On = g.trashOn
	p.Patterns, err = g.Patterns.patterns()
	return p, err
}

// expires returns the end of grants made now; zero: never.
func (g *grantFlags) expires(now time.Time) (time.Time, error) {
	switch {
	case g.ForTime != 0 && g.Until != "":
		return time.Time{}, usage(errors.New("--for and --until: use one of them"))
	case g.ForTime < 0 || g.ForTime == 0 && g.isGiven("for") && !g.ForAgent:
		return time.Time{}, usage(fmt.Errorf("--for %v: write a positive duration, such as 30m", g.ForTime))
	case g.ForTime > 0:
		return now.Add(g.ForTime), nil
	case g.Until == "":
		return time.Time{}, nil
	}
	t, err := parseUntil(g.Until, now)
	if err != nil {
		return time.Time{}, usage(fmt.Errorf("--until %s: %w", names.Quote(g.Until), err))
	}
	return t, nil
}

// parseUntil reads a time in the future. A time of day without a date is the next one.
func parseUntil(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			if !t.After(now) {
				return time.Time{}, errors.New("that is in the past")
			}
			return t, nil
		}
	}
	t, err := time.ParseInLocation("15:04", s, now.Location())
	if err != nil {
		return time.Time{}, errors.New("write 15:04, 2006-01-02T15:04 or an RFC 3339 time")
	}
	t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
	if !t.After(now) {
		t = t.AddDate(0, 0, 1) // the next day at this time
	}
	return t, nil
}

// parseSize is config.ParseSize, but accepts "", for which it returns 0 (the sandbox's default), and
// refuses a size of 0.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := config.ParseSize(s)
	if err == nil && n == 0 {
		return 0, errors.New("write a size above 0 such as 500K, 10M or 1G; leave the flag out for the default")
	}
	return n, err
}

// bound returns the bound that the flags put on configured roots, which have their own
// policies.
func (g *grantFlags) bound(now time.Time) (session.Bound, error) {
	p, err := g.policy()
	if err != nil {
		return session.Bound{}, err
	}
	b := session.Bound{Limits: g.Limits.Values, OneFileSystem: g.isGiven("one-file-system") && g.oneFS, Patterns: p.Patterns, Trash: p.Trash}
	b.Expires, err = g.expires(now)
	return b, err
}

// grants turns SPECs into grants with the policy and expiry of the flags. A root whose SPEC has
// no name gets none here.
func (g *grantFlags) grants(specs []string, origin string) ([]guard.Grant, error) {
	policy, err := g.policy()
	if err != nil {
		return nil, err
	}
	expires, err := g.expires(time.Now())
	if err != nil {
		return nil, err
	}
	out := make([]guard.Grant, 0, len(specs))
	for _, text := range specs {
		spec, err := rootspec.Parse(text)
		if err != nil {
			return nil, err
		}
		one, err := fromSpec(spec)
		if err != nil {
			return nil, err
		}
		if spec.Name == "" {
			one.Root = ""
		}
		one.Origin, one.Expires = origin, expires
		policy.Rights = spec.Rights
		one.Policy = policy
		out = append(out, one)
	}
	return out, nil
}

// all returns the grants of SPECs and of --once. A root whose SPEC has no name gets the name of its
// directory, with a number if another grant has the same name.
func (g *grantFlags) all(specs []string, origin string, others ...guard.Grant) ([]guard.Grant, error) {
	out, err := g.grants(specs, origin)
	if err != nil {
		return nil, err
	}
	single, err := g.grants(g.Once, origin)
	for i := range single {
		single[i].Policy.Once = true
	}
	if err != nil {
		return nil, err
	}
	return nameAll(append(out, single...), others)
}

// nameAll names the grants of list that have no name. It leaves out a grant without a name if an
// earlier grant of list has the same directory, rights and Once.
func nameAll(list, others []guard.Grant) ([]guard.Grant, error) {
	taken := map[guard.RootName]bool{}
	for _, g := range slices.Concat(others, list) {
		taken[g.Root] = true
	}
	out := list[:0:0]
	for _, g := range list {
		if g.Root != "" {
			out = append(out, g)
			continue
		}
		isSame := func(have guard.Grant) bool {
			return session.Resolve(have.Dir.Raw()) == session.Resolve(g.Dir.Raw()) && have.Policy.Rights == g.Policy.Rights && have.Policy.Once == g.Policy.Once
		}
		if slices.ContainsFunc(out, isSame) {
			continue
		}
		own, err := rootspec.DefaultName(g.Dir.Raw())
		if err != nil {
			return nil, err
		}
		g.Root = own
		for n := 2; taken[g.Root]; n++ {
			if g.Root, err = names.ParseRootName(string(own) + fmt.Sprintf("-%d", n)); err != nil {
				return nil, err
			}
		}
		taken[g.Root] = true
		out = append(out, g)
	}
	return out, nil
}

// fromSpec returns a grant with the directory and the name of a SPEC. If the SPEC has no name, the
// grant gets the name of the directory.
func fromSpec(spec rootspec.Spec) (guard.Grant, error) {
	dir, err := workingDir()
	if err != nil {
		return guard.Grant{}, err
	}
	path := spec.Path
	if path == "auto" {
		if path, _, err = project.Detect(dir); err != nil {
			return guard.Grant{}, err
		}
	}
	if path, err = expandHome(path); err != nil {
		return guard.Grant{}, fmt.Errorf("root %w", err)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	g := guard.Grant{Root: spec.Name, Dir: names.Foreign(filepath.Clean(path))}
	if g.Root == "" {
		if g.Root, err = rootspec.DefaultName(g.Dir.Raw()); err != nil {
			return guard.Grant{}, fmt.Errorf("root %s: the last name of the path cannot be the root's: %w; give the root a name: NAME=PATH", names.QuoteShort(g.Dir), err)
		}
	}
	if spec.Mode != "" && !pathExists(g.Dir.Raw()) && pathExists(g.Dir.Raw()+":"+spec.Mode) {
		return guard.Grant{}, fmt.Errorf("root %s: the end is read as the mode, and %s does not exist; to name the directory that is called so, write the mode after it: %s:%s",
			names.Quote(spec.Path+":"+spec.Mode), names.Quote(g.Dir), names.Escape(spec.Path+":"+spec.Mode), spec.Mode)
	}
	return g, nil
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// patternFlags are the flags about the names in a root, which `mount`, `run`, `serve`,
// `roots add` and `policy set` share.
type patternFlags struct {
	Hide, deny, Protect, allow []string
	gitignore, noDefaults      bool
}

func (f *patternFlags) Add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.Hide, "hide", nil, "hide names that match this `pattern`, written as in .gitignore; repeatable")
	fs.StringArrayVar(&f.deny, "deny", nil, "show names that match this `pattern`, and open none of them; repeatable")
	fs.StringArrayVar(&f.Protect, "protect", nil, "let names that match this `pattern` be read and never changed; repeatable")
	fs.StringArrayVar(&f.allow, "allow", nil, "lift the built-in rules for names that match this `pattern`, and for everything below them; repeatable")
	fs.BoolVar(&f.gitignore, "respect-gitignore", false, "hide what the .gitignore files of a root name now")
	fs.BoolVar(&f.noDefaults, "no-default-policy", false, "turn the built-in rules off")
}

func (f *patternFlags) patterns() (guard.Patterns, error) {
	p := guard.Patterns{
		Hide: patternsOf(f.Hide), Deny: patternsOf(f.deny), Protect: patternsOf(f.Protect), Allow: patternsOf(f.allow),
		Gitignore: f.gitignore, NoDefaults: f.noDefaults,
	}
	return p, usage(p.Check())
}

// patternsOf returns nil for an empty list, so that a policy without patterns is the zero
// policy.
func patternsOf(list []string) []rules.Pattern {
	if len(list) == 0 {
		return nil
	}
	return guard.Texts(list...)
}

// askLinks asks on the terminal about each root of the command line whose path passes a link
// that others can change. If the answer is yes, it puts the place where the path leads into the
// grant. Without a terminal it changes nothing, and the session refuses the grants.
func askLinks(grants []guard.Grant) error {
	if !isTerminal(os.Stdin) {
		return nil
	}
	for i := range grants {
		g := &grants[i]
		var link *rules.LinkError
		if err := writabledirs.CheckLinks(g.Dir.Raw()); !errors.As(err, &link) {
			continue // the session reports any other error
		}
		if err := askLink(link, fmt.Sprintf("Grant %s as the root %s?", names.Quote(link.Resolved), names.Quote(string(g.Root)))); err != nil {
			return err
		}
		g.Dir = names.Foreign(link.Resolved)
	}
	return nil
}

// askLink asks on the terminal whether a path through a link is the intended one.
func askLink(link *rules.LinkError, question string) error {
	what := fmt.Sprintf("%s passes the link %s, which %s can change, and leads to %s\n",
		names.Quote(link.Asked), names.Quote(link.Link), link.Others, names.Quote(link.Resolved))
	return confirm(what, question)
}
