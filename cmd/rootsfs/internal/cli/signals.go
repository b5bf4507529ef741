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

// sameBreath is how long after the first signal another one still says the same:
// timeout(1) signals the program and then its group, and whoever started it passes on
// the Ctrl-C that the terminal has told it already. Taken for impatience, such a pair
// would leave the mount behind.
const sameBreath = time.Second

// endRequest tells the first request to end from one that insists.
type endRequest struct{ since time.Time }

// Hear takes a signal that asks for the end: first is true of the first one, insists
// of those that come more than a breath after it.
func (r *endRequest) Hear(now time.Time) (first, insists bool) {
	if r.since.IsZero() {
		r.since = now
		return true, false
	}
	return false, now.Sub(r.since) >= sameBreath
}

// onSignal returns a channel that is closed by the first signal to end; another one,
// a second later or more, ends the process at once. SIGQUIT, which would end a Go
// program with its mount left behind, is one of them, and writes what every goroutine
// is doing to standard error, which is the log of a daemon. A daemon ignores the
// end of a terminal it does not have.
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
		obey(signals, time.Now, func(sig os.Signal) {
			if sig == unix.SIGQUIT {
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // there is no other place to report to
			}
			close(stop)
		})
		os.Exit(exitFailure)
	}()
	return stop
}

// notIgnored returns the signals without those that this process was started to ignore, as
// by nohup(1) or in the background of a script: catching a signal would undo that.
func notIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}

// revokeOnSignal catches SIGUSR1 from now on, which would end the process. The returned
// function says what session revokes its roots then, also for signals that have come.
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

// obey calls end at the first signal and returns when one insists.
func obey(signals <-chan os.Signal, now func() time.Time, end func(os.Signal)) {
	var r endRequest
	for sig := range signals {
		first, insists := r.Hear(now())
		switch {
		case first:
			end(sig)
		case insists:
			return
		}
	}
}
