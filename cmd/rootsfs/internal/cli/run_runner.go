package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// runner is one `rootsfs run` while it lasts: a session with a private mount, a confined
// process, and, for a process that speaks MCP, a proxy between it and its host.
type runner struct {
	a          *app
	plan       *runPlan
	place      *cleanup.Place // of the mount
	s          *session.Session
	reg        *guard.Registry // the registry of s
	proc       *sandbox.Process
	report     sandbox.Report         // of proc
	bindSignal func(*session.Session) // makes the session revoke its roots at SIGUSR1
	laterRoots *laterRoots
	learnLog   *learnLog
	links      linkRule         // of the private mount
	confined   control.Confined // the confinement that status shows
	umask      int              // of this process at its start
	refused    bool             // the required confinement is not available
	isStaged   bool             // a root was staged at the start, or when the session ended
	// initialRoots are the roots at the start of the command, by path.
	initialRoots map[string]boundRoot
	stop         chan struct{} // closed to end the session, by finish
	finish       func()
	// drained is closed, by drain, when the proxy handles no more output of the command: at the
	// end of the output, if the host reads no more of it, or at once without a proxy.
	drained    chan struct{}
	drain      func()
	sessionErr chan error // receives the error with which the session ended
	// termRequested is closed when a signal has asked the command to end. killRequested is
	// closed by another such signal, a second later or more.
	termRequested, killRequested chan struct{}
	events                       *events.Subscriber // of the session
}

// run creates the session, mount and process, waits for the command, and removes them in the
// opposite order.
func (r *runner) run(ctx context.Context, signals <-chan os.Signal) (exit sandbox.Exit, err error) {
	if r.place, err = cleanup.MakePlace(*r.plan.session.Mount.Owner); err != nil {
		return exit, err
	}
	cleaner, err := cleanup.StartForRun(r.place)
	if err != nil {
		r.place.Remove()
		return exit, err
	}
	exit, err = r.runSession(ctx, signals)
	// Not deferred: after a panic the cleaner must clean up.
	cleaner.Dismiss()
	return exit, err
}

// runSession is the part of run that the cleaner watches: if this process ends in it, the cleaner
// cleans up.
func (r *runner) runSession(ctx context.Context, signals <-chan os.Signal) (exit sandbox.Exit, err error) {
	defer r.place.Remove()
	done := r.a.waiting("mounting")
	r.s, err = session.Start(ctx, r.sessionOptions())
	done()
	if err != nil {
		return exit, err
	}
	r.reg, r.events = r.s.Registry(), r.s.Subscribe()
	defer r.events.Close()
	go func() { r.sessionErr <- r.s.Run(r.stop) }()
	defer func() { err = errors.Join(err, r.end()) }()
	defer r.plan.network.close()
	startErr := r.start(ctx)
	go cleanup.ClearLeft() // this run does not wait for it
	if r.refused {
		// The command is refused, even if the record fails.
		_ = r.reg.Note(names.OpRun, "", guard.Refused, "no confinement that was asked for can be had here")
	}
	if startErr != nil {
		return exit, startErr
	}
	defer r.reg.RemoveView(r.laterRoots)
	r.bindSignal(r.s)
	go r.forward(signals)
	go r.endTogether()
	go r.stopWithRoots()
	exit, err = r.runProxy(ctx)
	if n := exit.Kills; n > 0 {
		r.a.warn("the limit of %d bytes of memory (--memory-max) was reached: the kernel ended %s", r.plan.box.MemoryMax, plural(n, "process"))
	}
	if exit.IsFull {
		r.a.warn("the private HOME and /tmp, in memory, are full: they hold %s together; --home-max SIZE gives more, --home DIR keeps HOME on disk", sizeText(r.report.TmpSize))
	}
	r.plan.network.awaitRefusals()
	r.plan.network.printRefused(r.a)
	r.plan.network.printLimits(r.a)
	hosts, times := r.plan.network.refusedHosts()
	r.learnLog.propose(r.a, r.s, hosts, times, unseenOf(&r.plan.box, r.report.Level))
	return exit, err
}

