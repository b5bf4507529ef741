package cli

import (
	"context"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
)

// sameRequest is how long after the first signal another one counts as the same request.
// timeout(1) signals the program and then its group, and a parent may pass on the Ctrl-C that
// the terminal has sent to this process, too. If such a second signal counted as a new one, the
// process would end at once and leave its mount behind.
const sameRequest = time.Second

// endRequest distinguishes the first request to end from a later, urgent one.
type endRequest struct{ since time.Time }

// note notes a signal that asks for the end. isFirst is true for the first signal. isUrgent is true
// for a signal that comes sameRequest or more after the first.
func (r *endRequest) note(now time.Time) (isFirst, isUrgent bool) {
	if r.since.IsZero() {
		r.since = now
		return true, false
	}
	return false, now.Sub(r.since) >= sameRequest
}

// onSignal returns a channel that is closed at the first signal that asks for the end. Another such
// signal, a second later or more, ends the process at once. SIGQUIT is one of these signals, since
// by default it would end a Go program and leave the mount behind. SIGQUIT also writes the stacks of
// all goroutines to standard error, which is the log of a daemon. A daemon ignores SIGHUP: it has no
// terminal.
func onSignal(daemon bool) <-chan struct{} {
	signals := make(chan os.Signal, 4)
	which := []os.Signal{os.Interrupt, unix.SIGTERM, unix.SIGQUIT}
	if daemon {
		signal.Ignore(unix.SIGHUP)
	} else {
		which = append(which, unix.SIGHUP)
	}
	signal.Notify(signals, notIgnored(which...)...)
	stop := make(chan struct{})
	go func() {
		handleSignals(signals, time.Now, func(sig os.Signal) {
			if sig == unix.SIGQUIT {
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // there is no other place to report to
			}
			close(stop)
		})
		os.Exit(exitFailure)
	}()
	return stop
}

// catchSignals catches the signals that are passed on to the command. Before the call, signals
// have their usual effect, because there is nothing to clean up yet.
func catchSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, notIgnored(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2)...)
	return signals
}

// notIgnored returns the signals without those that this process was started to ignore, as
// by nohup(1) or in the background of a script: catching a signal would undo that.
func notIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}

// revokeOnSignal catches SIGUSR1 from now on; by default it would end the process. The returned
// function sets the session that revokes its roots at the signal, even if the signal came before.
func revokeOnSignal() func(*session.Session) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	return func(s *session.Session) {
		go func() {
			for range signals {
				s.RevokeBySignal(context.Background())
			}
		}()
	}
}

// handleSignals calls end at the first signal, and returns at an urgent signal (see endRequest).
func handleSignals(signals <-chan os.Signal, now func() time.Time, end func(os.Signal)) {
	var r endRequest
	for sig := range signals {
		isFirst, isUrgent := r.note(now())
		switch {
		case isFirst:
			end(sig)
		case isUrgent:
			return
		}
	}
}
