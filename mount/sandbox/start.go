package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/seccomp"
)

// Main serves as the init of a confined command and does not return, if this process was
// started as one; otherwise it does nothing. The program's main calls it first, and so
// does the TestMain of tests that call Start.
func Main() { initproc.Main() }

// Refuse ends this process, if it was started as the init of a confined command, and
// makes Start return an error that says why. Otherwise it does nothing.
func Refuse(why error) { initproc.Refuse(why) }

// Start starts a command, confined. It returns when the command's program is
// running (its execve has succeeded), so an error means that nothing runs.
// When ctx ends, the command and everything it started is killed, as by Process.Kill.
//
// With Options.Level zero Start takes the strongest level that works, and Report says
// which. It goes on to a weaker level only if the machine lacks the stronger one. If a level is
// named, Start tries no other. Level None is used only if it is named. The error has ErrCannot in
// its chain if the machine lacks the level, and ErrNotConfined if the machine has the level, but
// the command could not be confined, for instance because a resource is used up.
//
// The caller should not hold a lock that the server of Tree needs: Start uses the tree
// before it returns.
func Start(ctx context.Context, o Options) (_ *Process, err error) {
	defer func() {
		if err != nil {
			o.Sockets.cutAll()
		}
	}()
	if err := o.check(); err != nil {
		return nil, err
	}
	o.trust = o.Trust.plan(&o)
	if o.Level != None {
		if err := checkProcesses(); err != nil {
			return nil, err
		}
	}
	if o.Level != 0 {
		return start(ctx, &o, o.Level)
	}
	var why []error
	for level := Namespaces; level <= cmp.Or(o.Least, Landlock); level++ {
		p, err := start(ctx, &o, level)
		if err == nil || !errors.Is(err, ErrCannot) {
			return p, err
		}
		why = append(why, fmt.Errorf("%s: %w", level, err))
	}
	return nil, cannot("no level of confinement that is strong enough can be reached here (%v)", errors.Join(why...))
}

// launch is the state of starting an init at a level.
type launch struct {
	o     *Options
	level Level
	conf  initproc.Config
	// layout is the command's root directory; nil: the command has the host's own directories.
	layout *layout.Layout
	cmd    *exec.Cmd
	files  []*os.File // passed to the init from initproc.FirstFD on
	// network has the sockets of the command's network that are not served yet, by name.
	network map[string][]*os.File
	// bwrapStderr is the file in memory with bwrap's standard error; nil: there is no bwrap.
	bwrapStderr *os.File
	group       *memGroup // nil: there is none
	memoryLayer Layer     // the layer that limits memory; without a name if there is no limit
}

// start starts the command at one level, and classifies the error if it fails.
func start(ctx context.Context, o *Options, level Level) (*Process, error) {
	p, err := startAt(ctx, o, level)
	return p, judge(ctx, o, level, err)
}

