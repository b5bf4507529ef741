package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/seccomp"
)

// landlockName is the name of Landlock's layer.
const landlockName = "landlock"

// sparePids is what the init may use beyond the command's limit: the runtime
// aborts when it cannot have a thread.
const sparePids = 64

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
	if len(p.conf.Sockets) > 0 {
		p.conf.Rules.Reach = socketDir
	}
	treeFD := -1
	if p.kept != nil {
		treeFD = p.kept.tree
	}
	what, err := landlock.Restrict(p.conf.Rules, treeFD)
	switch {
	case err != nil:
		return err
	case what == "":
		p.layers = append(p.layers, Layer{landlockName, NotAvailable, "the kernel has no Landlock, or it is not enabled"})
	default:
		p.on(landlockName, what)
	}
	if err := p.filter(); err != nil {
		return err
	}
	calls := "system calls that reach out of a sandbox; other architectures"
	if p.conf.Filter.NoSetID {
		calls += "; set-id files"
	}
	p.on("seccomp", calls)
	return nil
}

// userLimits are of what the kernel counts by user, so that a command could leave the
// user's other programs without, and of open files, which take the machine's memory.
var userLimits = []struct {
	resource int
	what     string
	most     uint64
}{
	{unix.RLIMIT_SIGPENDING, "queued signals", 4096},
	{unix.RLIMIT_MSGQUEUE, "bytes of message queues", 200 << 10},
	{unix.RLIMIT_MEMLOCK, "locked memory", 8 << 20},
	{unix.RLIMIT_NOFILE, "open files", 16384}, // of each process
}

// limitTo lowers a limit of this process, and of what it starts.
func limitTo(resource int, most uint64) error {
	var had unix.Rlimit
	if err := unix.Getrlimit(resource, &had); err != nil {
		return err
	}
	most = min(most, had.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: min(most, had.Cur), Max: most})
}

// filter installs the system call filter, and has the init make the calls of bind and
// listen where the command has the host's network.
func (p *initProc) filter() error {
	const name = "listening"
	p.conf.Filter.Binder = p.conf.Net
	fd, err := seccomp.Install(p.conf.Filter)
	switch {
	case err == nil && !p.conf.Net:
		return nil
	case err == nil:
		what := "refused"
		if len(p.conf.Listen) > 0 {
			what = fmt.Sprintf("on the ports %v only", p.conf.Listen)
		}
		p.on(name, what)
		go seccomp.Serve(fd, p.conf.Listen)
		return nil
	// One who confines us has such a filter already, or the kernel has none.
	case p.conf.Net && len(p.conf.Listen) == 0 && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL)):
		p.conf.Filter.Binder, p.conf.Filter.NoBind = false, true
		_, err = seccomp.Install(p.conf.Filter)
		p.on(name, "refused, and so is every address of a client's own choice")
	}
	return err
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
	for _, l := range userLimits {
		if err := limitTo(l.resource, l.most); err != nil {
			return step(err, "limit %s", l.what)
		}
	}
	// Not 0: that would not stop a core_pattern with a pipe, which runs a
	// program of the host's as root on what crashed here; 1 does (core(5)).
	switch err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); {
	case errors.Is(err, unix.EPERM):
		p.on("limits", "processes and threads, open files, queued signals, message queues, locked memory")
		p.layers = append(p.layers, Layer{coreName, NotAvailable, "the hard limit of core files is 0, which cannot be raised to 1 here"})
	case err != nil:
		return step(err, "forbid core dumps")
	default:
		p.on("limits", "processes and threads, open files, queued signals, message queues, locked memory, core dumps")
	}
	return nil
}
