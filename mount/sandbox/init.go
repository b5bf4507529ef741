package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// The init builds what confines the command, confines itself by the same means,
// starts the command and waits. As pid 1 of a pid namespace it reaps whatever
// the command leaves behind, and takes everything with it when it ends; in
// levels without a pid namespace it does the same as a subreaper.

// initProc is the init's state.
type initProc struct {
	conf   config
	layers []Layer
	notes  []string
	files  [3]*os.File // the command's standard streams
	spare  int         // pids for the init's own threads
	kept   *kept       // to show more of the tree later; nil: nothing is
	// builder is of the root; nil: it is not of our making, or was by an earlier stage.
	builder *builder
	settled bool
}

// sparePids is what the init may use beyond the command's limit: the runtime
// aborts when it cannot have a thread.
const sparePids = 64

func runInit(stage string) {
	// The main goroutine stays on the main thread: it is the one that carries
	// the mount namespace's root, the bounding set, and the parent of the
	// command (whose death signal is tied to a thread).
	runtime.LockOSThread()
	p := &initProc{spare: sparePids}
	if stage == stageAhead {
		p.identify()
		// Meanwhile, what is the same for every command.
		if err := p.outline(); err != nil {
			p.fail(stepConfine, err)
		}
		p.summoned()
	}
	if err := p.setUp(stage == stageInside); err != nil {
		p.fail(stepConfine, err)
	}
	if p.conf.Probe {
		_ = send(controlFD, message{Kind: kindStarted, Layers: p.layers, Notes: p.notes})
		_ = send(controlFD, message{Kind: kindExited}) // or this would be an init that failed
		os.Exit(0)
	}
	if p.conf.Hold {
		p.hold()
	}
	pid, step, err := p.command()
	if err != nil {
		p.fail(step, err)
	}
	if err := send(controlFD, message{Kind: kindStarted, Layers: p.layers, Notes: p.notes}); err != nil {
		os.Exit(exitStage) // the caller is gone
	}
	go p.obey(pid)
	p.reap(pid)
}

// fail tells the caller and ends.
func (p *initProc) fail(step string, err error) {
	m := message{Kind: kindFailed, Step: step, Error: err.Error()}
	var errno unix.Errno
	if errors.As(err, &errno) {
		m.Errno = int(errno)
	}
	_ = send(controlFD, m) // a caller that is gone has nobody to tell
	os.Exit(exitStage)
}

// deadly are the signals that would end or stop a Go program that has not asked
// for them; the others do nothing to it. Each of them costs two switches between
// threads here, where the main goroutine is tied to one: to ask for all of them
// took a seventh of the start (measured).
var deadly = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
	unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// setUp does everything before the command.
func (p *initProc) setUp(inside bool) error {
	begin := p.configure
	if inside {
		begin = p.resume
	}
	if err := begin(); err != nil {
		return err
	}
	p.settle()
	if !inside {
		if err := p.surround(); err != nil {
			return err
		}
	}
	if err := p.terminal(); err != nil {
		return err
	}
	if p.conf.Level != None {
		if err := p.confine(); err != nil {
			return err
		}
	}
	if p.builder != nil {
		if err := p.builder.letGo(); err != nil {
			return err
		}
	}
	unix.Umask(p.conf.Umask)
	return nil
}

// settle makes this process what it is while it builds and waits.
func (p *initProc) settle() {
	if p.settled {
		return
	}
	p.settled = true
	// Signals from inside must not end this process, and those it is sent
	// from outside come over the control socket.
	signal.Notify(make(chan os.Signal, 1), deadly...)
	unix.Umask(0o022)
}

// surround makes the command's surroundings.
func (p *initProc) surround() error {
	switch p.conf.Level {
	case Namespaces:
		return p.namespaces()
	case Bubblewrap:
		return p.bubblewrap()
	}
	return step(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become a subreaper")
}

// outline finishes the namespaces this process is in as far as they are the same for
// every command, and begins to build the root.
func (p *initProc) outline() (err error) {
	p.settle()
	p.on("namespaces", "user, mount, pid, ipc, uts")
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		p.layers = append(p.layers, Layer{"cgroup namespace", NotAvailable, err.Error()})
	} else {
		p.on("cgroup namespace", "")
	}
	if err := unix.Sethostname([]byte(hostName)); err != nil {
		return step(err, "set the host name")
	}
	p.builder, err = outline()
	return err
}

