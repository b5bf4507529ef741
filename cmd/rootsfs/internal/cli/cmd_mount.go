package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
)

const mountLong = `Mount the approved roots at MOUNTPOINT, an empty directory. Each appears as
MOUNTPOINT/NAME. The command stays in the foreground, or, with --daemon, returns when
the mount answers. SIGINT and SIGTERM revoke every root and unmount; SIGUSR1 revokes
every root and goes on.

A root is written [NAME=]PATH[:MODE]. PATH is a directory, a file or a file:// URI;
"auto" is the project around the working directory. MODE is ro (the default), rw, or
a comma list of read, list, write, append, create, delete, rename, watch. Flags that
end or limit grants hold for every root, also of the configuration: the stricter
value wins. Mounting confines nobody: see "rootsfs run".`

const mountExamples = `  rootsfs mount --root code=.:ro --root out=./out:rw /mnt/work
  rootsfs mount --subject reviewer --root theirs=.:ro ~/review
  rootsfs mount --root auto --for 8h --daemon ~/agent
  rootsfs mount --root .:ro --once ./plan.md:rw ~/agent   # one use of one file
  rootsfs mount --root logs=/var/log/app --limit max_file=10M --limit ops_per_second=200 /mnt/logs`

func (a *app) newMountCmd() *cobra.Command {
	f := &sessionFlags{}
	cmd := &cobra.Command{
		Use:               "mount [flags] MOUNTPOINT",
		Short:             "Mount approved directories",
		Long:              mountLong,
		Example:           mountExamples,
		Args:              argCount(1, 1, "the mountpoint"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.mount(cmd, f, args[0]) },
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.Locks, "locks", "local", "whom file locks exclude: local (users of the mount) or host (its processes too)")
	fs.StringVar(&f.Posix, "posix", "safe", "safe, or full: show special files, and keep set-id bits and security attributes")
	f.addMount(cmd)
	f.addStart(cmd, "of the mountpoint")
	fs.BoolVar(&f.ReadOnly, "read-only", false, "make the mount itself read-only")
	fs.BoolVar(&f.AllowOther, "allow-other", false, "let other users into the mount; unless root mounts, this needs user_allow_other in /etc/fuse.conf")
	fs.BoolVar(&f.AllowTop, "allow-root-dir", false, "let / be a root")
	fs.BoolVar(&f.Daemon, "daemon", false, "return when the mount answers, and go on in the background")
	f.verbosity(fs, "every request of the kernel")
	fs.StringVar(&f.Subject, "subject", "", "mount for this one `server`: it alone gets each --root, and it sees the roots that are for every server")
	f.Add(cmd)
	a.jsonFlag(cmd)
	fixedWords(cmd, "locks", "local", "host")
	fixedWords(cmd, "posix", "safe", "full")
	allFlag(cmd)
	return cmd
}

// mount runs rootsfs mount: in the foreground, as the daemon, or as the process that starts the
// daemon.
func (a *app) mount(cmd *cobra.Command, f *sessionFlags, point string) error {
	if point == "" {
		return usage(errors.New("the mountpoint is empty; write the path of an empty directory"))
	}
	point, err := expandHome(point)
	if err != nil {
		return usage(fmt.Errorf("mountpoint %w", err))
	}
	opt, err := f.Options(cmd, point)
	if err != nil {
		return err
	}
	d, err := daemonPipe()
	if err != nil {
		return err
	}
	// Under systemd this process does not start a daemon: it stays, and notifies the manager.
	if f.Daemon && d == nil && os.Getenv("NOTIFY_SOCKET") == "" {
		return a.spawn(cmd.Context())
	}
	cleanup.ClearLeft()
	err = a.serve(cmd.Context(), opt, f, d)
	if err != nil && d != nil {
		d.sendError(err)
	}
	return err
}

// serve runs a session until it ends. d is nil except in the daemon that spawn started.
func (a *app) serve(ctx context.Context, opt session.Options, f *sessionFlags, d *daemonEnd) error {
	stop, bindSignal := onSignal(d != nil), revokeOnSignal()
	if d != nil {
		opt.Logger = func(name string) (*slog.Logger, error) { return d.logger(f, name) }
	}
	done := a.waiting("mounting")
	s, err := session.Start(ctx, opt)
	done()
	if err != nil {
		return err
	}
	bindSignal(s) // SIGUSR1 revokes the roots of s
	if f.Daemon {
		cleaner, err := cleanup.StartForMount(s.Point())
		if err != nil {
			stopped := make(chan struct{}) // closed, so that Run ends the session at once
			close(stopped)
			return errors.Join(err, s.Run(stopped))
		}
		defer cleaner.Dismiss()
	}
	line := mountedLine(s)
	switch {
	case d != nil:
		d.send(readyMessage{Session: s.Name(), Point: s.Point(), Line: line, Log: d.log})
		// A working directory would keep its file system from being unmounted.
		_ = os.Chdir("/")
	case a.JSON:
		// An error means that the reader has gone. The session goes on.
		_ = a.line(readyMessage{Session: s.Name(), Point: s.Point(), Line: line})
	default:
		a.say("%s", line)
	}
	notifySystemd("READY=1")
	err = s.Run(stop)
	notifySystemd("STOPPING=1")
	return err
}

// mountedLine returns the line that is printed when the mount answers.
func mountedLine(s *session.Session) string {
	var roots []string
	for _, r := range s.Registry().Roots() {
		roots = append(roots, fmt.Sprintf("%s (%s)", quoteIfNeeded(string(r.Grant.Root)), modeText(&r)))
	}
	what := "no roots yet; add one: rootsfs roots add SPEC"
	if n := len(roots); n > 10 {
		what = plural(n, "root")
	} else if n > 0 {
		what = strings.Join(roots, ", ")
	}
	return fmt.Sprintf("mounted at %s: %s; session %s", quoteIfNeeded(s.Point()), what, s.Name())
}

// openLog opens the log file of a daemon.
func openLog(name string) (*os.File, string, error) {
	path, err := session.LogFile(name)
	if err != nil {
		return nil, "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, "", fmt.Errorf("make the directory of the log: %w", config.Unwritable(err))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, "", fmt.Errorf("the log %s is a link: remove it", names.Quote(path))
		}
		return nil, "", fmt.Errorf("open the log: %w", config.Unwritable(err))
	}
	return f, path, nil
}
