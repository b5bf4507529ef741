package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/early"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// runner is one `rootsfs run` while it lasts: a session with a private mount, a
// confined process, and, for one that speaks MCP, a proxy between that and us.
type runner struct {
	a       *app
	plan    *plan
	name    string   // see newRunName
	place   *private // of the mount; nil: it needs none
	janitor *watcher
	s       *session.Session
	proc    *sandbox.Process
	later   *laterRoots
	learned *learned
	gate    *network.Gate        // of the command's network; nil: it has none, or the machine's
	links   linkRule             // of the private mount
	could   string               // see couldConfine
	told    control.Confined     // what status was told at the start
	umask   int                  // that we were started with
	refused bool                 // for want of the confinement that was asked for
	found   map[string]boundRoot // the roots that the command found, by their paths
	stop    chan struct{}        // closed to end the session, by finish
	finish  func()
	// drained is closed, by drain, when all that the command said has been heard.
	drained chan struct{}
	drain   func()
	over    chan error // what the session ended with
	// asked is closed when a signal has asked the command to end, insisted with
	// another one, a second later or more.
	asked, insisted chan struct{}

	// events are those of the session, from its mount on: a root that ends before
	// the command runs ends it, too, if that was asked for.
	events      <-chan control.Event
	unsubscribe func()
}

// runCommand is `rootsfs run`.
func (a *app) runCommand(cmd *cobra.Command, f *runFlags, args []string) error {
	collectLater()
	heard := hearSignals()
	p, err := f.plan(cmd, args)
	if err != nil {
		return err
	}
	r := &runner{a: a, plan: p, name: newRunName(), umask: sandbox.Umask(), stop: make(chan struct{}), drained: make(chan struct{}), over: make(chan error, 1), asked: make(chan struct{}), insisted: make(chan struct{})}
	r.later = newLaterRoots(r)
	r.finish = sync.OnceFunc(func() { close(r.stop) })
	r.drain = sync.OnceFunc(func() { close(r.drained) })
	exit, err := r.run(cmd.Context(), f, <-heard)
	if err != nil {
		return err
	}
	if code := exitOf(exit); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// While the start lasts no garbage is collected, unless there is more of it than
// any start makes.
const (
	startLasts   = 2 * time.Second
	startGarbage = 64 << 20 // bytes of memory in use
)

// collectLater leaves the garbage for later: somebody waits for the command to
// start, and a short one has ended before a collection would be worth it.
func collectLater() {
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(-1) // only asks
	debug.SetMemoryLimit(min(limit, startGarbage))
	time.AfterFunc(startLasts, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
		early.Hurry()
	})
}

// exitOf is the command's own exit code, or, as shells say it, 128 and the
// number of the signal that ended it.
func exitOf(e sandbox.Exit) int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// hearSignals begins to catch the signals that are passed on, beside the caller, as it
// takes a switch between threads for each of them; who receives their channel has them
// from then on, until the process ends. Before that they do what they ever do to a Go
// program: nothing has been made that would be left.
func hearSignals() <-chan (<-chan os.Signal) {
	heard := make(chan (<-chan os.Signal))
	go func() {
		deadly := []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}
		deadly = slices.DeleteFunc(deadly, signal.Ignored) // nohup(1)
		signals := make(chan os.Signal, 16)
		signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
		for {
			select {
			case heard <- signals:
				return
			case sig := <-signals:
				if slices.Contains(deadly, sig) {
					signal.Reset(sig)
					_ = unix.Kill(os.Getpid(), sig.(unix.Signal)) // ourselves
					select {}
				}
			}
		}
	}()
	return heard
}

// run makes everything, waits for the command, and takes everything down again,
// in the opposite order.
func (r *runner) run(ctx context.Context, f *runFlags, signals <-chan os.Signal) (exit sandbox.Exit, err error) {
	if !r.plan.placeless() {
		if r.place, err = makePrivate(r.name, *r.plan.session.Mount.Owner); err != nil {
			return exit, err
		}
	}
	exit, err = r.attended(ctx, f, signals)
	// Not deferred: what a panic leaves is the janitor's to clean up.
	r.janitor.dismiss()
	return exit, err
}