// sessionOptions returns the plan's options of the session, with the needs of this run.
func (r *runner) sessionOptions() session.Options {
	opt := r.plan.session
	opt.Mount.Point = r.place.Point()
	// Only the command can reach the mount, and the command ends before the mount is removed.
	opt.SkipHolderSearch = true
	opt.AnchorLater = true
	opt.OnRecheck = r.laterRoots.recheck
	if !r.plan.strictLinks {
		opt.Mount.Visible = r.links.visible
	}
	opt.Observe = r.links.observe
	if r.plan.learn {
		r.learnLog = newLearnLog()
		opt.Mount.Layout.Missing = r.learnLog.missing
		opt.Observe = func(e guard.Event) {
			r.links.observe(e)
			r.learnLog.observe(e)
		}
	}
	return opt
}

// end ends the session and waits for it. While the session finishes its audit log, the place of
// the mount is removed.
func (r *runner) end() error {
	r.isStaged = isAnyStaged(r.plan.session.Roots) ||
		slices.ContainsFunc(r.reg.Roots(), func(st guard.Status) bool { return st.Stage != nil })
	r.finish()
	<-r.s.Ended()
	r.place.Remove()
	return <-r.sessionErr
}

// endTogether ends the command when the session ends, and the session when the command ends.
// Before it ends the session, it waits up to stopAfter until the proxy has handled the command's
// last output. It does not wait until the other processes of the sandbox have been killed. With
// --learn the session ends later, because the proposal of learnLog needs the session.
func (r *runner) endTogether() {
	select {
	case <-r.s.Ended():
		_ = r.proc.Kill() // the end of the session ends the command, too
	case <-r.proc.Ended():
		select {
		case <-r.drained: // the refusals of the command's requests are on record
		case <-time.After(stopAfter):
		}
		r.plan.network.awaitRefusals()
		if !r.plan.learn {
			r.finish()
		}
	}
}

// start starts the command.
func (r *runner) start(ctx context.Context) error {
	defer func() {
		r.laterRoots.begin(runningCommand{
			proc: r.proc, session: r.s, subject: r.plan.session.Mount.Subject, spare: r.plan.box.Spare, confined: r.confined,
		}, r.initialRoots)
	}()
	box, err := r.sandboxOptions()
	if err != nil {
		return err
	}
	if r.proc, err = sandbox.Start(ctx, box); err != nil {
		if errors.Is(err, sandbox.ErrCannot) || errors.Is(err, sandbox.ErrNotConfined) {
			return r.refusal(err)
		}
		return r.links.explain(r.reg, box.Args[0], noCommand(err))
	}
	r.plan.network.noteReach()
	r.report = r.proc.Report()
	if err := r.record(); err != nil {
		return err
	}
	r.publish(&box)
	r.hints(&box)
	return nil
}

// sandboxOptions returns the plan's options of the sandbox, with those that depend on the
// session's mount.
func (r *runner) sandboxOptions() (box sandbox.Options, err error) {
	box = r.plan.box
	box.Tree, box.Private, box.Group = r.s.Point(), r.place.Scratch(), r.place.Run()
	if box.Env, err = sandbox.Environ(r.plan.env); err != nil {
		return box, usage(fmt.Errorf("--env: %w", err))
	}
	r.a.warnUnsetEnv(r.plan.env)
	box.Env = r.plan.socketEnv(box.Env)
	if err := r.plan.checkLeaks(&box); err != nil {
		return box, err
	}
	if r.interactive() || r.plan.mcp == proxy.Auto && !mayBeHost(os.Stdin) {
		r.plan.mcp = proxy.Off
	}
	box.Stderr, box.JobControl = os.Stderr, true
	if r.plan.mcp == proxy.Off {
		box.Stdin, box.Stdout = os.Stdin, os.Stdout
		box.TTY = r.interactive()
	}
	// The mount needs a umask of 0 in this process. The command gets the original one.
	box.Umask = &r.umask
	box.Network = r.plan.network.box(r.s, r.a.warn)
	if r.plan.network != nil {
		box.Trust = r.plan.network.trust
	}
	box.OnLevel = func(level sandbox.Level) {
		r.plan.reached.Store(uint32(level))
		r.links.setLevel(level)
	}
	box.BeforeExec = func() error {
		if r.plan.certificates != nil {
			r.plan.certificates() // waits until the files are read: the program could write them
		}
		if err := r.recordSockets(); err != nil {
			return err
		}
		r.laterRoots.registerView(r.reg)
		r.learnLog.begin()
		return nil
	}
	return box, r.describeTree(&box)
}

