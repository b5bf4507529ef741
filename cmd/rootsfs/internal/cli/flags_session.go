package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount"
)

// sessionFlags are the flags of `rootsfs mount`. `rootsfs run` and `rootsfs serve` share most of them.
type sessionFlags struct {
	grantFlags
	abuse       keyFlags[ledger.Abuse]
	Subject     string
	Roots       []string
	Config      string
	Profile     string
	Name        string
	Cache       string
	Locks       string
	Transport   string
	Posix       string
	auditPaths  string
	ReadOnly    bool
	AllowOther  bool
	AllowSystem bool
	AllowTop    bool
	Stage       bool
	Daemon      bool
	verbose     verbosity
	debug       bool
}

// addMount adds the flags of every command that mounts.
func (f *sessionFlags) addMount(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Cache, "cache", "audit", "how much the kernel may keep: `level` strict, audit or max")
	cmd.Flags().StringVar(&f.Transport, "transport", "auto", "how the kernel's requests come: auto (io_uring on kernels that it was tested on, else plain), io_uring or plain")
	fixedWords(cmd, "cache", "strict", "audit", "max")
	fixedWords(cmd, "transport", "auto", "io_uring", "plain")
}

// addStart adds the flags of every command that starts a session: for its roots, configuration
// and records, and for its name, whose default is defaultName. Help does not show --audit-paths
// and --abuse-*: the configuration has keys for them.
func (f *sessionFlags) addStart(cmd *cobra.Command, defaultName string) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.Roots, "root", nil, "approve a root: `SPEC` is [NAME=]PATH[:MODE]; repeatable")
	pathVar(fs, &f.Config, "config", "configuration `file` (default $XDG_CONFIG_HOME/rootsfs/config.toml, if there is one)")
	fs.StringVar(&f.Profile, "profile", "", "take the roots of this `profile` of the configuration, not all")
	fs.StringVar(&f.Name, "name", "", "`name` of the session (default: "+defaultName+")")
	fs.StringVar(&f.auditPaths, "audit-paths", "full", "how paths are written in audit records: full, hash or none")
	fs.BoolVar(&f.AllowSystem, "allow-system", false, "let system directories such as /etc be writable")
	fs.BoolVar(&f.Stage, "stage", false, "stage every writable root: your files change only when you apply what was changed (see: rootsfs help stage)")
	fixedWords(cmd, "audit-paths", "full", "hash", "none")
	hideFlags(fs, "audit-paths")
	completeFlag(cmd, "profile", completeProfiles(func([]string) string { return f.Config }))
	f.abuse.addEach(cmd, "abuse-", config.AbuseBounds())
}

// verbosity adds -v, and --debug for -vv. more is the part of the help text that says which log
// lines -vv adds.
func (f *sessionFlags) verbosity(fs *pflag.FlagSet, more string) {
	fs.VarPF(&f.verbose, "verbose", "v", "log what happens to the roots; -vv also logs "+more).NoOptDefVal = oneMore
	fs.BoolVar(&f.debug, "debug", false, "-vv")
	hideFlags(fs, "debug")
}

// verbosity counts how often -v is given. It implements pflag.Value, and also accepts true and
// false, like a switch.
type verbosity int

// oneMore is the value that pflag sets for a -v without a value.
const oneMore = "+1"

