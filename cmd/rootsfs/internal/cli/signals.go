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

// sameBreath is how long after the first signal another one counts as the same request.
// timeout(1) signals the program and then its group, and a parent may pass on the Ctrl-C that
// the terminal has sent to this process, too. If such a second signal counted as a new one, the
// process would end at once and leave its mount behind.
const sameBreath = time.Second

// endRequest distinguishes the first request to end from a later, urgent one.
type endRequest struct{ since time.Time }

// hear notes a signal that asks for the end. first is true for the first one, and insists for
// those that come more than sameBreath after it.
func (r *endRequest) hear(now time.Time) (first, insists bool) {
	if r.since.IsZero() {
		r.since = now
		return true, false
	}
	return false, now.Sub(r.since) >= sameBreath
}

// onSignal returns a channel that the first signal to end closes. Another one, a second later
// or more, ends the process at once. SIGQUIT is one of these signals, since by default it would
// end a Go program and leave the mount behind. It also writes the stacks of all goroutines to
// standard error, which is the log of a daemon. A daemon ignores SIGHUP: it has no terminal.
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

// revokeOnSignal catches SIGUSR1 from now on; by default it would end the process. The returned
// function sets the session that revokes its roots at the signal, also at an earlier one.
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
		first, insists := r.hear(now())
		switch {
		case first:
			end(sig)
		case insists:
			return
		}
	}
}