// namespaces builds the root and finishes the namespaces this process is in.
func (p *initProc) namespaces() error {
	if p.builder == nil { // it was not started ahead
		if err := p.outline(); err != nil {
			return err
		}
	}
	if p.conf.Net {
		p.layers = append(p.layers, Layer{"network namespace", Off, "the host's network"})
	} else if err := loopback(); err != nil {
		return err
	} else {
		p.on("network namespace", "a loopback interface only")
	}
	b := p.builder
	if err := b.build(p.conf.Layout, p.tree); err != nil {
		return err
	}
	p.notes, p.kept = append(p.notes, b.notes...), b.kept
	p.on("minimal root", "read-only; /proc of its own, six devices")
	if dynamic {
		if err := b.letGo(); err != nil {
			return err
		}
		return p.again()
	}
	return nil
}

// bubblewrap says what bwrap has made, and gives the private directories, which
// a bwrap of root's has made for root, to the command's uid.
func (p *initProc) bubblewrap() error {
	if p.conf.SetID {
		p.on("namespaces", "mount, pid, ipc, uts")
		for _, dir := range []string{privateDir, placeHome, placeRuntime, "/run"} {
			if dir == placeHome && p.conf.KeptHome {
				continue
			}
			if err := os.Lchown(dir, int(p.conf.UID), int(p.conf.GID)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EROFS) {
				return step(err, "give %s to the command's uid", dir)
			}
		}
	} else {
		p.on("namespaces", "user, mount, pid, ipc, uts")
	}
	if p.conf.Net {
		p.layers = append(p.layers, Layer{"network namespace", Off, "the host's network"})
	} else {
		p.on("network namespace", "a loopback interface only")
	}
	p.on("minimal root", "read-only, by bwrap")
	return nil
}

func (p *initProc) on(name, detail string) {
	p.layers = append(p.layers, Layer{name, On, detail})
}

// terminal makes a pty inside, so that its name there is right and the host's
// terminals are not, and sends its master side out.
func (p *initProc) terminal() error {
	for i := range p.files {
		p.files[i] = os.NewFile(uintptr(i), "stream")
	}
	if p.conf.TTY == [3]bool{} {
		return nil
	}
	master, slave, err := pty.Open()
	if err != nil {
		return step(err, "open a terminal")
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: p.conf.Rows, Cols: p.conf.Cols}); err != nil {
		return step(err, "set the size of the terminal")
	}
	if err := send(controlFD, message{Kind: kindTerminal}, int(master.Fd())); err != nil {
		return step(err, "hand the terminal out")
	}
	master.Close()
	for i, tty := range p.conf.TTY {
		if tty {
			p.files[i] = slave
		}
	}
	return nil
}

// confine drops what this thread, from which the command is started, has and
// could get. The order matters: what a later step needs must not be taken by an
// earlier one.
//
// The init's other threads keep capabilities over the namespaces: confining them
// would take longer than all the rest (see landlock.go). The command cannot
// reach them: it may not trace this process, which is not dumpable and has no
// directory in its /proc, nor stop it by a signal (as pid 1 it hears none that it
// has not asked for; elsewhere see filter_signals.go), and it holds no descriptor of it.
func (p *initProc) confine() error {
	if err := p.limits(); err != nil {
		return err
	}
	if pid := os.Getpid(); pid != 1 {
		p.conf.Filter.Init = uint32(pid)
	}
	filter, err := program(p.conf.Filter)
	if err != nil {
		return err
	}
	note, err := dropCaps(&p.conf)
	if err != nil {
		return err
	}
	p.on("capabilities", "none in any set"+note)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step(err, "set no_new_privs")
	}
	p.on("no_new_privs", "set-uid programs gain nothing")
	// After the capabilities: dropping them clears both. Without a pid
	// namespace the init must live to end the command; it hears of its
	// caller's end by the socket.
	if os.Getpid() == 1 {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return step(err, "tie this process to its parent")
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return step(err, "close /proc/1")
	}
	treeFD := -1
	if p.kept != nil {
		treeFD = p.kept.tree
	}
	layer, err := restrict(p.conf.Rules, treeFD)
	if err != nil {
		return err
	}
	p.layers = append(p.layers, layer)
	if err := install(filter); err != nil {
		return err
	}
	what := "system calls that reach out of a sandbox; other architectures"
	if p.conf.Filter.NoSetID {
		what += "; set-id files"
	}
	p.on("seccomp", what)
	return nil
}

