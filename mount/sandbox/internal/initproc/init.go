// Package initproc is the init of a confined command: this very program, started again. The init
// makes the command's root directory (if Config.Layout is set), drops every right to leave it,
// starts the command, and waits.
//
// # Promises
//
// The caller is the process that started the init. The command is started only when its
// confinement is complete, and the caller has released it. When the command or the caller
// ends, the init ends all processes that were started from the init.
//
// # Not promised
//
// Of the init's own threads only the first is confined: see confine.
package initproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// A Go process cannot fork, because only one of its threads would be in the child. So the
// init is this program started again, with Variable in its environment. It gets its end of a
// socket on controlFD, its configuration in a memory file on configFD, and from FirstFD on
// the files that the caller had to open for it.

// Variable is the environment variable that marks a process as an init. A command never gets it.
const Variable = "ROOTSFS_SANDBOX_INIT"

const (
	controlFD = 3
	configFD  = 4
	// FirstFD is the first of the descriptors that Config.Files names.
	FirstFD = 5

	// Self is a path of this program's file. It is right even if the file was renamed or replaced.
	Self = "/proc/self/exe"
)

// exitFailed is the exit code of an init that failed.
const exitFailed = 125

// Env returns the environment of an init. An init lives long and does little: it collects
// no garbage at its start, and has work for two threads at most. With containermaxprocs
// the runtime would keep files of its control group open, which belong to the host's
// mounts.
func Env() []string {
	env := []string{Variable + "=1", "GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=2", "GODEBUG=containermaxprocs=0"}
	if race, ok := os.LookupEnv("GORACE"); ok {
		env = append(env, "GORACE="+race) // without it, a binary with the race detector waits a second at its end
	}
	return env
}

func isInit() bool {
	_, ok := os.LookupEnv(Variable)
	return ok
}

// The main function of an init stays on the main thread, because confine confines only the thread
// that calls it. The command is started from the same thread, so that it is confined, too.
func init() {
	if isInit() {
		runtime.LockOSThread()
	}
}