// startAt starts the command at one level.
func startAt(ctx context.Context, o *Options, level Level) (*Process, error) {
	if o.OnLevel != nil {
		o.OnLevel(level)
	}
	if len(o.Sockets.Live()) > 0 && level != Namespaces {
		return nil, cannot("sockets of the host's are granted at level namespaces only: leave --socket and run.socket out, or --level")
	}
	if o.Network != nil && !o.Network.Optional && level != Namespaces && level != Bubblewrap {
		return nil, cannot("a network of approved hosts needs level namespaces or bubblewrap: leave --net and --secret out, or write --net for the whole network")
	}
	private := privateDirsAt(o, level)
	l := &launch{o: o, level: level, network: map[string][]*os.File{}}
	l.conf = initproc.Config{
		Bwrap: level == Bubblewrap, Unconfined: level == None, Args: o.Args, Program: o.Program, Env: completeEnv(o, level, private), Dir: cmp.Or(o.Dir, private.Home),
		Net: o.Net, Pids: o.PidsMax, Probe: o.probe, KeptHome: o.Home != "", NoCgroups: noneAllowed("cgroup"),
		Listen: o.Listen, Sockets: o.Sockets.names(), Files: map[string]int{}, Umask: *o.Umask,
		// Inside, set-id bits have no effect. But outside, the files of a kept HOME are ordinary
		// files.
		Filter: seccomp.Wants{NoSetID: o.Home != ""},
	}
	for _, sig := range [...]unix.Signal{unix.SIGHUP, unix.SIGINT} { // signal.Ignored is right only for these two
		if signal.Ignored(sig) {
			l.conf.Ignore = append(l.conf.Ignore, int(sig))
		}
	}
	if o.Network != nil && (level == Namespaces || level == Bubblewrap) {
		l.conf.OpenNetwork, l.conf.Listeners = true, o.Network.Listeners
	}
	if level == Namespaces || level == Bubblewrap {
		l.conf.HomeFiles = o.HomeFiles
	}
	l.cmd = &exec.Cmd{
		Path: initproc.Self, Args: []string{"rootsfs: init"}, Env: initproc.Env(),
		// A session of its own: the command has no terminal but the one it is given.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	defer l.closeFiles()
	if err := l.limitMemory(); err != nil {
		return nil, err
	}
	var p *Process
	err := l.prepare(private)
	if err == nil {
		l.group.joinAtStart(l.cmd.SysProcAttr)
		p, err = l.run(ctx)
	}
	if err != nil {
		l.group.remove()
	}
	return p, err
}

// prepare does the steps that differ between levels.
func (l *launch) prepare(private privateDirs) error {
	switch l.level {
	case Namespaces:
		return l.prepareNamespaces(private)
	case Bubblewrap:
		return l.prepareBubblewrap(private)
	}
	return l.prepareOnHost(private)
}

func (l *launch) closeFiles() {
	for _, f := range l.files {
		f.Close()
	}
	l.files = nil
	for _, sockets := range l.network {
		for _, f := range sockets {
			f.Close()
		}
	}
	if l.bwrapStderr != nil {
		l.bwrapStderr.Close()
	}
}

// passFile hands an open file to the init, or to bwrap, and returns its number
// there.
func (l *launch) passFile(f *os.File) int {
	l.files = append(l.files, f)
	return initproc.FirstFD + len(l.files) - 1
}

// Umask returns the process's umask. No system call reads it without setting it, so it is
// read from /proc. If that fails, it is taken to be 022.
func Umask() int {
	var mask int
	b, err := os.ReadFile("/proc/self/status")
	if err == nil {
		_, err = fmt.Sscanf(field(string(b), "Umask:"), "%o", &mask)
	}
	if err != nil {
		return 0o022
	}
	return mask
}

// run starts the init and waits until it has started the command.
func (l *launch) run(ctx context.Context) (*Process, error) {
	// The init must not inherit descriptors that this process has inherited without knowing.
	// Descriptors that this process has opened itself are closed on execve in any case.
	if err := initproc.CloseOnExec(3); err != nil {
		return nil, failed("mark inherited descriptors: %v", err)
	}
	p := &Process{jobControl: l.o.JobControl, stops: make(chan struct{}, 1), level: l.level, group: l.group, sockets: l.o.Sockets, ended: make(chan struct{}), unread: make(chan struct{}), relaying: make(chan struct{}), done: make(chan struct{})}
	err := p.makeStreams(l)
	if err == nil {
		err = p.startInit(l)
	}
	p.closeCommandEnds()
	if err != nil {
		p.abandon()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	if err = p.await(l); err == nil {
		p.pid = p.findPID()
	} else {
		stop()
		_ = p.Kill() // the init may have ended
		<-p.dead
		p.abandon()
		return nil, err
	}
	go p.supervise(stop)
	return p, nil
}

// startInit starts the init.
func (p *Process) startInit(l *launch) error {
	if l.bwrapStderr != nil {
		if p.commandEnds[2] != nil {
			l.conf.Files[initproc.StderrFile], p.commandEnds[2] = l.passFile(p.commandEnds[2]), nil
		}
		l.cmd.Stderr = l.bwrapStderr
	}
	text, err := json.Marshal(l.conf)
	if err != nil {
		return failed("write the configuration: %v", err)
	}
	conf, err := memFile("the configuration", text)
	if err != nil {
		return err
	}
	defer conf.Close()
	raiseCoreLimit()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed("make a socket pair: %v", err)
	}
	p.control, p.sock, p.dead = os.NewFile(uintptr(pair[0]), "control socket"), pair[0], make(chan struct{})
	initEnd := os.NewFile(uintptr(pair[1]), "control socket")
	defer initEnd.Close() // otherwise this process would never see the end of the socket
	l.cmd.ExtraFiles = append([]*os.File{initEnd, conf}, l.files...)
	return p.spawn(l.cmd)
}

// spawn starts the init from a thread that lives as long as the init: the
// kernel sends the death signal when that thread ends, not when the process ends.
func (p *Process) spawn(cmd *exec.Cmd) error {
	p.cmd = cmd
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		err := p.group.start(func() error { return startDumpable(cmd) })
		if err != nil && cmd.Process != nil { // the thread could not leave the group
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // supervise looks at how it ended
			close(p.dead)
		}
	}()
	return <-started
}