// limits bounds what the command can use up. The init needs threads of its own
// when the command has used everything, so the hard limit, which only it raises
// its soft one to, is a little higher. Nobody here can raise the hard limits that
// rootsfs was started with.
func (p *initProc) limits() error {
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &had); err != nil {
		return step(err, "ask for the limit of processes")
	}
	spare := uint64(p.spare)
	most := min(uint64(p.conf.Pids)+spare, had.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most - min(spare, most), Max: most}); err != nil {
		return step(err, "limit the number of processes")
	}
	// Not 0: that would not stop a core_pattern with a pipe, which runs a
	// program of the host's as root on what crashed here; 1 does (core(5)).
	switch err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); {
	case errors.Is(err, unix.EPERM):
		p.on("limits", "processes and threads")
		p.layers = append(p.layers, Layer{coreName, NotAvailable, "the hard limit of core files is 0, which cannot be raised to 1 here"})
	case err != nil:
		return step(err, "forbid core dumps")
	default:
		p.on("limits", "processes and threads, core dumps")
	}
	return nil
}

// command starts the command from this very thread. step is where it failed.
func (p *initProc) command() (pid int, step string, err error) {
	attr := &syscall.ProcAttr{
		Dir: p.conf.Dir, Env: p.conf.Env,
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Getpid() != 1 {
		attr.Sys.Pdeathsig = syscall.SIGKILL // of this thread, which is the init's main one
	}
	for i, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
		if p.conf.TTY[i] && !attr.Sys.Setctty {
			attr.Sys.Setctty, attr.Sys.Ctty = true, i
		}
	}
	path, err := look(p.conf.Args[0], p.conf.Env)
	if err != nil {
		return 0, stepCommand, err
	}
	if pid, err = syscall.ForkExec(path, p.conf.Args, attr); err != nil {
		return 0, p.blame(path, err), err
	}
	for i, f := range p.files {
		f.Close()
		if p.conf.TTY[i] {
			unix.Close(i)
		}
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &lim) == nil {
		lim.Cur = lim.Max
		_ = unix.Setrlimit(unix.RLIMIT_NPROC, &lim) // only for our own threads; see limits
	}
	return pid, "", nil
}

// blame says what a failed start is to be blamed on: the error is the same for a
// working directory, a program and an interpreter that are not there.
func (p *initProc) blame(path string, err error) (step string) {
	fd, derr := unix.Open(p.conf.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if derr != nil {
		return stepDir
	}
	defer unix.Close(fd)
	if unix.Faccessat(fd, ".", unix.X_OK, 0) != nil {
		return stepDir
	}
	// A relative path is one from there.
	if errors.Is(err, unix.ENOENT) && unix.Faccessat(fd, path, unix.F_OK, 0) == nil {
		return stepInterpreter
	}
	return stepCommand
}

// look finds a command as the command itself would: inside, on its own PATH.
func look(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return "", err
			}
		}
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", unix.ENOENT
	}
	return path, err
}

// obey forwards signals, and ends everything when the caller is gone.
func (p *initProc) obey(pid int) {
	for {
		m, _, err := receive(controlFD)
		if err != nil {
			p.end(exitStage)
		}
		switch m.Kind {
		case kindBind, kindUnbind:
			p.later(m)
			continue
		case kindSignal:
		default:
			continue
		}
		to := pid
		if m.Group {
			to = -pid
		}
		_ = unix.Kill(to, unix.Signal(m.Signal)) // it may have ended
	}
}

// reap waits for every child that ends until the command has.
func (p *initProc) reap(pid int) {
	for {
		var st unix.WaitStatus
		got, err := unix.Wait4(-1, &st, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			p.end(exitStage) // no child is left, and the command was not seen to end: it cannot be
		case got != pid:
			continue
		}
		m := message{Kind: kindExited, Code: st.ExitStatus()}
		if st.Signaled() {
			m.Code, m.Signal = 0, int(st.Signal())
		}
		_ = send(controlFD, m)
		p.end(0)
	}
}

// end takes everything with it.
func (p *initProc) end(code int) {
	if os.Getpid() != 1 {
		killChildren()
	}
	os.Exit(code)
}