// Set implements pflag.Value.
func (v *verbosity) Set(text string) error {
	if text == oneMore {
		*v++
		return nil
	}
	if on, err := strconv.ParseBool(text); err == nil {
		*v = 0
		if on {
			*v = 1
		}
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	*v = verbosity(n)
	return err
}

// String implements pflag.Value.
func (v *verbosity) String() string { return strconv.Itoa(int(*v)) }

// Type implements pflag.Value.
func (v *verbosity) Type() string { return "count" }

// Options turns flags and configuration into a session's options. Flags win.
func (f *sessionFlags) Options(cmd *cobra.Command, point string) (session.Options, error) {
	o := session.Options{Name: f.Name, Version: programVersion()}
	if f.Name != "" {
		if err := control.CheckName(f.Name); err != nil {
			return o, usage(err)
		}
	}
	conf, err := f.load(cmd)
	if err != nil {
		return o, err
	}
	o.Mount = mount.Options{Point: point, ReadOnly: f.ReadOnly, AllowOther: f.AllowOther, Debug: f.Level(slog.LevelWarn) == slog.LevelDebug, OpenNothing: true}
	if o.Mount.Level, err = mount.ParseLevel(f.Cache); err != nil {
		return o, usage(fmt.Errorf("--cache: %w", err))
	}
	if o.Mount.Locks, err = mount.ParseLocks(f.Locks); err != nil {
		return o, usage(fmt.Errorf("--locks: %w", err))
	}
	if cmd.Flags().Changed("transport") {
		if o.Mount.Transport, err = mount.ParseTransport(f.Transport); err != nil {
			return o, usage(fmt.Errorf("--transport: %w", err))
		}
	}
	if o.AuditPaths, err = audit.ParsePathMode(f.auditPaths); err != nil {
		return o, usage(fmt.Errorf("--audit-paths: %w", err))
	}
	if o.Ceiling, err = config.LoadCeiling(); err != nil {
		return o, session.CeilingError(err)
	}
	switch f.Posix {
	case "safe":
	case "full":
		o.PosixFull = true
	default:
		return o, usage(fmt.Errorf("--posix %s: write safe or full", names.Quote(f.Posix)))
	}
	o.Rules = rules.RootRules{AllowSystem: f.AllowSystem, AllowRootDir: f.AllowTop}
	o.Keep, o.Config, o.Profile = conf.ReservedPaths(), conf, f.Profile
	o.Abuse, o.AbuseFixed = conf.Abuse, len(f.abuse.setKeys) > 0
	f.abuse.override(&o.Abuse)
	if o.AbuseFixed && o.Abuse.Suspend && o.Abuse.Escapes == 0 && o.Abuse.Refusals == 0 {
		return o, usage(errors.New("--abuse-suspend needs a bound: write --abuse-escapes or --abuse-refusals as well"))
	}
	if f.Subject != "" {
		if err := config.CheckSubject(f.Subject); err != nil {
			return o, usage(fmt.Errorf("--subject: %w", err))
		}
		o.Mount.Subject = guard.Subject(f.Subject)
	}
	if o.Bound, err = f.bound(time.Now()); err != nil {
		return o, err
	}
	o.Bound.Stage = f.Stage
	if o.Roots, err = f.allGrants(conf, o.Bound); err != nil {
		return o, err
	}
	o.Flags = f.describe()
	o.Logger = func(name string) (*slog.Logger, error) { return f.logger(name) }
	return o, nil
}

// load reads the configuration. A flag that is not on the command line gets the configuration's
// value.
func (f *sessionFlags) load(cmd *cobra.Command) (*config.Config, error) {
	conf, path, err := config.LoadFlag(f.Config)
	switch {
	case err != nil && path == "":
		return nil, err
	case err != nil:
		return nil, badConfig(cmp.Or(f.Config, path), err)
	}
	for flag, text := range conf.Mount.Flags() {
		// A key does not apply to a command that lacks the key's flag: `run` has no --posix, so
		// the key posix never affects a confined command.
		if f := cmd.Flags().Lookup(flag); f != nil && !f.Changed {
			if err := f.Value.Set(text); err != nil {
				return nil, err
			}
		}
	}
	return conf, nil
}

// badConfig turns an error about the configuration into a usage error, with advice. An error
// shows one mistake. If there are more mistakes, the advice is the command that shows all of them.
func badConfig(path string, err error) error {
	var bad *config.Error
	switch {
	case errors.As(err, &bad) && len(bad.Rest) > 0:
		err = fmt.Errorf("%w; see all: rootsfs config check %s", err, names.ShellWord(path))
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w; check the spelling of --config, or leave it out", err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w; make the file readable for you, or name another one with --config", err)
	}
	return usage(err)
}

// allGrants returns the grants of the configured roots that have not expired, narrowed by bound,
// and then the grants of the command line.
func (f *sessionFlags) allGrants(conf *config.Config, bound session.Bound) ([]guard.Grant, error) {
	configured, err := conf.Select(f.Profile)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var all []guard.Grant
	for _, r := range configured {
		if !r.Expired(now) {
			all = append(all, bound.Apply(r.Grant(now)))
		}
	}
	flagGrants, err := f.all(f.Roots, "command line", all...)
	if err == nil && !f.Daemon { // a daemon has no terminal
		err = askLinks(flagGrants)
	}
	if err != nil {
		return nil, err
	}
	for i := range flagGrants {
		flagGrants[i].Subject = guard.Subject(f.Subject)
	}
	all = append(all, flagGrants...)
	for i := range all {
		all[i].Policy.PosixFull = f.Posix == "full"
		all[i].Policy.Rights = bound.Rights(all[i].Policy.Rights)
	}
	return all, nil
}

// describe lists flags for session.json: always --cache, --locks and --posix, and each of
// --read-only, --allow-other and --stage that is on.
func (f *sessionFlags) describe() []string {
	out := []string{"--cache=" + f.Cache, "--locks=" + f.Locks, "--posix=" + f.Posix}
	if f.ReadOnly {
		out = append(out, "--read-only")
	}
	if f.AllowOther {
		out = append(out, "--allow-other")
	}
	if f.Stage {
		out = append(out, "--stage")
	}
	return out
}

// logger returns the log of a session in the foreground or under a service manager. The log goes
// to standard error.
func (f *sessionFlags) logger(string) (*slog.Logger, error) {
	level := slog.LevelWarn
	if logsToJournal() {
		level = slog.LevelInfo
	}
	return newLog(os.Stderr, f.Level(level), dropTime), nil
}

// Level returns the level of the log: Debug with -vv or --debug, the lower of Info and least with
// -v, and otherwise least.
func (f *sessionFlags) Level(least slog.Level) slog.Level {
	switch {
	case f.debug || f.verbose > 1:
		return slog.LevelDebug
	case f.verbose == 1:
		return min(least, slog.LevelInfo)
	}
	return least
}
