package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// A control group bounds the memory of a command and all its descendants together. The group is
// a directory made inside the caller's group. In version 2 it may also be beside the caller's
// group, because a group that has processes cannot have groups below it with controllers. Root can
// usually make a group, and an ordinary user if systemd has delegated the groups. Version 1 is
// used on machines that mount the memory controller as version 1.

// memGroup is a control group with a limit.
type memGroup struct {
	dir string   // the group's directory
	fd  *os.File // version 2: dir, opened for clone3; version 1: nil
}

// ownProc is the directory of /proc that describes this process; tests set another directory.
var ownProc = "/proc/self"

// MemoryLimit is the name of the layer for Options.MemoryMax (Report.Layers).
const MemoryLimit = "memory limit"

// groupFiles are the files that limit the memory of a group, and the values to write. "" stands
// for the limit. The key is true for version 2. A kernel without accounting of swap lacks the last
// file of each list.
var groupFiles = map[bool][]struct{ name, value string }{
	true:  {{"memory.max", ""}, {"memory.swap.max", "0"}},
	false: {{"memory.limit_in_bytes", ""}, {"memory.memsw.limit_in_bytes", ""}},
}

// newMemGroup makes a group with a name and a limit in bytes.
func newMemGroup(name string, limit int64) (*memGroup, error) {
	err := errors.New("no memory controller is mounted")
	for _, parent := range groupParents(ownProc) {
		var g *memGroup
		if g, err = parent.create(name, limit); err == nil {
			return g, nil
		}
	}
	return nil, err
}

// groupParent is a directory in which a group could be made.
type groupParent struct {
	dir  string
	isV2 bool
}

// groupParents returns the directories in which a group could be made for the process that a
// directory of /proc describes, in the order in which newMemGroup tries them.
func groupParents(proc string) []groupParent {
	groups, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil
	}
	var parents []groupParent
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || f[0] != "0" && f[1] != "memory" {
			continue
		}
		isV2 := f[0] == "0"
		point := groupMount(proc, isV2)
		if point == "" {
			continue
		}
		own := filepath.Join(point, f[2])
		parents = append(parents, groupParent{own, isV2})
		if isV2 && own != point {
			parents = append(parents, groupParent{filepath.Dir(own), isV2})
		}
	}
	return parents
}

// groupMount returns the mountpoint of the control groups of version 2, or of the memory controller
// of version 1; "" if there is none.
func groupMount(proc string, isV2 bool) string {
	f, err := os.Open(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	found, err := mountinfo.GetMountsFromReader(f, func(m *mountinfo.Info) (skip, stop bool) {
		is := isV2 && m.FSType == "cgroup2" || !isV2 && m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "memory")
		return !is, is
	})
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0].Mountpoint
}

