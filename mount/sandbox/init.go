package sandbox

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"unsafe"

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
	// cgroupErr is why there is no cgroup namespace.
	cgroupErr error
}

func runInit(stage string) {
	// The main goroutine stays on the main thread: it is the one that carries
	// the mount namespace's root, the bounding set, and the parent of the
	// command (whose death signal is tied to a thread).
	runtime.LockOSThread()
	p := &initProc{spare: sparePids}
	if stage == stageAhead {
		if send(controlFD, message{Kind: kindAwake}) != nil {
			os.Exit(exitStage) // the caller is gone
		}
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
	started := message{Kind: kindStarted, Layers: p.layers, Notes: p.notes, Stdin: p.conf.Stdin != nil && p.conf.Stdin.Taken}
	if err := send(controlFD, started); err != nil {
		os.Exit(exitStage) // the caller is gone
	}
	if p.conf.Layout != nil {
		go refreshSystem(p.conf.Layout)
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
// for them; the others do nothing to it.
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
	if err := p.sockets(); err != nil {
		return err
	}
	if err := p.network(); err != nil {
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
	if os.Getpid() == 1 {
		ignoreAsInit()
	} else {
		signal.Notify(make(chan os.Signal, 1), deadly...)
	}
	unix.Umask(0o022)
	// If the machine runs out of memory, the kernel should kill the confined command
	// before rootsfs, which can revoke. The write fails if the value is higher already.
	_ = putFile(unix.AT_FDCWD, "/proc/self/oom_score_adj", strconv.Itoa(oomScoreAdj))
}

// oomScoreAdj makes a process with little memory as likely to be ended for want of
// memory as one that has half of the machine's (proc_pid_oom_score_adj(5)).
const oomScoreAdj = 500

// ignoreAsInit has the kernel discard the deadly signals, as it does for the first
// process of a pid namespace if that has no handler for them (pid_namespaces(7)); Go's
// runtime has handlers, which end the process. To ask for the signals would cost two
// switches between threads for each of them, as the main goroutine is tied to one
// here: a fourteenth of the start (measured). The command inherits nothing of it: what
// is not ignored by name is not ignored after execve(2). A fault of this process itself
// ends it, and with it all that is inside, without the trace that a panic would leave.
func ignoreAsInit() {
	var byDefault [4]uint64 // struct sigaction of the kernel: SIG_DFL, no flags, no mask
	for _, sig := range deadly {
		// It cannot fail: these are signals.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig.(unix.Signal)), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	}
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
	p.cgroupErr = unix.Unshare(unix.CLONE_NEWCGROUP)
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
	switch err := p.cgroupErr; {
	case err == nil:
		p.on("cgroup namespace", "")
	case lacksByKind(err), errors.Is(err, unix.ENOSPC) && p.conf.NoCgroups:
		p.layers = append(p.layers, Layer{"cgroup namespace", NotAvailable, err.Error()})
	default:
		return step(err, "make a cgroup namespace")
	}
	if p.conf.Net {
		p.layers = append(p.layers, Layer{"network namespace", Off, "the host's network"})
	} else if err := loopback(); err != nil {
		return err
	} else {
		p.on("network namespace", "a loopback interface only")
	}
	p.takeStdin() // while the host's files are there
	b := p.builder
	if err := b.build(p.conf.Layout, p.tree); err != nil {
		return err
	}
	p.notes, p.kept = append(p.notes, b.notes...), b.kept
	p.on("minimal root", "read-only; /proc of its own, six devices")
	p.unixSockets(b.unscreened)
	if dynamic {
		if err := b.letGo(); err != nil {
			return err
		}
		return p.again()
	}
	return nil
}

// unixSockets permits sockets of the unix family where the files and the names that they
// can be bound to are the command's own; unscreened is why files are not.
func (p *initProc) unixSockets(unscreened error) {
	const name = "unix sockets"
	switch {
	case unscreened != nil:
		p.layers = append(p.layers, Layer{name, Off, "refused: the host's could be reached: " + unscreened.Error()})
	case p.conf.KeptHome && len(p.conf.Sockets) == 0:
		// Neither seccomp nor Landlock can refuse connect(2) by the socket's path.
		p.layers = append(p.layers, Layer{name, Off, "refused: HOME is a directory of the host's, which may hold sockets; they are allowed with a private HOME"})
	case p.conf.Net && !scoped():
		p.layers = append(p.layers, Layer{name, Off, "refused: in the host's network they have names that others use, and this kernel's Landlock has no scopes (Linux 6.12 does)"})
	case p.conf.Net:
		// The init, which makes the calls of bind, makes none for them: see listen.go.
		// Landlock refuses the abstract names of others.
		p.conf.Filter.Unix = true
		p.on(name, "to granted sockets and in pairs; none can be bound, as they have names in the host's network")
	default:
		p.conf.Filter.Unix = true
		p.on(name, "among its own processes; none of the host's can be reached")
	}
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
	p.takeStdin()
	return nil
}

func (p *initProc) on(name, detail string) {
	p.layers = append(p.layers, Layer{name, On, detail})
}

// terminal makes a pty inside, so that its name there is right and the host's
// terminals are not, and sends its master side out.
func (p *initProc) terminal() error {
	if err := ownNull(p.conf.TTY); err != nil {
		return err
	}
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
