package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of values that nobody means: they are typing errors.
const (
	maxSpeed   = 1e9
	maxTimeout = 24 * time.Hour
	// MaxIdle is the longest time without use that a limit may say.
	MaxIdle     = 365 * 24 * time.Hour
	maxLife     = 100 * 365 * 24 * time.Hour
	maxDebounce = time.Minute
	// MaxAuditDays bounds audit_max_days.
	MaxAuditDays = 36_500
)

// parse reads a document. file is its absolute name, home the directory ~
// stands for ("" if there is none).
func parse(file, home string, doc []byte) (*Config, error) {
	r := &reader{file: file, lines: findLines(doc)}
	if l := r.lines; l.excess != nil {
		r.fail(l.excess, "%s", l.what)
		return nil, r.err()
	}
	m, err := decode(file, doc)
	if err != nil {
		return nil, err
	}
	c := &Config{Path: file, Debounce: DefaultDebounce, Profiles: map[string][]Root{}}
	parseInto(c, table{r: r, m: m}, home)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// parseInto reads a document's tables.
func parseInto(c *Config, top table, home string) {
	c.mount(top.table("mount"))
	c.run(top.table("run"), home)
	c.agents(top.table("agent"), home)
	c.net(top.tables("net"))
	c.Files = readFiles(top.table("files"), home)
	c.Subjects = readSubjects(top.tables("subject"))
	c.Abuse = readAbuse(top.table("abuse"))
	var limits guard.Limits
	readLimits(top.table("limits"), &limits)
	defaults := Root{Limits: limits, Patterns: readPatterns(top.table("policy"), guard.Patterns{}),
		Trash: readTrash(top.table("trash"), guard.Trash{})}
	reload := top.table("reload")
	if d, ok := reload.duration("debounce", time.Millisecond, maxDebounce); ok {
		c.Debounce = d
	}
	reload.done()
	c.roots(top.tables("root"), home, defaults)
	c.profiles(top.table("profile"), home, defaults)
	top.done()
}

func (c *Config) mount(t table) {
	c.Mount = Mount{
		// The words of mount.ParseLevel, mount.ParseLocks and audit.ParsePathMode; a
		// test compares.
		Cache:      t.oneOf("cache", "strict", "audit", "max"),
		Locks:      t.oneOf("locks", "local", "host"),
		Posix:      t.oneOf("posix", "safe", "full"),
		AuditPaths: t.oneOf("audit_paths", "full", "hash", "none"),
		ReadOnly:   t.flag("read_only"),
		AllowOther: t.flag("allow_other"),
	}
	if n, ok := t.size("audit_max_size"); ok {
		c.Mount.AuditMaxSize = &n
	}
	if n, ok := t.count("audit_max_days", MaxAuditDays); ok {
		c.Mount.AuditMaxDays = &n
	}
	t.done()
}

func (c *Config) run(t table, home string) {
	c.Run.Level = t.oneOf("level", "namespaces", "bubblewrap", "landlock") // the words of sandbox.ParseLevel
	c.Run.Links = t.oneOf("links", "visible", "strict")
	t.note("listen", portsSchema)
	ports, _ := get[[]any](t, "listen", "a list of ports")
	for i, v := range ports {
		port, ok := v.(int64)
		if !ok || port < 1 || port > math.MaxUint16 {
			t.r.fail(t.sub("listen", index(i)), "%v is not a port from 1 to %d", v, math.MaxUint16)
			continue
		}
		c.Run.Listen = append(c.Run.Listen, int(port))
	}
	t.note("socket", textsSchema)
	sockets, _ := get[[]any](t, "socket", "a list of paths")
	for i, v := range sockets {
		text, ok := v.(string)
		path, err := absolute(text, home)
		if !ok {
			err = errors.New("must be text in quotes")
		}
		if err != nil {
			t.r.fail(t.sub("socket", index(i)), "%w", err)
			continue
		}
		c.Run.Sockets = append(c.Run.Sockets, path)
	}
	t.done()
}

// agents reads what is said of agents.
func (c *Config) agents(t table, home string) {
	c.Agents = map[string]Agent{}
	t.each(func(name string, in table) {
		if in.m == nil && in.shape == nil {
			t.fail(name, "must be a table, [agent.%s]", names.Escape(name))
			return
		}
		if in.shape == nil && !slices.Contains(agents.Names(), name) {
			t.fail(name, "there is no such agent: there are %s", strings.Join(agents.Names(), ", "))
		}
		a := Agent{
			Mode:      in.word("mode", func(text string) error { _, err := guard.ParseMode(text); return err }),
			HomeDir:   in.word("home", func(text string) error { _, err := absolute(text, home); return err }),
			HomeFiles: in.texts("home_files"), Env: in.texts("env"), Hide: in.texts("hide"), Protect: in.texts("protect"),
			Hosts: in.texts("hosts"),
		}
		in.rules("hosts", a.Hosts)
		if a.HomeDir != "" {
			a.HomeDir, _ = absolute(a.HomeDir, home) // checked
		}
		if on, ok := in.given("net"); ok {
			a.Net = &on
		}
		for _, f := range a.HomeFiles {
			if !filepath.IsLocal(f) {
				in.fail("home_files", "%s is not a path below HOME", names.Quote(f))
			}
		}
		if err := (&guard.Patterns{Hide: guard.Texts(a.Hide...), Protect: guard.Texts(a.Protect...)}).Check(); err != nil {
			in.fail("hide", "or protect: %w", err)
		}
		in.done()
		c.Agents[name] = a
	})
}

// net reads the hosts of runs.
func (c *Config) net(blocks []table) {
	for _, t := range blocks {
		hosts := t.texts("hosts")
		if len(hosts) == 0 {
			t.fail("hosts", "is missing: write hosts = [\"api.example.org:443\"]")
		}
		n := Net{Hosts: t.rules("hosts", hosts), Subject: t.word("subject", checkSubject), Expires: t.moment("expires")}
		n.For, _ = t.duration("for", time.Second, maxLife)
		if n.For > 0 && !n.Expires.IsZero() {
			t.fail("for", "hosts have an end (expires) or a life (for), not both")
		}
		t.done()
		c.Net = append(c.Net, n)
	}
}

// rules reads the hosts that texts has returned for a key.
func (t table) rules(key string, hosts []string) (rules []network.Rule) {
	for i, h := range hosts {
		r, err := network.ParseRule(h)
		if err != nil {
			t.r.fail(t.sub(key, index(i)), "%w", err)
		}
		rules = append(rules, r)
	}
	return rules
}

// texts reads a list of texts; nil if the key is not there.
func (t table) texts(key string) []string {
	t.note(key, textsSchema)
	list, ok := get[[]any](t, key, "a list of texts")
	if !ok {
		return nil
	}
	out := []string{}
	for i, v := range list {
		text, ok := v.(string)
		if !ok || text == "" {
			t.r.fail(t.sub(key, index(i)), "must be text in quotes")
			continue
		}
		out = append(out, text)
	}
	return out
}

// readLimits overwrites those limits that the table names.
func readLimits(t table, l *guard.Limits) {
	if v, ok := t.speed("ops_per_second"); ok {
		l.OpsPerSecond = v
	}
	if v, ok := t.count("burst", math.MaxInt32); ok {
		l.Burst = int(v)
	}
	for _, s := range []struct {
		key string
		to  *int64
	}{{"bytes_in_flight", &l.BytesInFlight}, {"max_file", &l.MaxFile}, {"max_written", &l.MaxWritten}} {
		if v, ok := t.size(s.key); ok {
			*s.to = v
		}
	}
	if v, ok := t.count("max_created", math.MaxInt64); ok {
		l.MaxCreated = v
	}
	if v, ok := t.duration("timeout", time.Millisecond, maxTimeout); ok {
		l.Timeout = v
	}
	if v, ok := t.duration("idle", time.Second, MaxIdle); ok {
		l.Idle = v
	}
	t.done()
}

// readTrash overwrites what the table names.
func readTrash(t table, tr guard.Trash) guard.Trash {
	if on, ok := t.given("on"); ok {
		tr.On = on
	}
	if n, ok := t.size("size"); ok {
		if tr.Size = n; n == 0 {
			t.fail("size", "0 would keep nothing; write on = false")
		}
	}
	if d, ok := t.duration("age", time.Second, MaxIdle); ok {
		tr.Age = d
	}
	t.done()
	return tr
}

func (c *Config) roots(blocks []table, home string, defaults Root) {
	byName := map[guard.RootName]int{}
	for _, t := range blocks {
		root := readRoot(t, home, defaults)
		root.Line = t.r.lines.line(t.path)
		if first, twice := byName[root.Name]; twice && root.Name != "" {
			t.fail("name", "the name %s is taken by the root of line %d; give this one another name", names.Quote(string(root.Name)), first)
		} else {
			byName[root.Name] = root.Line
		}
		if names.Under(c.Path, root.Path) {
			t.fail("path", "%s contains this configuration file, which no root may; choose a directory that does not", names.Quote(root.Path))
		}
		c.Roots = append(c.Roots, root)
	}
}

// checkSubject refuses what no server is called.
func checkSubject(s string) error {
	if !guard.Subject(s).Named() {
		return fmt.Errorf("%s is no name of a server: write 1 to %d bytes without control or invisible characters, no space at either end, or leave the key out for every server", names.Quote(s), guard.MaxSubject)
	}
	return nil
}

// checkSubjects is checkSubject where "*" stands for all.
func checkSubjects(s string) error {
	if s == "*" {
		return nil
	}
	return checkSubject(s)
}

// CheckSubject refuses a server's name that the configuration would refuse.
func CheckSubject(s string) error { return checkSubject(s) }

func readRoot(t table, home string, defaults Root) Root {
	root := Root{
		Rights: guard.ReadOnly, Limits: defaults.Limits,
		CrossFileSystems: t.flag("cross_file_systems"), AllowSystem: t.flag("allow_system"), Expires: t.moment("expires"),
	}
	root.Subject = guard.Subject(t.word("subject", checkSubject))
	root.For, _ = t.duration("for", time.Second, maxLife)
	if root.For > 0 && !root.Expires.IsZero() {
		t.fail("for", "a root has an end (expires) or a life (for), not both")
	}
	readLimits(t.table("limits"), &root.Limits)
	root.Patterns = readPatterns(t.table("policy"), defaults.Patterns)
	root.Trash = readTrash(t.table("trash"), defaults.Trash)
	_, hasPath := t.m["path"]
	path, uri := t.text("path"), t.text("uri")
	var err error
	switch {
	case path != "" && uri != "":
		t.fail("uri", "a root has a path or a uri, not both")
	case uri != "":
		root.Path, err = names.ParseURI(uri)
	case path != "":
		root.Path, err = absolute(path, home)
	case !hasPath:
		t.fail("path", "is missing: write path = \"/…\" or uri = \"file:///…\"")
	default:
		t.fail("path", "is empty")
	}
	if err != nil {
		t.fail("path", "%w", err)
	}
	if mode := t.text("mode"); mode != "" {
		if root.Rights, err = guard.ParseMode(mode); err != nil {
			t.fail("mode", "%w", err)
		}
	}
	root.Name = nameOf(t, root.Path)
	t.done()
	return root
}

// nameOf reads a root's name, or makes it from the path.
func nameOf(t table, path string) guard.RootName {
	t.note("name", textSchema)
	name, given := get[string](t, "name", "text in quotes")
	var n guard.RootName
	var err error
	switch {
	case given:
		n, err = names.ParseRootName(name)
	case path != "":
		n, err = guard.DefaultName(path)
	}
	if err != nil {
		t.fail("name", "%w", err)
	}
	return n
}

// profiles reads the sets of roots. An element is the name of a [[root]], or a
// spec as on the command line.
func (c *Config) profiles(t table, home string, defaults Root) {
	known := map[string]Root{}
	for _, r := range c.Roots {
		known[string(r.Name)] = r
	}
	t.each(func(name string, p table) {
		if _, err := names.ParseRootName(name); err != nil {
			t.fail(name, "%w", err)
		}
		if p.m == nil {
			t.fail(name, "must be a table with roots = [...]")
			return
		}
		_, has := p.m["roots"]
		p.note("roots", textsSchema)
		list, _ := get[[]any](p, "roots", "a list of names and specs")
		if !has {
			p.fail("roots", "is missing: write roots = [...]")
		}
		set := []Root{}
		taken := map[guard.RootName]bool{}
		for i, v := range list {
			at := p.sub("roots", index(i))
			root, err := element(v, known, home, defaults)
			switch {
			case err != nil:
				t.r.fail(at, "%w", err)
				continue
			case taken[root.Name]:
				t.r.fail(at, "the name %s is in this list twice", names.Quote(string(root.Name)))
			case names.Under(c.Path, root.Path):
				t.r.fail(at, "%s contains this configuration file, which no root may", names.Quote(root.Path))
			}
			if root.Line == 0 {
				root.Line = t.r.lines.line(at)
			}
			taken[root.Name] = true
			set = append(set, root)
		}
		p.done()
		c.Profiles[name] = set
	})
}

func element(v any, known map[string]Root, home string, defaults Root) (Root, error) {
	s, ok := v.(string)
	if !ok {
		return Root{}, errors.New("must be text in quotes: a root's name or a spec")
	}
	if root, ok := known[s]; ok {
		return root, nil
	}
	spec, err := guard.ParseSpec(s)
	if err != nil {
		return Root{}, err
	}
	root := Root{Name: spec.Name, Rights: spec.Rights, Limits: defaults.Limits, Patterns: defaults.Patterns, Trash: defaults.Trash}
	if root.Path, err = absolute(spec.Path, home); err != nil {
		return Root{}, fmt.Errorf("no [[root]] is named %s, and as a spec: %w", names.Quote(s), err)
	}
	if root.Name == "" {
		root.Name, err = guard.DefaultName(root.Path)
	}
	return root, err
}

// absolute undoes ~. A relative path means nothing here: the file is read by
// sessions that run in any directory.
func absolute(path, home string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", errors.New("the path has a NUL byte")
	}
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home == "" {
			return "", fmt.Errorf("path %s: there is no home directory; set HOME", names.Quote(path))
		}
		path = home + path[1:]
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("path %s is relative; write an absolute one, or one that begins with ~/", names.Quote(path))
	}
	return filepath.Clean(path), nil
}

// homeDir is what ~ stands for, "" if nothing.
func homeDir() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Clean(home)
}
