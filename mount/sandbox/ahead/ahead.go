// Package ahead starts the init of a confined command before anything is known of
// the command: while the program that will ask for it is still being initialised.
// What it takes to make namespaces and to start a Go program in them is a third of
// what a confined start adds (measured), and needs nothing of the rest.
//
// # Promises
//
// The init that Begin starts does nothing until package sandbox, which takes it
// with Take, tells it what to do; it ends when the other end of its socket is
// closed, so with this process at the latest. It has none of this process's
// descriptors, and the same namespaces, uid and capabilities as one that is started
// later (Attr and Env say so for both). An init that could not be started, or is of
// another kind than the one that is needed, is no error: sandbox starts its own.
//
// The package imports little, so that whoever imports little as well can call Begin
// in a package initialisation that comes early.
//
// # Not promised
//
// That it pays: a program that does not come to start a command has made namespaces
// for nothing. Only root's inits can be started before the tree is mounted.
package ahead

import (
	"os"
	"runtime"
	"sync"
	"syscall"
)

// The stages of an init, by the value of StageVar; see package sandbox.
const (
	StageVar   = "ROOTSFS_SANDBOX_STAGE"
	StageAhead = "ahead" // waits for its configuration on the control socket

	// Program is this very one. Not by its name, which may by now be another's.
	Program = "/proc/self/exe"
)

// Args is the command line of an init.
var Args = []string{"rootsfs: init"}

// Env is the environment of an init. It lives for long and makes little: no
// garbage to collect at its start, and two threads' work at most (builder.beside). The
// runtime would keep files of its control group open, of the host's mounts (again.go
// of package sandbox says what that does).
func Env(stage string) []string {
	return append([]string{StageVar + "=" + stage, "GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=2", "GODEBUG=containermaxprocs=0"}, raceEnv...)
}

// raceEnv is empty but in a binary of the race detector (race.go).
var raceEnv []string

// Kind is what an init is started with.
type Kind struct {
	Net      bool   // in the host's network namespace
	UID, GID uint32 // of the command
}

// The capabilities below are those of linux/capability.h.
const (
	capSetgid      = 6
	capSetuid      = 7
	capSetpcap     = 8
	capNetAdmin    = 12
	capSysPtrace   = 19
	capSysAdmin    = 21
	capSysResource = 24
)

// buildCaps are what building the root takes, all of them over the init's own
// namespaces only: mounts and the host name, the loopback interface, the
// limits of nested namespaces, the dropping of capabilities, and the sockets of processes
// that are not dumpable (listen.go of package sandbox).
var buildCaps = []uintptr{capSysAdmin, capNetAdmin, capSysResource, capSysPtrace, capSetpcap}

// Attr is how an init of level Namespaces is started: in new namespaces, with the
// capabilities over them that it needs to build the root, and in a session of its
// own, so that the command has no terminal but ours.
func (k Kind) Attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		// The command's own uid, and nobody else's: not even a uid 0 that owns the
		// namespace.
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(k.UID), HostID: int(k.UID), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(k.GID), HostID: int(k.GID), Size: 1}},
		AmbientCaps: buildCaps,
	}
	if !k.Net {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if os.Geteuid() == 0 {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: k.UID, Gid: k.GID}
	}
	return attr
}

// Init is one that was started.
type Init struct {
	Process *os.Process
	Control *os.File      // the caller's end of the control socket
	Dead    chan struct{} // closed when the init has ended and was waited for
	State   *os.ProcessState

	kind   Kind
	launch *launch // which it reads until it executes its program
}

var (
	mu    sync.Mutex // guards begun
	begun chan *Init // nil: there is none; closed without one: it could not be started
)

// Begin starts an init, beside the caller. A second one is not started.
func Begin(k Kind) {
	mu.Lock()
	defer mu.Unlock()
	if begun != nil || os.Geteuid() != 0 {
		return
	}
	found := make(chan *Init, 1)
	begun = found
	go func() {
		// The kernel sends the init's death signal when this thread ends, not
		// the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		i := start(k)
		if i != nil {
			found <- i
		}
		close(found)
		if i != nil {
			i.State, _ = i.Process.Wait()
			close(i.Dead)
		}
	}()
}

// Take returns the init that Begin has started, for the caller alone; nil if there
// is none of that kind. One of another kind is ended.
func Take(k Kind) *Init {
	i := take()
	if i != nil && i.kind != k {
		i.Drop()
		return nil
	}
	return i
}

// Forget ends the init that Begin has started, if there is one.
func Forget() {
	if i := take(); i != nil {
		i.Drop()
	}
}

func take() *Init {
	mu.Lock()
	defer mu.Unlock()
	if begun == nil {
		return nil
	}
	i := <-begun
	begun = nil
	return i
}

// Drop ends an init that is not needed.
func (i *Init) Drop() {
	_ = i.Control.Close()
	_ = i.Process.Kill() // it may have ended
	<-i.Dead
}

const (
	prSetTimerslack = 29 // PR_SET_TIMERSLACK of prctl(2)
	prGetTimerslack = 30

	// initSlack is the init's timer slack, in nanoseconds.
	initSlack = 1e6

	// MonitorSlack is that of this process's own monitor, and of the threads that it
	// starts, where somebody has set it so. Nothing else comes to just that.
	MonitorSlack = 300_001
)

// Slack is the timer slack that this process began with, in nanoseconds.
var Slack = threadSlack()

// Unhurried starts an init with a timer slack that only it has, and its command
// has not (see config.Slack of package sandbox). While a Go program does anything at
// all, its monitor (sysmon) wakes up every 20 microseconds, and takes the processor
// away from whoever is in a system call just then, which costs two more switches. An
// init makes a few hundred system calls one after the other: with the usual slack of
// 50 microseconds a twentieth of the processor time of a start went into that
// (measured). The caller holds on to its thread.
func Unhurried(start func()) {
	was := threadSlack()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerslack, initSlack, 0); errno == 0 {
		defer func() { _, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerslack, was, 0) }()
	}
	start()
}

// TimerSlack is the calling thread's, in nanoseconds, but for threads that the monitor
// has started, which have the process's. 0, for the kernel's default, if it cannot be
// read.
func TimerSlack() uintptr {
	if ns := threadSlack(); ns != MonitorSlack {
		return ns
	}
	return Slack
}

func threadSlack() uintptr {
	// The result may be more than an int32.
	ns, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prGetTimerslack, 0, 0)
	if errno != 0 {
		return 0
	}
	return ns
}