// startDumpable starts the init while this process is dumpable. Until the init has executed its
// program, the init shares this process's memory, and with it the dumpable attribute. The /proc
// files of a process that is not dumpable belong to root: an ordinary user could not write the
// init's uid_map (user_namespaces(7)). So for that moment this process is as open to the user's
// other processes as it was when it began.
func startDumpable(cmd *exec.Cmd) error {
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err == nil && was != 1 && os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			return spawnError(cmd, err)
		}
		defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(was), 0, 0, 0) }()
	}
	return spawnError(cmd, cmd.Start())
}

// SeeDoctor ends a reason that `rootsfs doctor` explains further. doctor itself leaves these
// words out.
const SeeDoctor = "; see what `rootsfs doctor` says"

// spawnError returns the reason why no init could be started. The kernel refuses namespaces with
// EPERM, EINVAL or ENOSYS. With EACCES a security module refuses them, or the command's uid may not
// execute this program.
func spawnError(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		switch errno {
		case unix.EPERM, unix.EINVAL, unix.ENOSYS:
			return unable(err, "namespaces are refused: %v%s", errno, SeeDoctor)
		case unix.EACCES:
			if os.Geteuid() != 0 && cmd.SysProcAttr.Cloneflags&unix.CLONE_NEWUSER != 0 {
				// The mode of the program is not the reason: this user executes the program
				// already.
				return &unableError{errno: errno, kind: ErrRestricted, text: fmt.Sprintf(
					"a security module of this machine, such as AppArmor or SELinux, forbids this program user namespaces: %v%s", errno, SeeDoctor)}
			}
			return unable(err, "the uid that the command is to run as may not execute this program: %v; install rootsfs where everybody may execute it", errno)
		}
	}
	return unable(err, "start the confined init: %v", err)
}

