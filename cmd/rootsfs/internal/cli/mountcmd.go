package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
)

// mountFlags are the flags of `rootsfs mount`.
type mountFlags struct {
	grantFlags
	abuse       abuseFlags
	subject     string
	roots       []string
	config      string
	profile     string
	name        string
	cache       string
	locks       string
	transport   string
	posix       string
	auditPaths  string
	readOnly    bool
	allowOther  bool
	allowSystem bool
	allowTop    bool
	daemon      bool
	verbose     int // how many -v
	debug       bool
}

func (a *App) newMountCmd() *cobra.Command {
	f := &mountFlags{}
	cmd := &cobra.Command{
		Use:   "mount [flags] MOUNTPOINT",
		Short: "Mount approved directories",
		Long: `Mount the approved roots at MOUNTPOINT, an empty directory. Each appears as
MOUNTPOINT/NAME. The command stays in the foreground, or, with --daemon, returns when
the mount answers. SIGINT and SIGTERM revoke every root and unmount; SIGUSR1 revokes
every root and goes on.

A root is written [NAME=]PATH[:MODE]. PATH is a directory, a file or a file:// URI;
"auto" is the project around the working directory. MODE is ro (the default), rw, or
a comma list of read, list, write, append, create, delete, rename, watch. Flags that
end or limit grants hold for every root, also of the configuration: the stricter
value wins. Mounting confines nobody: see "rootsfs run".`,
		Example: `  rootsfs mount --root code=.:ro --root out=./out:rw /mnt/work
  rootsfs mount --subject reviewer --root theirs=.:ro ~/review
  rootsfs mount --root auto --for 8h --daemon ~/agent
  rootsfs mount --root .:ro --once ./plan.md:rw ~/agent   # one use of one file
  rootsfs mount --root logs=/var/log/app --limit max_file=10M --limit ops_per_second=200 /mnt/logs`,
		Args: ArgCount(1, 1, "the mountpoint"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.mount(cmd, f, args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.roots, "root", nil, "approve a root: `SPEC` is [NAME=]PATH[:MODE]; repeatable")
	PathVar(fs, &f.config, "config", "configuration `file` (default $XDG_CONFIG_HOME/rootsfs/config.toml, if there is one)")
	fs.StringVar(&f.profile, "profile", "", "take the roots of this `profile` of the configuration, not all")
	fs.StringVar(&f.name, "name", "", "`name` of the session (default: of the mountpoint)")
	fs.StringVar(&f.cache, "cache", "audit", "how much the kernel may keep: `level` strict, audit or max")
	fs.StringVar(&f.locks, "locks", "local", "whom file locks exclude: local (users of the mount) or host (its processes too)")
	fs.StringVar(&f.posix, "posix", "safe", "safe, or full: show special files, and keep set-id bits and security attributes")
	transportFlag(cmd, &f.transport)
	f.auditFlag(cmd)
	fs.BoolVar(&f.readOnly, "read-only", false, "make the mount itself read-only")
	fs.BoolVar(&f.allowOther, "allow-other", false, "let other users into the mount; unless root mounts, this needs user_allow_other in /etc/fuse.conf")
	fs.BoolVar(&f.allowSystem, "allow-system", false, "let system directories such as /etc be writable")
	fs.BoolVar(&f.allowTop, "allow-root-dir", false, "let / be a root")
	fs.BoolVar(&f.daemon, "daemon", false, "return when the mount answers, and go on in the background")
	f.verbosity(fs, "every request of the kernel")
	fs.StringVar(&f.subject, "subject", "", "mount for this one `server`: it alone gets each --root, and it sees the roots that are for every server")
	f.add(cmd)
	f.abuse.add(fs)
	a.JSONFlag(cmd)
	profileCompletion(cmd, &f.config)
	FixedWords(cmd, "cache", "strict", "audit", "max")
	FixedWords(cmd, "locks", "local", "host")
	FixedWords(cmd, "posix", "safe", "full")
	AllFlag(cmd)
	return cmd
}

// profileCompletion completes --profile from the configuration that --config names.
func profileCompletion(cmd *cobra.Command, file *string) {
	_ = cmd.RegisterFlagCompletionFunc("profile", completeProfiles(func([]string) string { return *file })) // as for words
}

// transportFlag adds --transport.
func transportFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "transport", "auto", "how the kernel's requests come: auto (io_uring on kernels that it was tested on, else plain), io_uring or plain")
	FixedWords(cmd, "transport", "auto", "io_uring", "plain")
}

// auditFlag adds --audit-paths, which help does not show: the configuration has the key
// audit_paths.
func (f *mountFlags) auditFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.auditPaths, "audit-paths", "full", "how paths are written in audit records: full, hash or none")
	FixedWords(cmd, "audit-paths", "full", "hash", "none")
	HideFlags(cmd.Flags(), "audit-paths")
}

// verbosity adds -v, and --debug for -vv; more is what the second v logs.
func (f *mountFlags) verbosity(fs *pflag.FlagSet, more string) {
	fs.CountVarP(&f.verbose, "verbose", "v", "log what happens to the roots; -vv also logs "+more)
	fs.BoolVar(&f.debug, "debug", false, "-vv")
	HideFlags(fs, "debug")
}