// attended is all of run that the janitor cleans up after.
func (r *runner) attended(ctx context.Context, f *runFlags, signals <-chan os.Signal) (exit sandbox.Exit, err error) {
	b := r.begin(ctx)
	defer func() { r.place.remove() }() // which it may get while it starts
	startErr := r.start(ctx, f, b)
	go clearLeft() // by the way: nothing of this run waits for it
	if <-b.done; b.err != nil {
		return exit, b.err // and then the command was not started
	}
	go func() { r.over <- r.s.Run(r.stop) }()
	defer func() { err = errors.Join(err, r.end()) }()
	defer func() {
		if r.gate != nil {
			r.gate.Close()
		}
	}()
	if r.refused {
		// It is refused whether that can be recorded or not.
		_ = r.s.Registry().Note(names.OpRun, "", guard.Refused, "no confinement that was asked for can be had here")
	}
	if startErr != nil {
		return exit, startErr
	}
	defer func() { r.s.Registry().RemoveView(r.later) }()
	defer r.unsubscribe()
	go r.relay(signals)
	go func() {
		<-r.s.Ended()
		if !r.ended() {
			_ = r.proc.Kill() // whoever ended the session ended this, too
		}
	}()
	go r.follow()
	if !r.plan.learn { // whose proposal is about the session as it was
		go func() {
			// While the rest of what runs inside is killed, which takes the
			// kernel a while.
			<-r.proc.Ended()
			select {
			case <-r.drained: // what was refused to it is on record
			case <-time.After(stopAfter):
			}
			r.finish()
			<-r.s.Ended()
			r.place.remove()
			if r.place.gone() {
				// Nothing is left but the session's name and an empty control group,
				// which any run clears away, so the janitor ends while we do.
				r.janitor.end()
			}
		}()
	}
	exit, err = r.converse(ctx)
	if n := r.proc.MemoryKills(); n > 0 {
		r.a.warn("the limit of %d bytes of memory (--memory-max) was reached: the kernel ended %s", r.plan.box.MemoryMax, plural(n, "process"))
	}
	if rep := r.proc.Report(); r.proc.PrivateFull() {
		r.a.warn("the private HOME and /tmp, in memory, are full: they hold %s together; --home-max SIZE gives more, --home DIR keeps HOME on disk", size(rep.TmpSize))
	}
	r.learned.propose(r.a, r.s, r.links.list(r.s.Registry()), r.plan.learn && r.proc.TriedNet(), unseen(&r.plan.box, r.proc.Report().Level))
	return exit, err
}

// end ends the session and waits for it. While it finishes its audit log, the
// place goes.
func (r *runner) end() error {
	r.finish()
	<-r.s.Ended()
	r.place.remove()
	return <-r.over
}

// start starts the command, when the session has begun.
func (r *runner) start(ctx context.Context, f *runFlags, b *beginning) error {
	box := r.plan.box
	box.Group = r.name
	if !r.plan.placeless() { // it may get a place at any moment
		box.Private = r.place.scratch
	}
	var err error
	if box.Env, err = sandbox.Environ(f.env, sandbox.Places{}); err != nil {
		return usage(fmt.Errorf("--env: %w", err))
	}
	r.a.unsetEnv(f.env)
	box.Env = r.plan.socketEnv(box.Env)
	if r.interactive() {
		// Nobody speaks MCP to a terminal.
		r.plan.mcp = proxy.Off
	}
	if r.plan.mcp == proxy.Auto && (sandbox.IsNull(os.Stdin) || sandbox.IsFile(os.Stdin)) {
		r.plan.mcp = proxy.Off // no host is at the other end
	}
	box.Stderr = os.Stderr
	if r.plan.mcp == proxy.Off {
		box.Stdin, box.Stdout = os.Stdin, os.Stdout
		box.TTY = r.interactive()
	}
	// The mount needs our umask to be 0; the command gets the one we were given.
	box.Umask = &r.umask
	box.Mounted = func(o *sandbox.Options) error {
		if err := b.wait(); err != nil {
			return err
		}
		return r.locate(o)
	}
	box.Network = r.network()
	box.Chosen = r.links.chosen
	box.Attach = func(o *sandbox.Options) error { return r.attach(o, b) }
	box.Release = func() error {
		if err := b.release(); err != nil {
			return err
		}
		if err := r.recordSockets(); err != nil {
			return err
		}
		r.s.LetGo() // the command's init has the mount, and nobody else needs it
		r.watchRoots()
		r.learned.begin()
		return nil
	}
	r.could = couldConfine(ctx, box.Level)
	if r.proc, err = sandbox.Start(ctx, box); err != nil {
		r.later.begin()
		if errors.Is(err, sandbox.ErrCannot) || errors.Is(err, sandbox.ErrNotConfined) {
			return r.refusal(err)
		}
		return r.links.explain(func() *guard.Registry { return r.s.Registry() }, box.Args[0], noCommand(err))
	}
	if err := r.record(); err != nil {
		r.later.begin()
		return err
	}
	r.report(&box)
	r.later.begin()
	r.hints(&box)
	return nil
}