// await handles the init's messages until the command runs, and then sets p.report and p.binder.
// When the confinement is complete, it calls beforeExec and releases the command.
func (p *Process) await(l *launch) error {
	for {
		m, fds, err := initproc.Receive(p.sock)
		if err != nil && l.bwrapStderr != nil {
			msg := l.bwrapError()
			return &unableError{text: "bwrap: " + msg, bwrapMsg: msg}
		}
		if err != nil {
			return failed("the confined init ended before it had started the command: %v", err)
		}
		switch m.Kind {
		case initproc.KindFile:
			if err := p.receiveFile(l, m.Name, fds); err != nil {
				return err
			}
		case initproc.KindReady:
			if err := l.beforeExec(); err != nil {
				return err
			}
			_ = initproc.Send(p.sock, initproc.Message{Kind: initproc.KindRelease}) // an init that has ended is noticed above
		case initproc.KindStarted:
			settleCore(m.Layers)
			if l.memoryLayer.Name != "" {
				m.Layers = append(m.Layers, l.memoryLayer)
			}
			p.report = Report{
				Level: p.level, Name: p.level.String(), UID: l.o.UID, GID: l.o.GID, Layers: m.Layers,
				Holes: holes(l.o, p.level, m.Layers), Notes: notes(l.o, p.level, l.layout),
			}
			p.report.Follows, p.report.Closed = l.rootDirs()
			if l.layout != nil {
				p.report.TmpSize = l.layout.TmpSize
			}
			if p.binder.canBind = l.layout != nil && len(l.layout.Spare) > 0; p.binder.canBind {
				p.binder.single, p.binder.writable, p.binder.answers = l.layout.Nested, l.conf.Rules.Write, make(chan initproc.Message, 1)
			}
			return nil
		case initproc.KindFailed:
			if m.Step == initproc.StepConfine {
				return unable(unix.Errno(m.Errno), "%s", m.Error)
			}
			return commandError(l.o, m)
		}
	}
}

// receiveFile takes descriptors that the init has opened inside for the caller.
func (p *Process) receiveFile(l *launch, name string, fds []int) error {
	list, isNetwork := strings.CutPrefix(name, initproc.NetworkFile)
	sockets := strings.Split(list, ",") // one name, unless the sockets are the network's
	if len(fds) != len(sockets) || len(fds) != 1 && !isNetwork {
		return failed("the confined init has sent %d descriptors for %s", len(fds), names.Quote(name))
	}
	if socket, ok := strings.CutPrefix(name, initproc.SocketFile); ok {
		return l.o.Sockets.listen(socket, fds[0])
	}
	if !isNetwork {
		p.relay.master = os.NewFile(uintptr(fds[0]), name)
		return nil
	}
	for i, socket := range sockets {
		l.network[socket] = append(l.network[socket], os.NewFile(uintptr(fds[i]), socket))
	}
	return nil
}

// beforeExec serves the command's network and calls Options.BeforeExec, when the confinement is
// complete.
func (l *launch) beforeExec() error {
	if err := l.serveNetwork(); err != nil {
		return err
	}
	if l.o.BeforeExec != nil {
		return l.o.BeforeExec()
	}
	return nil
}

// serveNetwork calls Network.Serve. The command waits for the call, even if nothing can be reached
// in the network. Otherwise the kernel would refuse the command's first connections, and nobody
// would see which hosts it looked for.
func (l *launch) serveNetwork() error {
	n := l.o.Network
	if !l.conf.OpenNetwork {
		return nil
	}
	sockets := l.network
	l.network = nil // Serve owns them now
	if err := n.Serve(sockets); err != nil {
		return unable(err, "give the command a network of approved hosts: %v", err)
	}
	return nil
}

// commandError returns the error of a command that was not started.
func commandError(o *Options, m initproc.Message) error {
	name, errno := o.Args[0], unix.Errno(m.Errno)
	switch {
	case m.Step == initproc.StepDir:
		return invalid("the working directory %s cannot be entered inside (%v): choose a directory of a root", names.Quote(o.Dir), errno)
	case m.Step == initproc.StepInterpreter:
		return notExecutable(name, "the interpreter that its first line names, or its loader, is not there inside: make the directory that is installed in a root")
	case errno == unix.ENOENT:
		return notFound(name)
	case errno == unix.EACCES:
		return notExecutable(name, "permission denied; a program needs to be executable (chmod +x), and so does its interpreter")
	case errno == unix.ENOEXEC:
		return notExecutable(name, "its format is not understood: a script needs a first line such as #!/bin/sh")
	}
	return failed("start %q inside: %s", name, m.Error)
}
