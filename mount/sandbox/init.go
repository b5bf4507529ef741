package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
)

// The init is this program started again: a Go process cannot fork, because only
// one of its threads would be in the child. initVar says that it is one. It gets its
// end of a socket on controlFD and its configuration in a memory file on configFD,
// and after those what the caller had to open for it.

// initVar marks the init. It never reaches a command.
const initVar = "ROOTSFS_SANDBOX_INIT"

const (
	controlFD = 3
	configFD  = 4
	firstFD   = 5

	// self is this program, not by its name, which may by now be another's.
	self = "/proc/self/exe"
)

// exitStage is the exit code of an init that failed; nobody but us sees it.
const exitStage = 125

// initEnv returns the environment of an init. It lives for long and makes little: no
// garbage to collect at its start, and two threads' work at most. With containermaxprocs
// the runtime would keep files of its control group open, which are of the host's mounts.
func initEnv() []string {
	env := []string{initVar + "=1", "GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=2", "GODEBUG=containermaxprocs=0"}
	if race, ok := os.LookupEnv("GORACE"); ok {
		env = append(env, "GORACE="+race) // or a binary of the race detector waits a second at its end
	}
	return env
}

func isInit() bool {
	_, ok := os.LookupEnv(initVar)
	return ok
}

// An init's main stays on the main thread: the one that carries the root of the mount
// namespace and the bounding set, and that is the parent of the command.
func init() {
	if isInit() {
		runtime.LockOSThread()
	}
}

// Main serves as the init of a confined command and does not return, if this process was
// started as one; otherwise it does nothing. The program's main calls it first, and so
// does the TestMain of tests that call Start.
func Main() {
	if !isInit() {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstat(controlFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		fmt.Fprintf(os.Stderr, "%s is set, but not by rootsfs: unset it\n", initVar)
		os.Exit(exitStage)
	}
	runInit()
}

// Refuse ends this process, if it was started as the init of a confined command, and has
// Start return an error that says why. Otherwise it does nothing.
func Refuse(why error) {
	if isInit() {
		(&initProc{}).fail(stepConfine, why)
	}
}

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
}

func runInit() {
	p := &initProc{spare: sparePids}
	if err := p.setUp(); err != nil {
		p.fail(stepConfine, err)
	}
	if p.conf.Probe {
		_ = send(controlFD, message{Kind: kindStarted, Layers: p.layers, Notes: p.notes})
		_ = send(controlFD, message{Kind: kindExited}) // or this would be an init that failed
		os.Exit(0)
	}
	p.hold()
	pid, step, err := p.command()
	if err != nil {
		p.fail(step, err)
	}
	if err := send(controlFD, message{Kind: kindStarted, Layers: p.layers, Notes: p.notes}); err != nil {
		os.Exit(exitStage) // the caller is gone
	}
	if p.conf.Layout != nil {
		go refreshSystem(p.conf.Layout)
	}
	go p.listen(pid)
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
func (p *initProc) setUp() error {
	if err := p.configure(); err != nil {
		return err
	}
	p.prepareProcess()
	if err := p.enterLevel(); err != nil {
		return err
	}
	if err := p.streams(); err != nil {
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
	unix.Umask(p.conf.Umask)
	return nil
}

// prepareProcess makes this process what it is while it builds and waits.
func (p *initProc) prepareProcess() {
	// Signals from inside must not end this process, and those it is sent
	// from outside come over the control socket.
	signal.Notify(make(chan os.Signal, 1), deadly...)
	unix.Umask(0o022)
	// If the machine runs out of memory, the kernel should kill the confined command
	// before rootsfs, which can revoke. The write fails if the value is higher already.
	_ = putFile(unix.AT_FDCWD, "/proc/self/oom_score_adj", strconv.Itoa(oomScoreAdj))
}

// oomScoreAdj makes a process with little memory as likely to be ended for want of
// memory as one that has half of the machine's (proc_pid_oom_score_adj(5)).
const oomScoreAdj = 500

// enterLevel makes the command's surroundings.
func (p *initProc) enterLevel() error {
	switch p.conf.Level {
	case Namespaces:
		return p.namespaces()
	case Bubblewrap:
		return p.bubblewrap()
	}
	return step(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become a subreaper")
}

// namespaces finishes the namespaces this process is in, and builds the root.
func (p *initProc) namespaces() error {
	p.on("namespaces", "user, mount, pid, ipc, uts")
	switch err := unix.Unshare(unix.CLONE_NEWCGROUP); {
	case err == nil:
		p.on("cgroup namespace", "")
	case lacksByKind(err), errors.Is(err, unix.ENOSPC) && p.conf.NoCgroups:
		p.layers = append(p.layers, Layer{"cgroup namespace", NotAvailable, err.Error()})
	default:
		return step(err, "make a cgroup namespace")
	}
	if err := unix.Sethostname([]byte(hostName)); err != nil {
		return step(err, "set the host name")
	}
	if p.conf.Net {
		p.layers = append(p.layers, Layer{"network namespace", Off, "the host's network"})
	} else if err := loopback(); err != nil {
		return err
	} else {
		p.on("network namespace", "a loopback interface only")
	}
	b, err := buildRoot(p.conf.Layout, p.conf.Files)
	if err != nil {
		return err
	}
	p.notes, p.kept = b.notes, b.kept
	p.on("minimal root", "read-only; /proc of its own, six devices")
	p.unixSockets(b.unscreened)
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
	case p.conf.Net && !landlock.Scoped():
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
	return nil
}

func (p *initProc) on(name, detail string) {
	p.layers = append(p.layers, Layer{name, On, detail})
}

// configure reads what the caller wants, and keeps what was inherited from the command.
func (p *initProc) configure() error {
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return step(err, "mark inherited descriptors")
	}
	f := os.NewFile(configFD, "configuration")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&p.conf); err != nil {
		return step(err, "read the configuration")
	}
	if fd, ok := p.conf.Files[stderrFile]; ok {
		return step(unix.Dup3(fd, 2, 0), "take over standard error")
	}
	return nil
}

// hold waits for the word that the command may be started.
func (p *initProc) hold() {
	if send(controlFD, message{Kind: kindReady}) != nil {
		os.Exit(exitStage) // the caller is gone
	}
	// Meanwhile the kernel may ask the tree's server for the way to where the
	// command works. What is wrong with it shows when the command goes there.
	var st unix.Stat_t
	_ = unix.Stat(p.conf.Dir, &st)
	if m, _, err := receive(controlFD); err != nil || m.Kind != kindRelease {
		os.Exit(exitStage)
	}
}