func (r *runner) interactive() bool {
	return isTerminal(os.Stdin) && isTerminal(os.Stdout)
}

// first is the first root's path inside: the one that was asked for first.
func (r *runner) first() string {
	for _, g := range r.plan.session.Roots {
		st, ok := r.s.Registry().Lookup(g.Root)
		if !ok || g.Implicit {
			continue
		}
		switch {
		case r.plan.box.Map == sandbox.Flat && st.FileRoot:
			return sandbox.DefaultFlatAt
		case r.plan.box.Map == sandbox.Flat:
			return sandbox.DefaultFlatAt + "/" + string(g.Root)
		case st.FileRoot:
			return filepath.Dir(st.Grant.Resolved)
		}
		return st.Grant.Resolved
	}
	return ""
}

// relay passes our signals on, but for SIGUSR1, by which the owner revokes every root.
// One of the kind that asks to end kills if it insists on an earlier one: whoever sends
// it has waited for long enough.
func (r *runner) relay(signals <-chan os.Signal) {
	var asking request
	insisted := false
	revoke := make(chan struct{}, 1)
	defer close(revoke)
	go func() {
		for range revoke {
			r.s.RevokeBySignal(context.Background())
		}
	}()
	for sig := range signals {
		if sig == unix.SIGUSR1 {
			select {
			case revoke <- struct{}{}:
			default: // one that waits is enough
			}
			continue
		}
		if slices.Contains([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}, sig) {
			first, insists := asking.hear(time.Now())
			if first {
				close(r.asked)
			}
			if insists && !insisted {
				insisted = true
				close(r.insisted)
			}
		}
		if insisted {
			_ = r.proc.Kill()
			continue
		}
		_ = r.proc.Signal(sig.(unix.Signal)) // one that has ended needs none
	}
}

// follow ends the command with its last root, if that was asked for.
func (r *runner) follow() {
	told := false
	for e := range r.events {
		gone := e.Kind == string(guard.EventRevoked) || e.Kind == string(guard.EventExpired) || e.Kind == string(guard.EventUnavailable)
		if !gone || !r.plan.stop || r.rooted() || r.ended() {
			continue
		}
		if !told {
			r.a.warn("the last root is gone: the command is told to end, as --on-revoke stop says")
		}
		told = true
		_ = r.proc.Signal(unix.SIGTERM)
		time.AfterFunc(stopAfter, func() { _ = r.proc.Kill() })
	}
}

// ended reports whether the command has ended by itself.
func (r *runner) ended() bool {
	select {
	case <-r.proc.Ended():
		return true
	default:
		return false
	}
}

// stopAfter is how long a command has to end by itself.
const stopAfter = 5 * time.Second

// rooted reports whether the command has a root left that somebody asked for.
func (r *runner) rooted() bool {
	return slices.ContainsFunc(r.s.Registry().Roots(), func(st guard.Status) bool {
		return st.State == guard.Live && !st.Grant.Implicit
	})
}
