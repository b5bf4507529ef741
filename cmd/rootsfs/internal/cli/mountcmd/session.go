package mountcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/grantflags"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
)

// serve runs a session until it ends. d is set in a daemon.
func (a *app) serve(ctx context.Context, opt session.Options, f *grantflags.Session, d *daemon) error {
	stop, revokes := cli.OnSignal(d != nil), cli.RevokeOnSignal()
	opt.Signal = true
	if d != nil {
		opt.Logger = func(name string) (*slog.Logger, error) { return d.logger(f, name) }
	}
	done := a.Waiting("mounting")
	s, err := session.Start(ctx, opt)
	done()
	if err != nil {
		return err
	}
	revokes(s)
	if f.Daemon {
		watcher, err := cleanup.WatchMount(s.Point())
		if err != nil {
			return errors.Join(err, s.Run(closed()))
		}
		defer watcher.Dismiss()
	}
	line := mountedLine(s)
	switch {
	case d != nil:
		d.ready(readyMessage{Session: s.Name(), Point: s.Point(), Line: line, Log: d.log})
		// A working directory would keep its file system from being unmounted.
		_ = os.Chdir("/")
	case a.JSON:
		// Whoever reads has gone away if this fails; the session has not.
		_ = a.Line(readyMessage{Session: s.Name(), Point: s.Point(), Line: line})
	default:
		a.Say("%s", line)
	}
	notifySystemd("READY=1")
	err = s.Run(stop)
	notifySystemd("STOPPING=1")
	return err
}

// mountedLine is what is printed when the mount answers.
func mountedLine(s *session.Session) string {
	var roots []string
	for _, r := range s.Registry().Roots() {
		roots = append(roots, fmt.Sprintf("%s (%s)", cli.QuoteIfNeeded(string(r.Grant.Root)), r.Grant.Policy.Rights))
	}
	what := "no roots yet; add one: rootsfs roots add SPEC"
	if n := len(roots); n > 10 {
		what = cli.Plural(n, "root")
	} else if n > 0 {
		what = strings.Join(roots, ", ")
	}
	return fmt.Sprintf("mounted at %s: %s; session %s", cli.QuoteIfNeeded(s.Point()), what, s.Name())
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

// closed is a closed channel.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