// create makes a group with a limit in the directory, and removes it again if it cannot be used.
func (p groupParent) create(name string, limit int64) (*memGroup, error) {
	dir := filepath.Join(p.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	g := &memGroup{dir: dir}
	err := g.limit(p.isV2, limit)
	if err == nil { // moving a process takes write access to the common ancestor of both groups
		err = unix.Access(filepath.Join(p.dir, "cgroup.procs"), unix.W_OK)
	}
	if err == nil && p.isV2 {
		g.fd, err = os.Open(dir)
	}
	if err != nil {
		_ = os.Remove(dir) // no process is in it
		return nil, err
	}
	return g, nil
}

func (g *memGroup) limit(isV2 bool, limit int64) error {
	for i, f := range groupFiles[isV2] {
		value := f.value
		if value == "" {
			value = strconv.FormatInt(limit, 10)
		}
		// Do not create the file: in a control group it exists already.
		err := initproc.PutFile(unix.AT_FDCWD, filepath.Join(g.dir, f.name), value)
		if err != nil && (i == 0 || !errors.Is(err, unix.ENOENT)) {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// start calls begin, which starts a process in the group. For a group of version 1 the calling
// thread joins the group before begin and leaves it afterwards, so that the new process starts in
// the group. (A process that joins later would wait 10 ms for the kernel.) The caller must have
// called runtime.LockOSThread.
func (g *memGroup) start(begin func() error) error {
	if g == nil || g.fd != nil {
		return begin()
	}
	if err := moveThread(g.dir); err != nil {
		return err
	}
	return errors.Join(begin(), moveThread(filepath.Dir(g.dir)))
}

// moveThread makes the calling thread a member of a version 1 group.
func moveThread(dir string) error {
	if err := initproc.PutFile(unix.AT_FDCWD, filepath.Join(dir, "tasks"), "0"); err != nil {
		return unable(err, "enter the control group: %v", err)
	}
	return nil
}

// kills returns how many processes the kernel has ended because of the limit. (Before
// version 4.13 the kernel does not tell.)
func (g *memGroup) kills() (n int) {
	if g == nil {
		return 0
	}
	file := "memory.oom_control"
	if g.fd != nil {
		file = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ = strconv.Atoi(strings.TrimSpace(value)) // the kernel's own number
		}
	}
	return n
}

// remove removes the group. It waits up to releaseLimit for the group's processes to be gone.
func (g *memGroup) remove() {
	if g == nil {
		return
	}
	if g.fd != nil {
		g.fd.Close()
	}
	removeGroup(g.dir)
}

// releaseLimit is how long the kernel may take to release ended processes.
const releaseLimit = 5 * time.Second

func removeGroup(dir string) {
	for end := time.Now().Add(releaseLimit); ; time.Sleep(initproc.Nap) {
		err := os.Remove(dir)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return // RemoveOldControlGroups removes a group that is left
		}
	}
}

// RemoveControlGroup removes the control group that Options.Group named, for a caller of
// Start that was killed. The process that calls it must be in the control group that the killed
// process was in.
func RemoveControlGroup(group string) {
	for _, p := range groupParents(ownProc) {
		removeGroup(filepath.Join(p.dir, group))
	}
}

// RemoveOldControlGroups removes each control group whose name begins with prefix, if the group is
// older than age and has no processes.
func RemoveOldControlGroups(prefix string, age time.Duration) {
	for _, p := range groupParents(ownProc) {
		list, err := os.ReadDir(p.dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			if info, err := e.Info(); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > age {
				_ = os.Remove(filepath.Join(p.dir, e.Name())) // fails where there are processes
			}
		}
	}
}

// limitMemory makes the group, if there is a limit. It returns an error only if a resource is used
// up. If no group can be made for another reason, the command runs without a limit, and Report says
// so. (A limit for each process is no substitute: it would also apply to the init, whose runtime
// maps more memory than small commands need.)
func (l *launch) limitMemory() error {
	if l.o.MemoryMax == 0 {
		return nil
	}
	g, err := newMemGroup(l.o.Group, l.o.MemoryMax)
	if initproc.Exhausted(err) != "" {
		return unable(err, "make a control group: %v", err)
	}
	if err != nil {
		l.memoryLayer = layer(MemoryLimit, NotAvailable, fmt.Sprintf("no control group can be made here (%v); for an ordinary user, systemd-run --user --scope gives one", err))
		return nil
	}
	l.group, l.memoryLayer = g, layer(MemoryLimit, On, fmt.Sprintf("%d bytes for all processes together", l.o.MemoryMax))
	return nil
}

// joinAtStart sets attr so that a process started with attr is in the group from its beginning. It
// does so only for a group of version 2.
func (g *memGroup) joinAtStart(attr *syscall.SysProcAttr) {
	if g != nil && g.fd != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(g.fd.Fd())
	}
}

// The limits that rootsfs was started with (ulimit -H, limits.conf, LimitNPROC= and
// LimitCORE= of systemd) apply to the init as well. A namespace's root cannot raise them.

// checkProcesses refuses a limit of processes that is too low for any command.
func checkProcesses() error {
	const least = MinPids + initproc.SparePids
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &have) == nil && have.Max < least {
		return cannot("the limit of processes of this user is %d (ulimit -Hu), and confining takes %d: have it raised", have.Max, least)
	}
	return nil
}

// raiseCoreLimit raises this process's hard limit of core files from 0 to 1, if the process runs as
// root. The init inherits the limit, and could not raise a hard limit of 0 itself. It forbids core
// dumps by a limit of 1, which also stops a core_pattern with a pipe; a limit of 0 does not (core(5)).
func raiseCoreLimit() {
	var have unix.Rlimit
	if os.Geteuid() == 0 && unix.Getrlimit(unix.RLIMIT_CORE, &have) == nil && have.Max == 0 {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 1}) // if it fails, the init reports it
	}
}

// settleCore sets the layer of core dumps to Off if the kernel passes core dumps to no program. The
// init reports this layer only if core dumps are not forbidden.
func settleCore(layers []Layer) {
	for i, l := range layers {
		if l.Name == initproc.CoreLayer && coreHole() == "" {
			layers[i] = layer(initproc.CoreLayer, Off, "the hard limit of core files is 0, and no program is run on them")
		}
	}
}

// coreHole describes what the host does with the core dump of the confined command if core dumps
// are not forbidden; "" if the kernel passes core dumps to no program. If the core_pattern cannot be
// read, coreHole assumes that it names a program.
func coreHole() string {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err == nil && !strings.HasPrefix(string(pattern), "|") {
		return ""
	}
	return "When it crashes, the program that kernel.core_pattern names is run on what is left of it, outside and as root: the hard limit of core files is 0 (ulimit -Hc), where 1 would keep that from happening."
}

const (
	// MinTmpSize is the least Options.TmpSize: it holds npm's cache of a small server.
	MinTmpSize = 16 << 20
	maxTmpSize = 2 << 30
)

// defaultTmpSize returns a quarter of the memory, at least MinTmpSize and at most maxTmpSize: the
// machine survives two commands that fill their directories.
func defaultTmpSize() int64 {
	return max(MinTmpSize, min(maxTmpSize, machineMemory()/4))
}

// DefaultMemory returns a value for Options.MemoryMax that leaves room for other programs: three
// quarters of the machine's memory, in bytes, and at least MinMemory.
func DefaultMemory() int64 {
	return max(MinMemory, machineMemory()/4*3)
}

// machineMemory returns the bytes of the machine's memory, or a low guess if the kernel does not
// tell.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return maxTmpSize
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:unconvert // their types differ by architecture
}