// mount is the command.
func (a *App) mount(cmd *cobra.Command, f *mountFlags, point string) error {
	if point == "" {
		return Usage(errors.New("the mountpoint is empty; write the path of an empty directory"))
	}
	point, err := ExpandHome(point)
	if err != nil {
		return Usage(fmt.Errorf("mountpoint %w", err))
	}
	opt, err := f.options(cmd, point)
	if err != nil {
		return err
	}
	d, err := daemonPipe()
	if err != nil {
		return err
	}
	if f.daemon && d == nil && os.Getenv("NOTIFY_SOCKET") == "" {
		// Under systemd the manager is told instead, and keeps the process.
		return a.spawn(cmd.Context())
	}
	cleanup.ClearLeft()
	err = a.serve(cmd.Context(), opt, f, d)
	if err != nil && d != nil {
		d.failed(err)
	}
	return err
}

// options turns flags and configuration into a session's options. Flags win.
func (f *mountFlags) options(cmd *cobra.Command, point string) (session.Options, error) {
	o := session.Options{Name: f.name, Version: readVersion().Version}
	if f.name != "" {
		if err := control.CheckName(f.name); err != nil {
			return o, Usage(err)
		}
	}
	conf, err := f.load(cmd)
	if err != nil {
		return o, err
	}
	o.Mount = mount.Options{Point: point, ReadOnly: f.readOnly, AllowOther: f.allowOther, Debug: f.level(slog.LevelWarn) == slog.LevelDebug, Outside: true}
	if o.Mount.Level, err = mount.ParseLevel(f.cache); err != nil {
		return o, Usage(fmt.Errorf("--cache: %w", err))
	}
	if o.Mount.Locks, err = mount.ParseLocks(f.locks); err != nil {
		return o, Usage(fmt.Errorf("--locks: %w", err))
	}
	if cmd.Flags().Changed("transport") {
		if o.Mount.Transport, err = mount.ParseTransport(f.transport); err != nil {
			return o, Usage(fmt.Errorf("--transport: %w", err))
		}
	}
	if o.AuditPaths, err = audit.ParsePathMode(f.auditPaths); err != nil {
		return o, Usage(fmt.Errorf("--audit-paths: %w", err))
	}
	o.AuditMaxAge, o.AuditMaxTotal = auditBounds(conf)
	switch f.posix {
	case "safe":
	case "full":
		o.PosixFull = true
	default:
		return o, Usage(fmt.Errorf("--posix %s: write safe or full", names.Quote(f.posix)))
	}
	o.Rules = guard.Rules{AllowSystem: f.allowSystem, AllowRootDir: f.allowTop}
	o.Keep, o.Config, o.Profile = conf.Keep(), conf, f.profile
	if o.Abuse, o.AbuseFixed, err = f.abuse.over(conf.Abuse); err != nil {
		return o, err
	}
	if f.subject != "" {
		if err := config.CheckSubject(f.subject); err != nil {
			return o, Usage(fmt.Errorf("--subject: %w", err))
		}
		o.Mount.Subject = guard.Subject(f.subject)
	}
	if o.Bound, err = f.bound(time.Now()); err != nil {
		return o, err
	}
	if o.Roots, err = f.allGrants(conf, o.Bound); err != nil {
		return o, err
	}
	o.Flags = f.describe()
	o.Logger = func(name string) (*slog.Logger, error) { return f.logger(name) }
	return o, nil
}

// load reads the configuration and lets it stand in for flags that were not
// given.
func (f *mountFlags) load(cmd *cobra.Command) (*config.Config, error) {
	conf, path, err := config.LoadFlag(f.config)
	switch {
	case err != nil && path == "":
		return nil, err
	case err != nil:
		return nil, badConfig(cmp.Or(f.config, path), err)
	}
	for flag, text := range conf.Mount.Flags() {
		// A key for which a command has no flag is not for it: a confined command is never
		// given posix full.
		if f := cmd.Flags().Lookup(flag); f != nil && !f.Changed {
			if err := f.Value.Set(text); err != nil {
				return nil, err
			}
		}
	}
	return conf, nil
}

// badConfig says where the other mistakes of a configuration are told, of which an
// error has room for one.
func badConfig(path string, err error) error {
	var bad *config.Error
	if errors.As(err, &bad) && len(bad.Rest) > 0 {
		err = fmt.Errorf("%w; see all: rootsfs config check %s", err, names.ShellWord(path))
	}
	return Usage(err)
}

// allGrants are the configured roots, within the bound, and those of the command
// line.
func (f *mountFlags) allGrants(conf *config.Config, bound session.Bound) ([]guard.Grant, error) {
	configured, err := conf.Select(f.profile)
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
	mine, err := f.all(f.roots, "command line")
	if err == nil && !f.daemon { // which has no terminal
		err = askLinks(mine)
	}
	if err != nil {
		return nil, err
	}
	for i := range mine {
		mine[i].Subject = guard.Subject(f.subject)
	}
	all = append(all, mine...)
	for i := range all {
		all[i].Policy.PosixFull = f.posix == "full"
	}
	return all, nil
}

// describe lists what differs from the defaults, for session.json.
func (f *mountFlags) describe() []string {
	out := []string{"--cache=" + f.cache, "--locks=" + f.locks, "--posix=" + f.posix}
	if f.readOnly {
		out = append(out, "--read-only")
	}
	if f.allowOther {
		out = append(out, "--allow-other")
	}
	return out
}
