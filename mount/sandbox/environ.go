package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// harmlessVariables has the variables that a command always gets, if they are set: for finding
// programs, for the language and the terminal. A name that ends in * stands for all names with
// this beginning.
var harmlessVariables = []string{
	"PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE",
}

// systemPath lists the directories of the system's programs. It is the PATH of a command whose
// environment has none.
const systemPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

var envName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
})

// Environ makes a command's environment out of the caller's: a few harmless variables, and
// those on the list. An entry is NAME (passed on if it is set), PREFIX* (all names with this
// beginning) or NAME=VALUE. A later entry overrides an earlier one. Start adds the variables
// that name private places (HOME, TMPDIR, XDG's directories, caches of npm, pip and Go).
// Everything else stays outside, above all secrets.
//
// An entry that is none of the three forms is an error of kind Invalid.
func Environ(allow []string) ([]string, error) {
	vars := map[string]string{}
	for _, a := range append(slices.Clone(harmlessVariables), allow...) {
		name, value, hasValue := strings.Cut(a, "=")
		prefix, star := strings.CutSuffix(name, "*")
		if !envName().MatchString(prefix) || star && hasValue || strings.IndexByte(value, 0) >= 0 {
			return nil, invalid("%s does not name a variable: write NAME, NAME=VALUE or PREFIX*", names.Quote(a))
		}
		switch {
		case hasValue:
			vars[name] = value
		case star:
			for _, e := range os.Environ() {
				if n, v, _ := strings.Cut(e, "="); strings.HasPrefix(n, prefix) {
					vars[n] = v
				}
			}
		default:
			if v, ok := os.LookupEnv(name); ok {
				vars[name] = v
			}
		}
	}
	delete(vars, initproc.Variable)
	env := make([]string, 0, len(vars))
	for n, v := range vars {
		env = append(env, n+"="+v)
	}
	slices.Sort(env)
	return env, nil
}

// offline tells package managers that there is no network: they then fail at once instead
// of trying for minutes (npm), and use the packages that they have.
var offline = []string{"npm_config_offline=true", "UV_OFFLINE=1", "PIP_RETRIES=0", "CARGO_NET_OFFLINE=true", "GOPROXY=off"}

// addMissing appends to env the variables of more whose names env lacks.
func addMissing(env, more []string) []string {
	for _, e := range more {
		name, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(env, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			env = append(env, e)
		}
	}
	return env
}

// completeEnv returns the command's environment at a level. It adds the variables that Options.Env
// lacks: for the private directories, for package managers without a network, for the user's name,
// the shell and PATH. It removes directories from PATH that do not exist inside: their names would
// reveal facts about the host.
func completeEnv(o *Options, level Level, private privateDirs) []string {
	name := layout.UserName(o.UID)
	env := addMissing(slices.Clone(o.Env), private.environ())
	if !o.Net && (o.Network == nil || o.Network.Offline) && level != None {
		env = addMissing(env, offline)
	}
	env = addMissing(env, []string{"USER=" + name, "LOGNAME=" + name, "SHELL=" + layout.Shell(), "PATH=" + systemPath})
	for i, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			env[i] = "PATH=" + insidePath(o, path)
		}
	}
	return env
}

// insidePath returns a PATH without relative directories and without the directories of which
// nothing is shown inside. With Map Same, a directory that is shown only by its path without links
// gets this path. If no directory of systemPath is left in PATH, insidePath appends all of them:
// the other directories may show only some of their files.
func insidePath(o *Options, path string) string {
	var dirs []string
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if o.shows(names.FollowLinks(o.Links, dir)) {
			dirs = append(dirs, dir)
			continue
		}
		if o.Map != Same || slices.Contains(dirs, dir) {
			continue
		}
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir && o.shows(real) {
			dirs = append(dirs, real)
		}
	}
	system := filepath.SplitList(systemPath)
	if !slices.ContainsFunc(dirs, func(dir string) bool { return slices.Contains(system, dir) }) {
		dirs = append(dirs, system...)
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// shows reports whether a directory, or something in it, is shown inside. dir is a path without
// links.
func (o *Options) shows(dir string) bool {
	below := func(top string) bool { return names.Under(dir, top) }
	if slices.ContainsFunc(layout.SystemDirs, below) || o.Map == Flat && below(o.FlatAt) || below(layout.PrivateDir) {
		return true
	}
	holds := func(place string) bool { return names.Under(dir, place) || filepath.Dir(place) == dir }
	if slices.ContainsFunc(o.Interpreters, holds) || slices.ContainsFunc(o.Roots, holds) {
		return true
	}
	for at := range o.Links {
		if filepath.Dir(at) == dir {
			return true
		}
	}
	return false
}

// field returns the rest of the first line that begins with name, or "".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// privateDirs are the directories that belong to one command alone, as paths inside.
type privateDirs struct {
	Home    string // HOME; kept between runs with Options.Home
	Tmp     string // TMPDIR
	Runtime string // XDG_RUNTIME_DIR
}

// privateDirsAt returns the private directories at a level.
func privateDirsAt(o *Options, level Level) privateDirs {
	if level == Landlock || level == None {
		p := privateDirs{Home: filepath.Join(o.Private, "home"), Tmp: filepath.Join(o.Private, "tmp"), Runtime: filepath.Join(o.Private, "runtime")}
		if o.Home != "" {
			p.Home = o.Home
		}
		return p
	}
	p := privateDirs{Home: layout.Home, Tmp: "/tmp", Runtime: layout.Runtime}
	if o.Map == Same && slices.Contains(o.Roots, "/tmp") {
		p.Tmp = layout.Tmp
	}
	return p
}

// environ returns the variables that name the directories. It sets XDG's directories and the
// caches of npm, pip and Go one by one, because a system-wide configuration may set them to other
// paths.
func (p privateDirs) environ() []string {
	home := func(elem ...string) string { return filepath.Join(append([]string{p.Home}, elem...)...) }
	return []string{
		"HOME=" + p.Home,
		"TMPDIR=" + p.Tmp, "TMP=" + p.Tmp, "TEMP=" + p.Tmp,
		"XDG_RUNTIME_DIR=" + p.Runtime,
		"XDG_CACHE_HOME=" + home(".cache"),
		"XDG_CONFIG_HOME=" + home(".config"),
		"XDG_DATA_HOME=" + home(".local", "share"),
		"XDG_STATE_HOME=" + home(".local", "state"),
		"npm_config_cache=" + home(".npm"),
		"PIP_CACHE_DIR=" + home(".cache", "pip"),
		"GOPATH=" + home("go"),
		"GOMODCACHE=" + home("go", "pkg", "mod"),
		"GOCACHE=" + home(".cache", "go-build"),
	}
}