// Main serves as the init and does not return, if this process was started as one;
// otherwise it does nothing.
func Main() {
	if !isInit() {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstat(controlFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		fmt.Fprintf(os.Stderr, "%s is set, but not by rootsfs: unset it\n", Variable)
		os.Exit(exitFailed)
	}
	(&initProc{}).run()
}

// Refuse ends this process, if it was started as an init, and tells the caller why.
func Refuse(why error) {
	if isInit() {
		(&initProc{}).fail(StepConfine, why)
	}
}

// initProc is the init's state. As pid 1 of a pid namespace it reaps the processes that the
// command leaves behind, and all of them end with it. Without a pid namespace it is a
// subreaper and ends them itself.
type initProc struct {
	conf   Config
	layers []Layer
	files  [3]*os.File // the command's standard streams
	late   *lateMounts // to show more of the tree later; nil: nothing is shown later
}

func (p *initProc) run() {
	if err := p.setUp(); err != nil {
		p.fail(StepConfine, err)
	}
	if p.conf.Probe {
		_ = Send(controlFD, Message{Kind: KindStarted, Layers: p.layers})
		_ = Send(controlFD, Message{Kind: KindExited}) // otherwise the caller would see an init that failed
		os.Exit(0)
	}
	if err := p.writeHomeFiles(); err != nil {
		p.fail(StepConfine, err)
	}
	p.awaitRelease()
	pid, step, err := p.startCommand()
	if err != nil {
		p.fail(step, err)
	}
	if err := Send(controlFD, Message{Kind: KindStarted, Layers: p.layers}); err != nil {
		os.Exit(exitFailed) // the caller is gone
	}
	if p.conf.Layout != nil {
		go refreshSystem(p.conf.Layout)
	}
	go p.serveCaller(pid)
	p.reap(pid)
}

// fail sends the failed step and the error to the caller, and ends this process.
func (p *initProc) fail(step string, err error) {
	m := Message{Kind: KindFailed, Step: step, Error: err.Error()}
	var errno unix.Errno
	if errors.As(err, &errno) {
		m.Errno = int(errno)
	}
	_ = Send(controlFD, m) // the caller may be gone
	os.Exit(exitFailed)
}

// step adds the failed step to an error.
func step(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// runSteps runs functions until one fails.
func runSteps(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// setUp prepares this process, the command's root directory, streams, sockets and network. Then it
// confines this thread, unless Config.Unconfined is set.
func (p *initProc) setUp() error {
	p.noteOn("descriptors", "none but the three standard streams, relayed")
	p.noteOn("environment", "what was asked for, and private places for HOME, TMPDIR and caches")
	if err := runSteps(p.configure, p.prepareProcess, p.enterLevel, p.openStreams, p.makeSockets, p.passNetwork); err != nil {
		return err
	}
	if !p.conf.Unconfined {
		if err := p.confine(); err != nil {
			return err
		}
	}
	unix.Umask(p.conf.Umask)
	return nil
}

// configure reads the caller's configuration, and marks the inherited descriptors so that the
// command does not get them. If the caller has passed StderrFile, configure makes it this process's
// standard error.
func (p *initProc) configure() error {
	if err := CloseOnExec(controlFD); err != nil {
		return step(err, "mark inherited descriptors")
	}
	f := os.NewFile(configFD, "configuration")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&p.conf); err != nil {
		return step(err, "read the configuration")
	}
	if fd, ok := p.conf.Files[StderrFile]; ok {
		return step(unix.Dup3(fd, 2, 0), "take over standard error")
	}
	return nil
}

// handledSignals are the signals that would end or stop a Go program that does not handle them.
// The other signals that a program can handle do nothing to a Go program.
var handledSignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
	unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// oomScoreAdj makes the kernel's OOM killer count half of the machine's memory in addition to
// the process's own (proc_pid_oom_score_adj(5)).
const oomScoreAdj = 500

// prepareProcess sets up this process: its session, signals, umask and OOM score.
func (p *initProc) prepareProcess() error {
	// This process needs a session of its own, in which the command gets its terminal. At levels
	// other than Bubblewrap this process leads a session already, and the call fails.
	_, _ = unix.Setsid()
	// Signals from processes in the sandbox must not end this process. The caller's signals come
	// over the control socket.
	signal.Notify(make(chan os.Signal, 1), handledSignals...)
	for _, sig := range p.conf.Ignore {
		signal.Ignore(unix.Signal(sig)) // the command inherits this
	}
	unix.Umask(0o022)
	// If the machine runs out of memory, the kernel should kill the confined command
	// before rootsfs, which is needed to revoke access. An unprivileged write fails if a
	// privileged process has set a higher value.
	_ = PutFile(unix.AT_FDCWD, "/proc/self/oom_score_adj", strconv.Itoa(oomScoreAdj))
	return nil
}

// enterLevel prepares this process for the command's level of confinement. If the init has to build
// the root, enterLevel calls setUpNamespaces. If bwrap has built the root, enterLevel calls
// setUpBubblewrap. Otherwise it makes this process a subreaper.
func (p *initProc) enterLevel() error {
	switch {
	case p.conf.Layout != nil:
		return p.setUpNamespaces()
	case p.conf.Bwrap:
		return p.setUpBubblewrap()
	}
	return step(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become a subreaper")
}

// setUpNamespaces sets up the namespaces of this process, and builds the command's root directory.
func (p *initProc) setUpNamespaces() error {
	p.noteOn("namespaces", "user, mount, pid, ipc, uts")
	switch err := unix.Unshare(unix.CLONE_NEWCGROUP); {
	case err == nil:
		p.noteOn("cgroup namespace", "")
	case IsUnsupported(err), errors.Is(err, unix.ENOSPC) && p.conf.NoCgroups:
		p.layers = append(p.layers, Layer{"cgroup namespace", NotAvailable, err.Error()})
	default:
		return step(err, "make a cgroup namespace")
	}
	if err := unix.Sethostname([]byte(layout.HostName)); err != nil {
		return step(err, "set the host name")
	}
	if !p.conf.Net {
		if err := bringUpLoopback(); err != nil {
			return err
		}
	}
	p.noteNetwork()
	b, err := buildRoot(p.conf.Layout, p.conf.Files)
	if err != nil {
		return err
	}
	p.late = b.late
	p.noteOn("minimal root", "read-only; /proc of its own, six devices")
	p.permitUnixSockets(b.socketsReachable)
	return nil
}

// setUpBubblewrap reports the layers that bwrap has made. If bwrap was run by root, the private
// directories belong to root, so setUpBubblewrap gives them to the command's uid.
func (p *initProc) setUpBubblewrap() error {
	if p.conf.SetID {
		p.noteOn("namespaces", "mount, pid, ipc, uts")
		for _, dir := range []string{layout.PrivateDir, layout.Home, layout.Runtime, "/run"} {
			if dir == layout.Home && p.conf.KeptHome {
				continue
			}
			if err := os.Lchown(dir, int(p.conf.UID), int(p.conf.GID)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EROFS) {
				return step(err, "give %s to the command's uid", dir)
			}
		}
	} else {
		p.noteOn("namespaces", "user, mount, pid, ipc, uts")
	}
	p.noteNetwork()
	p.noteOn("minimal root", "read-only, by bwrap")
	return nil
}

// noteOn notes that a layer of the confinement is in force.
func (p *initProc) noteOn(name, detail string) {
	p.layers = append(p.layers, Layer{name, On, detail})
}

// awaitRelease tells the caller that the confinement is complete, and waits until the caller
// releases the command. If the caller is gone, awaitRelease ends this process.
func (p *initProc) awaitRelease() {
	if Send(controlFD, Message{Kind: KindReady}) != nil {
		os.Exit(exitFailed) // the caller is gone
	}
	// While the caller works, the kernel looks up the working directory, and may ask the tree's
	// server for it. An error is ignored here: it comes again when the command enters the directory.
	var st unix.Stat_t
	_ = unix.Stat(p.conf.Dir, &st)
	if m, _, err := Receive(controlFD); err != nil || m.Kind != KindRelease {
		os.Exit(exitFailed)
	}
}
