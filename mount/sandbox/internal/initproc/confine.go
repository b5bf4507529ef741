package initproc

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/seccomp"
)

// The names of layers that the caller looks for.
const (
	LandlockLayer = "landlock"
	CoreLayer     = "core dumps" // reported only if core dumps are not forbidden
)

// SparePids is how many threads the init may have beyond the command's limit: the Go
// runtime aborts when it cannot create one.
const SparePids = 64

// confine drops the capabilities of this thread and confines it by resource limits, no_new_privs,
// Landlock and a system call filter. The command is started from this thread and inherits the
// confinement. The order matters: no step may drop a right that a later step needs.
//
// The init's other threads keep capabilities over the namespaces: confining them would take
// longer than all the rest (see package landlock). The command cannot reach these threads. It may
// not trace the init, because the init is not dumpable. It cannot stop the init by a signal: as pid
// 1 the init gets from the command only signals that it handles, and without a pid namespace the
// filter of package seccomp refuses the call. And the command holds no descriptor of the init.
func (p *initProc) confine() error {
	if err := p.setLimits(); err != nil {
		return err
	}
	if pid := os.Getpid(); pid != 1 {
		p.conf.Filter.Init = uint32(pid)
	}
	note, err := dropCaps(&p.conf)
	if err != nil {
		return err
	}
	p.noteOn("capabilities", "none in any set"+note)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step(err, "set no_new_privs")
	}
	p.noteOn("no_new_privs", "set-uid programs gain nothing")
	// The death signal and the dumpable attribute are set after dropCaps, because the change of
	// uid in dropCaps resets both. Without a pid namespace the init gets no death signal: it must
	// live on to end the command, and learns of its caller's end by the control socket.
	if os.Getpid() == 1 {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return step(err, "tie this process to its parent")
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return step(err, "close /proc/1")
	}
	if len(p.conf.Sockets) > 0 {
		p.conf.Rules.Reach = []string{layout.SocketDir}
	}
	treeFD := -1
	if p.late != nil {
		treeFD = p.late.tree
	}
	what, missing, err := landlock.Restrict(p.conf.Rules, treeFD)
	switch {
	case err != nil:
		return err
	case what == "":
		p.layers = append(p.layers, Layer{LandlockLayer, NotAvailable, missing})
	default:
		p.noteOn(LandlockLayer, what)
	}
	// Tracing is permitted if it can reach only the command's own processes. Landlock keeps
	// tracers inside its domain. In a pid namespace the only other process is this one, which is
	// not dumpable.
	p.conf.Filter.Trace = what != "" || os.Getpid() == 1
	if err := p.installFilter(); err != nil {
		return err
	}
	calls := "system calls that reach out of a sandbox; other architectures"
	if !p.conf.Filter.Trace {
		calls += "; tracing"
	}
	if p.conf.Filter.NoSetID {
		calls += "; set-id files"
	}
	p.noteOn("seccomp", calls)
	return nil
}

// userLimits has limits for resources that the kernel counts by user: without a limit, a command
// could use up such a resource, and the user's other programs would get none of it. Open files are
// limited because they take the machine's memory.
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

// limitTo lowers a limit of this process, and of its children, to most if it is higher.
func limitTo(resource int, most uint64) error {
	var had unix.Rlimit
	if err := unix.Getrlimit(resource, &had); err != nil {
		return err
	}
	most = min(most, had.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: min(most, had.Cur), Max: most})
}

// installFilter installs the system call filter. If the command has the host's network, the init
// makes the command's calls of bind and listen. If the init cannot do this and no ports are
// granted, the filter refuses these calls.
func (p *initProc) installFilter() error {
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
		p.noteOn(name, what)
		go seccomp.Serve(fd, p.conf.Listen)
		return nil
	// EBUSY: a program that confines rootsfs has installed a filter with a listener already.
	// EINVAL: the kernel does not support filters with a listener.
	case p.conf.Net && len(p.conf.Listen) == 0 && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL)):
		p.conf.Filter.Binder, p.conf.Filter.NoBind = false, true
		_, err = seccomp.Install(p.conf.Filter)
		p.noteOn(name, "refused, and so is every address of a client's own choice")
	}
	return err
}

// setLimits bounds the resources that the command can use up. The init needs threads of its
// own even when the command has as many as it may have. So the hard limit of processes is higher
// than the soft limit, by SparePids, and the init raises its own soft limit to the hard limit after
// it has started the command. The hard limits that rootsfs was started with cannot be raised here.
func (p *initProc) setLimits() error {
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &had); err != nil {
		return step(err, "ask for the limit of processes")
	}
	most := min(uint64(p.conf.Pids)+SparePids, had.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most - min(SparePids, most), Max: most}); err != nil {
		return step(err, "limit the number of processes")
	}
	for _, l := range userLimits {
		if err := limitTo(l.resource, l.most); err != nil {
			return step(err, "limit %s", l.what)
		}
	}
	// A limit of 1 also stops a core_pattern with a pipe, which runs a program of the host as
	// root after a crash. A limit of 0 does not (core(5)).
	limited := "processes and threads, open files, queued signals, message queues, locked memory"
	switch err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); {
	case errors.Is(err, unix.EPERM):
		p.layers = append(p.layers, Layer{CoreLayer, NotAvailable, "the hard limit of core files is 0, which cannot be raised to 1 here"})
	case err != nil:
		return step(err, "forbid core dumps")
	default:
		limited += ", core dumps"
	}
	p.noteOn("limits", limited)
	return nil
}

// secureBits takes all privileges from uid 0, for good. Inside there is no uid 0, so these bits
// are only an additional protection.
const secureBits = 1<<0 | 1<<1 | // SECBIT_NOROOT, _LOCKED
	1<<2 | 1<<3 | // SECBIT_NO_SETUID_FIXUP, _LOCKED
	1<<5 | // SECBIT_KEEP_CAPS_LOCKED
	1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE, _LOCKED

// dropCaps drops all capabilities of the calling thread, and so of the processes that the thread
// starts. If c.SetID is set, dropCaps changes the uid and gid first, because this needs
// capabilities. Only a thread with CAP_SETPCAP can empty the bounding set; without CAP_SETPCAP, the
// returned note says that the bounding set was not emptied.
func dropCaps(c *Config) (note string, err error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return "", step(err, "read the capabilities")
	}
	if data[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		if err := dropBounding(); err != nil {
			return "", err
		}
	} else {
		note = "; the bounding set could not be emptied, and gives nobody anything under no_new_privs"
	}
	if c.SetID {
		// These calls change all threads of this process: no other thread has to run as root either.
		if err := syscall.Setgroups(nil); err != nil {
			return "", step(err, "drop the supplementary groups")
		}
		if err := syscall.Setresgid(int(c.GID), int(c.GID), int(c.GID)); err != nil {
			return "", step(err, "change to gid %d", c.GID)
		}
		if err := syscall.Setresuid(int(c.UID), int(c.UID), int(c.UID)); err != nil {
			return "", step(err, "change to uid %d", c.UID)
		}
	}
	// The kernel also removes from the ambient set every capability that is not permitted any more.
	data = [2]unix.CapUserData{}
	return note, step(unix.Capset(&hdr, &data[0]), "drop all capabilities")
}

// dropBounding empties the bounding set and locks the secure bits.
func dropBounding() error {
	for c := uintptr(0); ; c++ {
		// EINVAL: the first capability that the kernel does not know. The kernel may know
		// capabilities above unix.CAP_LAST_CAP.
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break
		}
		if err != nil {
			return step(err, "drop capability %d from the bounding set", c)
		}
	}
	return step(unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0), "lock the secure bits")
}
