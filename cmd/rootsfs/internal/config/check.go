package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// parse reads a document. file is its absolute name. home is the directory that ~ stands for,
// or "".
func parse(file, home string, doc []byte) (*Config, error) {
	r, err := newReader(file, home, doc)
	if err != nil {
		return nil, err
	}
	var f File
	r.table(r.top, reflect.ValueOf(&f).Elem())
	c := f.config(r)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// config turns a file into a Config. It makes the checks that concern several keys.
func (f *File) config(r *reader) *Config {
	c := &Config{Path: r.file, Mount: f.Mount, Run: f.Run, Files: f.Files, Agents: f.Agents, Abuse: ledger.Abuse(f.Abuse),
		Subjects: map[guard.Subject]ledger.Quota{}, Profiles: map[string][]Root{}, Debounce: f.Reload.Debounce, StageOutput: f.Stage.Output, FleetAllows: f.Fleet.Allow,
		RecordsStay: f.Fleet.ShareRecords != nil && !*f.Fleet.ShareRecords, limits: guard.Limits(f.Limits)}
	if c.Debounce == 0 {
		c.Debounce = defaultDebounce
	}
	if c.Abuse.Suspend && c.Abuse.Escapes == 0 && c.Abuse.Refusals == 0 {
		r.fail(r.top.Get("abuse"), "suspend", "says nothing without a bound; write escapes or refusals, too")
	}
	for name := range f.Agents {
		if !slices.Contains(agents.Names(), name) {
			r.fail(r.top.Get("agent"), name, "there is no such agent: there are %s", strings.Join(agents.Names(), ", "))
		}
	}
	for _, b := range f.Net {
		if _, ok := f.Profiles[b.Profile]; b.Profile != "" && !ok {
			b.fail("profile", "there is no table [profile.NAME] for %s", names.Quote(b.Profile))
		}
		b.check()
		c.Net = append(c.Net, b.Net)
	}
	for i := range f.Secrets {
		f.Secrets[i].check()
		c.Secrets = append(c.Secrets, f.Secrets[i].Secret)
	}
	for i := range f.Subjects {
		s := &f.Subjects[i]
		if _, twice := c.Subjects[s.Name]; twice {
			s.fail("name", "the server %s has a block already; write its limits there", names.Quote(string(s.Name)))
		}
		c.Subjects[s.Name] = ledger.Quota(s.quota)
	}
	c.roots(f)
	c.profiles(r, f)
	return c
}

func (b *netBlock) check() {
	switch {
	case b.has("hosts") && len(b.Hosts) == 0:
		b.fail("hosts", "is empty: write hosts = [\"api.example.org:443\"]")
	case !b.has("hosts") && !b.Ask:
		b.fail("hosts", "is missing: write hosts = [\"api.example.org:443\"], or ask = true")
	}
	if b.For > 0 && !b.Expires.IsZero() {
		b.fail("for", "hosts have an end (expires) or a life (for), not both")
	}
}

func (b *secretBlock) check() {
	if b.has("allow") && len(b.Allow) == 0 {
		b.fail("allow", "is empty, which allows nothing: write allow = [\"GET /repos/me/**\"], or leave it out")
	}
	if b.has("user") && (b.User == "" || strings.ContainsAny(b.User, ":\r\n")) {
		b.fail("user", "is no name of a user")
	}
	if b.has("user") && b.has("header") {
		b.fail("header", "a credential is sent in a header (header) or as a user's password (user), not both")
	}
	if b.has("file") && len(b.Command) > 0 {
		b.fail("command", "a credential is in a file (file) or printed by a command (command), not both")
	}
	for _, key := range []string{"header", "user", "in"} {
		if b.IsSigned() && b.has(key) {
			b.fail(key, "is not for keys of AWS, which sign requests and are not sent")
		}
	}
	if b.has("scopes") && (!b.IsSigned() || len(b.Scopes) == 0) {
		b.fail("scopes", "is for keys of AWS: write scopes = [\"s3/eu-central-1\"], with shown_as = \"~/.aws/credentials\"")
	}
}

func (c *Config) roots(f *File) {
	byName := map[guard.RootName]int{}
	for i := range f.Roots {
		b := &f.Roots[i]
		root := b.root(f)
		if first, twice := byName[root.Name]; twice && root.Name != "" {
			b.fail("name", "the name %s is taken by the root of line %d; give this one another name", names.Quote(string(root.Name)), first)
		} else {
			byName[root.Name] = root.Line
		}
		if names.Under(c.Path, root.Path) {
			b.fail("path", "%s contains this configuration file, which no root may; choose a directory that does not", names.Quote(root.Path))
		}
		c.Roots = append(c.Roots, root)
	}
}

// root returns the root of a block. A key that the block lacks has the value in the tables for all
// roots. Lists of patterns are those of [policy], followed by those of the block.
func (b *rootBlock) root(f *File) Root {
	root := b.Root
	root.Rights, root.Line = cmp.Or(b.Rights, guard.ReadOnly), b.line()
	root.Limits = guard.Limits(b.Limits.overriding(f.Limits))
	root.Patterns = guard.Patterns(b.Policy.overriding(f.Policy))
	root.Trash = rules.Trash(b.Trash.overriding(f.Trash))
	if b.Stage && !root.Rights.Mutating() {
		b.fail("stage", "needs a mode that writes; write mode = \"rw\"")
	} else if b.Stage {
		root.Rights = root.Rights.AsStaged()
	}
	if root.For > 0 && !root.Expires.IsZero() {
		b.fail("for", "a root has an end (expires) or a life (for), not both")
	}
	var err error
	switch {
	case b.URI != "" && b.has("path"):
		b.fail("uri", "a root has a path or a uri, not both")
	case b.URI != "":
		if root.Path, err = names.ParseURI(b.URI); err != nil {
			b.fail("path", "%w", err)
		}
	case !b.has("path"):
		b.fail("path", "is missing: write path = \"/…\" or uri = \"file:///…\"")
	}
	if root.Path != "" && !b.has("name") {
		if root.Name, err = rootspec.DefaultName(root.Path); err != nil {
			b.fail("name", "%w", err)
		}
	}
	return root
}

// root returns a root without a [[root]] block: it gets its settings from the tables for all roots.
func (f *File) root() Root {
	return Root{Rights: guard.ReadOnly, Limits: guard.Limits(f.Limits), Patterns: guard.Patterns(f.Policy), Trash: rules.Trash(f.Trash)}
}

// profiles fills c.Profiles from the file's profiles.
func (c *Config) profiles(r *reader, f *File) {
	known := map[string]Root{}
	for _, root := range c.Roots {
		known[string(root.Name)] = root
	}
	for name, p := range f.Profiles {
		if _, err := names.ParseRootName(name); err != nil {
			r.fail(r.top.Get("profile"), name, "%w", err)
		}
		set := []Root{}
		taken := map[guard.RootName]bool{}
		for i, text := range p.Roots {
			if text == "" {
				continue // fail has noted the mistake
			}
			at := p.at.Get("roots").Children[i]
			root, err := f.element(text, known, r.home)
			switch {
			case err != nil:
				r.fail(at, "", "%w", err)
				continue
			case taken[root.Name]:
				r.fail(at, "", "the name %s is in this list twice", names.Quote(string(root.Name)))
			case names.Under(c.Path, root.Path):
				r.fail(at, "", "%s contains this configuration file, which no root may", names.Quote(root.Path))
			}
			if root.Line == 0 {
				root.Line = at.Line
			}
			taken[root.Name] = true
			set = append(set, root)
		}
		c.Profiles[name] = set
	}
}

// element returns the root that an element of a profile names.
func (f *File) element(text string, known map[string]Root, home string) (Root, error) {
	if root, ok := known[text]; ok {
		return root, nil
	}
	spec, err := rootspec.Parse(text)
	if err != nil {
		return Root{}, err
	}
	root := f.root()
	root.Name, root.Rights = spec.Name, spec.Rights
	if root.Path, err = absolute(spec.Path, home); err != nil {
		return Root{}, fmt.Errorf("no [[root]] is named %s, and as a spec: %w", names.Quote(text), err)
	}
	if root.Name == "" {
		root.Name, err = rootspec.DefaultName(root.Path)
	}
	return root, err
}
