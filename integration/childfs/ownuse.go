package childfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/incoming"
)

// allowed lists the functions that may use the top directory of a mount of this process, with the
// reason. They are code of the product, so a child process cannot run them instead.
var allowed = map[string]string{
	"transport.(*Conn).AnswerPoll": "it opens a file by a plain system call, during which the runtime has the processor back, and the mount answers POLL for the file",
}

// ownUses are the requests that this process made of its own mounts, each once.
var ownUses struct {
	mu   sync.Mutex // guards the field below
	list []string
}

// Main runs a test binary's tests and returns the exit status, for TestMain. The status is not 0
// if this process used a mount that it serves. In the child process Main does not return.
func Main(m interface{ Run() int }) int {
	Serve()
	status := m.Run()
	if list := OwnUses(); len(list) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests used their own process's mount, in %d ways: use integration/childfs instead\n", len(list))
		status = max(status, 1)
	}
	return status
}

// Serve does nothing in the process of the tests. In the child process it runs the functions
// that the tests call, and does not return. A TestMain that prepares something calls Serve first.
func Serve() {
	if os.Getenv(childEnv) != "" {
		serveChild()
	}
}

// OwnUses returns the requests that this process made of its own mounts, each with the positions in
// the code that may have made the request, if they are known.
func OwnUses() []string {
	ownUses.mu.Lock()
	defer ownUses.mu.Unlock()
	return slices.Clone(ownUses.list)
}

func init() { incoming.Observe = observe }

// observe adds a request to ownUses if a thread of this process made the request, unless allowed
// permits it. It ignores requests without a process id or an opcode: the kernel's own, and those of
// tests that call the mount without the kernel.
func observe(h *fuse.InHeader) {
	pid := int(h.Pid)
	if pid == 0 || h.Opcode == 0 || !isOwn(pid) {
		return
	}
	callers := "a call that keeps a processor"
	switch nr, err := callOf(pid); {
	case err != nil && h.NodeId == fuse.FUSE_ROOT_ID:
		return // the process is not dumpable, so the call is unknown; one of allowed may have made the request
	case err == nil && !keepsProcessor(nr):
		callers = callersOf(h)
	}
	if callers == "" {
		return
	}
	use := opName(h.Opcode) + " by " + callers
	ownUses.mu.Lock()
	defer ownUses.mu.Unlock()
	if slices.Contains(ownUses.list, use) {
		return
	}
	ownUses.list = append(ownUses.list, use)
	fmt.Fprintf(os.Stderr, "the process uses its own mount: %s\n", use)
}

// isOwn reports whether a thread is one of this process. A child that has not executed its
// program yet shares this memory, but is not this process: integration/deps finds code that
// starts such a child in a mount (TestOwnMounts). Asking the kernel about such a child can wait
// for the mount.
func isOwn(tid int) bool { return unix.Tgkill(os.Getpid(), tid, 0) == nil }

// keepsProcessor reports whether a thread keeps one of the processors of Go's runtime while it waits.
// nr is the result of callOf for the thread. The thread keeps a processor if it polls a file in
// epoll_ctl, or reads a page of a mapping (nr is -1). The runtime then cannot stop all threads to
// look at their stacks.
func keepsProcessor(nr int) bool { return nr < 0 || nr == unix.SYS_EPOLL_CTL }

// sleepTries is how many times callOf checks whether a thread sleeps. It waits a millisecond after
// each check.
const sleepTries = 5000

// callOf returns the number of the system call that a thread of this process waits in. It returns
// -1 if the thread waits for something else, still runs after sleepTries, or has ended. A thread's
// request can arrive before the thread sleeps, so callOf waits until the thread sleeps. It returns
// an error if the process is not dumpable and does not run as root (proc(5)).
func callOf(tid int) (int, error) {
	for range sleepTries {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
		if errors.Is(err, fs.ErrPermission) {
			return 0, err
		}
		if strings.HasPrefix(string(b), "running") {
			time.Sleep(time.Millisecond)
			continue
		}
		nr, _, _ := strings.Cut(string(b), " ")
		if n, err := strconv.Atoi(nr); err == nil {
			return n, nil
		}
		break
	}
	return -1, nil
}

// callersOf returns the positions in the code that may have made the request h: where goroutines
// wait in a system call, without goroutines that wait for requests or for a process. It returns ""
// if a function in allowed may have made h.
func callersOf(h *fuse.InHeader) string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var callers []string
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		if !strings.Contains(head, "[syscall") || isWaiting(frames) {
			continue
		}
		for name := range allowed {
			if h.NodeId == fuse.FUSE_ROOT_ID && strings.Contains(frames, name) {
				return ""
			}
		}
		if c := ownPlaces(frames); c != "" {
			callers = append(callers, c)
		}
	}
	if len(callers) == 0 {
		return "a function that answers requests, or waits no more"
	}
	slices.Sort(callers)
	return strings.Join(callers, " or ")
}

// isWaiting reports whether a stack is of a function that waits for requests or for a process.
func isWaiting(frames string) bool {
	for _, name := range []string{"transport.(*Conn).readRequest(", "transport.(*ring).enter(", "os.(*Process).Wait("} {
		if strings.Contains(frames, name) {
			return true
		}
	}
	return false
}

// ownPlaces returns the positions (file and line) in a stack that are in this module's code, at
// most three, the innermost first.
func ownPlaces(frames string) string {
	const module = "github.com/rootsfs/rootsfs/"
	var places []string
	isOwn := false // whether the function in the line before is the module's
	for line := range strings.Lines(frames) {
		at, isPlace := strings.CutPrefix(line, "\t")
		if !isPlace {
			isOwn = strings.HasPrefix(strings.TrimPrefix(line, "created by "), module)
		} else if isOwn && len(places) < 3 {
			at, _, _ = strings.Cut(strings.TrimSpace(at), " ")
			places = append(places, filepath.Base(filepath.Dir(at))+"/"+filepath.Base(at))
		}
	}
	return strings.Join(places, " < ")
}

// opNames are the names of FUSE's requests, by opcode.
var opNames = map[uint32]string{
	1: "LOOKUP", 3: "GETATTR", 4: "SETATTR", 5: "READLINK", 6: "SYMLINK", 8: "MKNOD", 9: "MKDIR", 10: "UNLINK", 11: "RMDIR",
	12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE", 20: "FSYNC", 21: "SETXATTR",
	22: "GETXATTR", 23: "LISTXATTR", 24: "REMOVEXATTR", 25: "FLUSH", 27: "OPENDIR", 28: "READDIR", 30: "FSYNCDIR", 31: "GETLK",
	32: "SETLK", 33: "SETLKW", 34: "ACCESS", 35: "CREATE", 39: "IOCTL", 40: "POLL", 43: "FALLOCATE", 44: "READDIRPLUS",
	45: "RENAME2", 46: "LSEEK", 47: "COPY_FILE_RANGE", 50: "SYNCFS", 51: "TMPFILE", 52: "STATX",
}

func opName(code uint32) string {
	if name := opNames[code]; name != "" {
		return name
	}
	return fmt.Sprintf("request %d", code)
}
