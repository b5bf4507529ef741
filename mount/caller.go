package mount

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// callerOf returns the caller of a request, as the kernel names it.
func (m *Mount) callerOf(from *fuse.Caller) guard.Caller {
	pid := from.Pid
	c := guard.Caller{Subject: m.opt.Subject, Via: guard.ViaFUSE, UID: from.Uid, GID: from.Gid, PID: int32(pid),
		Groups: func() []uint32 { return groupsOf(pid) }}
	if m.opt.Owner != nil {
		c.FileOwner = &m.user
	}
	return c
}

// self returns the mount itself as a caller, for operations that no program has asked for.
func (m *Mount) self() guard.Caller {
	return guard.Caller{Subject: m.opt.Subject, Via: guard.ViaFUSE, PID: int32(os.Getpid())}
}

// groupsOf reads a process's supplementary groups, which a FUSE request does not
// carry. The pid is 0 for a process of another pid namespace, and groupsOf then returns nil.
func groupsOf(pid uint32) []uint32 {
	if pid == 0 {
		return nil
	}
	status, err := statusOf(pid)
	if err != nil {
		return nil
	}
	var out []uint32
	for f := range strings.FieldsSeq(status.field("Groups")) {
		if gid, err := strconv.ParseUint(f, 10, 32); err == nil {
			out = append(out, uint32(gid))
		}
	}
	return out
}

// isByPath reports whether the program seems to have named the file by a path; the kernel does
// not say. After a change by the host, such a program means the file to which the path leads
// now. A program that names a descriptor means the file that it has open.
func (r *request) isByPath(n *node) bool {
	if r.isTruncation && r.m.retries.hasOpened(r.from.Pid, n) || r.m.retries.hasDescriptor(r.from.Pid, n) {
		return false
	}
	call, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(r.from.Pid), 10) + "/syscall")
	if err != nil {
		return false
	}
	return namesPath(string(call))
}

// namesPath reports whether a system call names a file by a path. call is the text of
// /proc/PID/syscall (proc(5)): the number and the arguments, or another text where the thread
// is in no system call.
func namesPath(call string) bool {
	fields := strings.Fields(call)
	if len(fields) < 7 {
		return false
	}
	nr, err := strconv.Atoi(fields[0])
	if err != nil || nr < 0 {
		return false
	}
	arg := func(i int) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(fields[1+i], "0x"), 16, 64)
		return n
	}
	flags, ok := map[int]int{
		unix.SYS_FCHOWNAT: 4, unix.SYS_FCHMODAT2: 3, unix.SYS_LINKAT: 4, unix.SYS_STATX: 2,
		sysSetxattrat: 2, sysSetxattrat + 1: 2, sysSetxattrat + 2: 2, sysSetxattrat + 3: 2,
	}[nr]
	switch {
	case ok:
		return int32(arg(0)) == unix.AT_FDCWD || arg(flags)&unix.AT_EMPTY_PATH == 0 //nolint:gosec // a descriptor
	case nr == unix.SYS_UTIMENSAT:
		return arg(1) != 0
	}
	switch nr {
	case unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FTRUNCATE, unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR,
		unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR, unix.SYS_FSTAT, unix.SYS_FSTATFS:
		return false
	}
	return true
}

// sysSetxattrat is the number of setxattrat(2) on every architecture. The three numbers after it
// are those of getxattrat, listxattrat and removexattrat (Linux 6.13).
const sysSetxattrat = 463

// A request implements context.Context for its operation. The kernel sends an INTERRUPT
// for every signal that reaches the waiting thread (fs/fuse/dev.c, request_wait_answer), even
// for a signal that the program handles. An answer of EINTR goes to the program unchanged: FUSE
// has no restart. On a local file system rename(2), mkdir(2), stat(2) and reads of files never
// fail with EINTR, so programs do not expect this error. Signals are common: Go's runtime sends
// itself a signal every few milliseconds. So an interrupted operation continues, unless its
// caller has been killed. A killed caller cannot end before its request is answered, so the
// request must not wait for a source that hangs.

// deathPoll is the interval at which awaitDeath checks whether a caller that got a signal is
// being killed. The kernel sends only one INTERRUPT for a request, and a later signal may kill
// the caller.
const deathPoll = 50 * time.Millisecond

// Done returns a channel that is closed when the calling thread is being killed, or when the
// request must stop waiting (see stopWaitingOutside). An INTERRUPT alone does not close the
// channel. Done starts a goroutine that runs at most until the request ends, so only operations
// that wait call Done.
func (r *request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.death == nil {
		r.death = make(chan struct{})
		if r.from.Pid != 0 && !r.ended { // 0: a caller of another pid namespace
			if r.finished == nil {
				r.finished = make(chan struct{})
			}
			go r.awaitDeath(r.finished)
		}
	}
	return r.death
}

// Err returns context.Canceled after the channel of Done was closed.
func (r *request) Err() error {
	r.mu.Lock()
	death := r.death
	r.mu.Unlock()
	select {
	case <-death:
		return context.Canceled
	default:
		return nil
	}
}

// Deadline implements context.Context. A request has no deadline.
func (r *request) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context. A request has no values.
func (r *request) Value(any) any { return nil }

// dieLocked closes death. The caller holds mu.
func (r *request) dieLocked() {
	if r.death == nil {
		r.death = make(chan struct{})
	}
	select {
	case <-r.death:
	default:
		close(r.death)
	}
}

// awaitDeath waits for an INTERRUPT, and then until the calling thread is being killed. Then it
// closes death. If finished is closed before, awaitDeath returns at once.
func (r *request) awaitDeath(finished <-chan struct{}) {
	select {
	case <-finished:
		return
	case <-r.cancel:
	}
	for {
		if isDying(r.from.Pid) {
			r.mu.Lock()
			r.dieLocked()
			r.mu.Unlock()
			return
		}
		select {
		case <-finished:
			return
		case <-time.After(deathPoll):
		}
	}
}

// coreSignals end a process with a core dump, unless it handles them.
const coreSignals = 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGABRT-1) | 1<<(unix.SIGBUS-1) |
	1<<(unix.SIGFPE-1) | 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGSYS-1) | 1<<(unix.SIGXCPU-1) | 1<<(unix.SIGXFSZ-1)

// isDying reports whether a thread has ended or is being killed. The kernel turns a fatal
// signal into a pending SIGKILL of each thread of the process (kernel/signal.c,
// complete_signal), unless the signal dumps a core.
func isDying(tid uint32) bool {
	status, err := statusOf(tid)
	if err != nil {
		// With the mount option hidepid of /proc, a living thread has no file there either.
		return os.IsNotExist(err) && unix.Kill(int(tid), 0) == unix.ESRCH
	}
	set := func(name string) uint64 {
		n, err := strconv.ParseUint(status.field(name), 16, 64)
		if err != nil {
			return 0 // an unknown format: assume that no signal is pending
		}
		return n
	}
	pending := set("SigPnd") | set("ShdPnd")
	return pending&(1<<(unix.SIGKILL-1)) != 0 ||
		pending&coreSignals&^set("SigCgt")&^set("SigIgn")&^set("SigBlk") != 0
}

// procStatus is the status file of a process or a thread (proc_pid_status(5)).
type procStatus []byte

func statusOf(id uint32) (procStatus, error) {
	return os.ReadFile("/proc/" + strconv.FormatUint(uint64(id), 10) + "/status")
}

// field returns the value of a field, or "" if there is no such field.
func (s procStatus) field(name string) string {
	_, rest, _ := bytes.Cut(s, []byte("\n"+name+":"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(bytes.TrimSpace(line))
}