// mayBeHost reports whether an MCP host can be at the other end of f. It reports false for a
// regular file, /dev/null and a terminal. A terminal counts as no host even if standard output is a
// pipe: the proxy might read the terminal while another job owns it, and the kernel would stop this
// process.
func mayBeHost(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || !info.Mode().IsRegular() && !sandbox.IsNull(f) && !isTerminal(f)
}

// describeTree fills in the options that depend on the roots, and makes the kept home. It is called
// after the session has begun, so no home is made if the session refuses the roots, such as a root
// that contains the home.
func (r *runner) describeTree(box *sandbox.Options) error {
	roots := r.reg.Roots()
	for _, st := range roots {
		if at := st.Grant.Resolved; box.Map == sandbox.Same {
			box.Roots = append(box.Roots, at)
			r.initialRoots[at] = rootItself(st)
		}
	}
	if box.Dir == "" {
		box.Dir = r.firstPath(roots)
	}
	box.Env = gitEnv(box, roots)
	files := r.plan.secretFiles()
	if box.Home == "" {
		for _, f := range files {
			box.HomeFiles = append(box.HomeFiles, sandbox.HomeFile(f))
		}
		return nil
	}
	isNew, err := makeHome(box.Home, box.UID, box.GID)
	if err != nil {
		return err
	}
	if isNew && r.plan.newHome != "" {
		r.plan.notes = append(r.plan.notes, r.plan.newHome)
	}
	r.plan.notes = append(r.plan.notes, bringHome(box.Home, r.trustedHomeFiles(), box.UID, box.GID)...)
	r.plan.notes = append(r.plan.notes, bringSecrets(box.Home, files, box.UID, box.GID)...)
	if err := r.plan.checkKeys(box.Home); err != nil {
		return err
	}
	home, err := filepath.EvalSymlinks(box.Home)
	if err != nil {
		return err
	}
	return r.reg.NoteWritable(home)
}

func (r *runner) interactive() bool {
	return isTerminal(os.Stdin) && isTerminal(os.Stdout)
}

