package janitor

import (
	"os"
	"syscall"
	"unsafe"
)

// The supervisor of a daemon is this program started again as `rootsfs supervisor
// POINT ID DEVICE HELPER`, with a descriptor of the daemon (pidfd_open(2)) as
// its standard input and the daemon's log as its standard error. It waits as a janitor
// does. The daemon ends it before it ends itself, so what it lives to see is a daemon
// that was killed: it then takes the dead mount away at once, while the kernel would go
// on answering from its caches.

// SupervisorName is the command's name.
const SupervisorName = "supervisor"

// NoHelper is the HELPER of one that may unmount by itself.
const NoHelper = "-"

// supervisorArgs is how many words its command line has.
const supervisorArgs = 6

// detached: the mount of a killed daemon was taken away.
var detached bool

// Detached reports whether this process, a supervisor, has taken the daemon's mount out
// of the tree. It was done before main, without what a user's other processes can use
// up: an epoll watch, a thread, or more than a descriptor or two.
func Detached() bool { return detached }

func init() {
	if len(os.Args) != supervisorArgs || os.Args[1] != SupervisorName {
		return
	}
	ignoreSignals()
	Wait()
	detached = detach(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
}

// ignoreSignals has the kernel discard what a service manager or a terminal sends to
// all processes of the daemon's.
func ignoreSignals() {
	ignore := [4]uint64{1} // struct sigaction of the kernel: SIG_IGN, no flags, no mask
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP,
	} {
		// It cannot fail: these are signals.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
	}
}

// detach ends the connection of a mount and takes the mount out of the tree, if it is
// still the one with this ID and device.
func detach(point, id, device, helper string) bool {
	abort(device)
	if !mounted(id, device) {
		return true // somebody was faster
	}
	const flags = 2 | 8 // MNT_DETACH, UMOUNT_NOFOLLOW
	p, err := syscall.BytePtrFromString(point)
	if err != nil {
		return false
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_UMOUNT2, uintptr(unsafe.Pointer(p)), flags, 0); errno == 0 {
		return true
	}
	if helper == NoHelper {
		return false
	}
	pid, err := syscall.ForkExec(helper, []string{"fusermount3", "-u", "-z", "--", point}, &syscall.ProcAttr{Dir: "/", Files: []uintptr{2, 2, 2}})
	if err != nil {
		return false
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return err == nil && status.ExitStatus() == 0 || !mounted(id, device)
		}
	}
}

// abort ends a FUSE connection, whoever may hold a descriptor of it still. It needs
// the fusectl file system, and only hastens what the kernel does.
func abort(device string) {
	minor := device
	for i := range len(device) {
		if device[i] == ':' {
			minor = device[i+1:]
		}
	}
	fd, err := syscall.Open("/sys/fs/fuse/connections/"+minor+"/abort", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = syscall.Write(fd, []byte("1"))
	_ = syscall.Close(fd)
}

// mounted reports whether the table of mounts has a line that begins with this ID and
// has this device, or cannot be read.
func mounted(id, device string) bool {
	fd, err := syscall.Open("/proc/self/mountinfo", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer syscall.Close(fd)
	var buf [4 << 10]byte
	var line [2][]byte // of a line: ID and device
	number := 0
	for {
		n, err := syscall.Read(fd, buf[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return true
		}
		if n == 0 {
			return false
		}
		for _, c := range buf[:n] {
			switch {
			case c == '\n':
				if string(line[0]) == id && string(line[1]) == device {
					return true
				}
				number, line = 0, [2][]byte{}
			case c == ' ':
				number++
			case number == 0:
				line[0] = append(line[0], c)
			case number == 2: // ID, parent, device
				line[1] = append(line[1], c)
			}
		}
	}
}
