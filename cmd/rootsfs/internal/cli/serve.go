package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
)

// serve runs a session until it ends. d is set in a daemon.
func (a *app) serve(ctx context.Context, opt session.Options, f *mountFlags, d *daemon) error {
	stop, revokes := onSignal(d != nil), revokeOnSignal()
	opt.Signal = true
	if d != nil {
		opt.Logger = func(name string) (*slog.Logger, error) { return d.logger(f, name) }
	}
	done := a.waiting("mounting")
	s, err := session.Start(ctx, opt)
	done()
	if err != nil {
		return err
	}
	revokes(s)
	if f.daemon {
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
	case a.json:
		// Whoever reads has gone away if this fails; the session has not.
		_ = a.line(readyMessage{Session: s.Name(), Point: s.Point(), Line: line})
	default:
		a.say("%s", line)
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
		roots = append(roots, fmt.Sprintf("%s (%s)", shown(string(r.Grant.Root)), r.Grant.Policy.Rights))
	}
	what := "no roots yet; add one: rootsfs roots add SPEC"
	if n := len(roots); n > 10 {
		what = plural(n, "root")
	} else if n > 0 {
		what = strings.Join(roots, ", ")
	}
	return fmt.Sprintf("mounted at %s: %s; session %s", shown(s.Point()), what, s.Name())
}

// logger is the log of a session in the foreground or under a manager: lines on
// standard error.
func (f *mountFlags) logger(string) (*slog.Logger, error) {
	level := slog.LevelWarn
	if journal() {
		level = slog.LevelInfo
	}
	return newLog(os.Stderr, f.level(level), dropTime), nil
}

// StderrLog returns a log on standard error, for what runs before a command.
func StderrLog() *slog.Logger { return newLog(os.Stderr, slog.LevelInfo, logAttr) }

// newLog makes every log of the commands.
func newLog(w io.Writer, level slog.Level, attr func([]string, slog.Attr) slog.Attr) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: attr}))
}

// logAttr escapes what a terminal would obey or not show: the handler quotes, and takes
// for seen what is blank or changes the character before it.
func logAttr(_ []string, at slog.Attr) slog.Attr {
	if text := at.Value.String(); !names.Shows(text) {
		at.Value = slog.StringValue(names.EscapeQuoted(text))
	}
	return at
}

func (f *mountFlags) level(least slog.Level) slog.Level {
	switch {
	case f.debug:
		return slog.LevelDebug
	case f.verbose:
		return min(least, slog.LevelInfo)
	}
	return least
}

// dropTime: whoever reads standard error knows the time, or records it.
func dropTime(groups []string, at slog.Attr) slog.Attr {
	if len(groups) == 0 && at.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return logAttr(groups, at)
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