// firstPath returns the path at which the command sees the first root that the owner named, or the
// directory of that root if it is a single file. It returns "" if there is no such root.
func (r *runner) firstPath(roots []guard.Status) string {
	for _, g := range r.plan.session.Roots {
		i := slices.IndexFunc(roots, func(st guard.Status) bool { return st.Grant.Root == g.Root })
		if i < 0 || g.Implicit {
			continue
		}
		st := roots[i]
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

// forward passes signals to the command. If another signal asks for the end, a second or more after
// the first, forward kills the command: the sender has waited long enough.
func (r *runner) forward(signals <-chan os.Signal) {
	var asking endRequest
	isKilled := false
	for sig := range signals {
		if sig != unix.SIGUSR2 {
			isFirst, isUrgent := asking.note(time.Now())
			if isFirst {
				close(r.termRequested)
			}
			if isUrgent && !isKilled {
				isKilled = true
				close(r.killRequested)
			}
		}
		if isKilled {
			_ = r.proc.Kill()
			continue
		}
		_ = r.proc.Signal(sig.(unix.Signal)) // an error means that the command has ended
	}
}

// stopWithRoots ends the command when its last root is gone, if a flag says so.
func (r *runner) stopWithRoots() {
	// A root may have ended before the command was started.
	gone, isWarned := len(r.initialRoots) > len(r.plan.implicit), false
	for {
		if gone && r.plan.stopsWithRoots && !r.hasNamedRoot() && !r.ended() {
			if !isWarned {
				r.a.warn("the last root is gone: the command is told to end, as --on-revoke stop says")
			}
			isWarned = true
			_ = r.proc.Signal(unix.SIGTERM)
			time.AfterFunc(stopAfter, func() { _ = r.proc.Kill() })
		}
		news, ok := r.events.Next(context.Background(), 0)
		if !ok {
			return
		}
		gone = news.Lost > 0 || slices.ContainsFunc(news.Events, func(e control.Event) bool {
			return e.Kind == string(guard.EventRevoked) || e.Kind == string(guard.EventExpired) || e.Kind == string(guard.EventUnavailable)
		})
	}
}

// ended reports whether the command has ended.
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

// hasNamedRoot reports whether the command still has a live root that the owner granted: by a flag,
// in the configuration, or while the command runs.
func (r *runner) hasNamedRoot() bool {
	return slices.ContainsFunc(r.reg.Roots(), func(st guard.Status) bool {
		return st.State == guard.Live && !st.Grant.Implicit
	})
}

// errUnread ends the proxy when nobody reads the command's output.
var errUnread = errors.New("nobody has read what the command wrote before it was ended")

// leaveUnread waits for the end of a command that a signal has asked to end. It calls leave
// stopAfter later, or when another signal asks for the end. Until then the reader can read the rest
// of the command's output. After done is closed, leaveUnread does nothing.
func (r *runner) leaveUnread(leave func(), done <-chan struct{}) {
	for _, c := range []<-chan struct{}{r.termRequested, r.proc.Ended()} {
		select {
		case <-c:
		case <-done:
			return
		}
	}
	limit := time.NewTimer(stopAfter)
	defer limit.Stop()
	select {
	case <-r.killRequested:
	case <-limit.C:
	case <-done:
		return
	}
	leave()
}

// stopServer ends a server whose host has left.
func (r *runner) stopServer() {
	_ = r.proc.Signal(unix.SIGTERM) // it may have ended
	time.AfterFunc(stopServerAfter, func() { _ = r.proc.Kill() })
}

// stopServerAfter is how long a server whose host has left has to end by itself.
const stopServerAfter = 300 * time.Millisecond

// runProxy passes messages between the command and its host until the command has ended.
func (r *runner) runProxy(ctx context.Context) (exit sandbox.Exit, err error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go r.leaveUnread(func() {
		r.proc.AbandonOutput()
		giveUp(errUnread)
	}, ctx.Done())
	if r.plan.mcp == proxy.Off {
		r.drain()
		return r.proc.Wait()
	}
	defer r.drain()
	gone := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		exit, err = r.proc.Wait()
		close(gone)
	})
	subject := guard.Subject(r.s.Name())
	proxyErr := proxy.Run(ctx, proxy.Options{
		Host: proxy.Stdin(), HostOut: os.Stdout, Server: r.proc.Stdin(), ServerOut: r.proc.Stdout(),
		Session: r.s.Connect(consent.WayServer, subject), Frame: r.s.Frame(), Mode: r.plan.mcp, Gone: gone, Stop: r.stopServer, Drained: r.drain, Log: r.s.Log(),
	})
	if proxyErr != nil && !errors.Is(proxyErr, errUnread) { // for errUnread there is no reader
		r.a.warn("the conversation broke off: %s", names.Escape(proxyErr.Error()))
		_ = r.proc.Signal(unix.SIGTERM)
	}
	wg.Wait()
	if proxyErr != nil && err == nil && exit.Status() == ExitOK {
		err = &exitError{Code: exitFailure} // the message was printed above
	}
	return exit, err
}
