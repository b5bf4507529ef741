// Package landlock applies Landlock's rules (landlock(7)) to one thread, the one that starts
// a confined command.
//
// # Promises
//
// For the calling thread and its children, Restrict refuses everything that the rules do
// not permit, as far as the kernel's ABI of Landlock can refuse it.
//
// # Not promised
//
// Landlock does not cover all calls, such as stat and chmod of files outside the rules.
// Where the kernel has no Landlock nothing is refused, and Restrict says so.
package landlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Package landlock of go-landlock applies rules to all threads of the process. Before ABI
// 8 it does so through libpsx, which interrupts each thread and waits for all, four times
// over: most of the start-up time, measured. So this package uses only its system call
// layer, and chooses rights by ABI, as go-landlock does by BestEffort.

// Rules list paths and the rights on them. A rule for a directory is for everything below it, too.
type Rules struct {
	Read  []string `json:"read"`  // may be read and executed
	Write []string `json:"write"` // may be read, executed and written
	// Sockets are the paths of Write in which sockets may be made: the command's own
	// directories, and the tree.
	Sockets []string `json:"sockets,omitempty"`
	// Reach are directories whose sockets may be connected to, even if a process outside
	// made them.
	Reach []string `json:"reach,omitempty"`
	// Spare has paths, relative to the tree, that may be written and in which sockets may be
	// made.
	Spare []string `json:"spare,omitempty"`
	// NoNet also refuses TCP and UDP; it is for levels without a network
	// namespace, where there is no loopback interface of the command's own.
	NoNet bool `json:"noNet,omitempty"`
}

// abis lists the rights that each ABI of Landlock added
// (Documentation/userspace-api/landlock.rst). The rights are consecutive bits.
var abis = []struct {
	abi  int
	fs   int // how many file rights there are up to this ABI
	net  int
	what string
}{
	{1, 13, 0, "files"}, {2, 14, 0, "moves"}, {3, 15, 0, "truncation"}, {4, 15, 2, "TCP"}, {5, 16, 2, "device ioctls"},
	{6, 16, 2, "signals, abstract sockets"}, {9, 17, 2, "sockets in directories"}, {10, 17, 4, "UDP"},
}

const (
	scopes    = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
	scopesABI = 6

	readRights  = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir
	writeRights = readRights | ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg |
		ll.AccessFSMakeFifo | ll.AccessFSMakeSym | ll.AccessFSRefer | ll.AccessFSTruncate
	// resolveUnix is LANDLOCK_ACCESS_FS_RESOLVE_UNIX, of ABI 9.
	resolveUnix = 1 << 16
	fileRights  = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
)

// Kernel is the first kernel with Landlock.
const Kernel = "5.13"

// absences maps the errors of a machine without usable Landlock to the reason and the remedy.
var absences = map[unix.Errno]string{
	unix.ENOSYS:     "the kernel has no Landlock: use Linux " + Kernel + " or newer, built with it; in a container, a seccomp profile that permits it",
	unix.EOPNOTSUPP: "the kernel has Landlock, switched off: add landlock to the list lsm= of the kernel's command line",
	unix.EPERM:      "Landlock is forbidden here: in a container, use a seccomp profile that permits it",
	unix.EACCES:     "Landlock is forbidden here: in a container, use a seccomp profile that permits it",
	unix.EINVAL:     "the kernel's Landlock does not answer: use Linux " + Kernel + " or newer",
}

// ABI returns the kernel's version of Landlock. It is 0 if there is none, and missing then says
// why, and what to do.
func ABI() (abi int, missing string, err error) {
	v, err := ll.LandlockGetABIVersion()
	if err == nil {
		return v, "", nil
	}
	var errno unix.Errno
	if errors.As(err, &errno) && absences[errno] != "" {
		return 0, absences[errno], nil
	}
	return 0, "", fmt.Errorf("ask for Landlock: %w", err)
}

// Scoped reports whether Landlock keeps a command from others' abstract sockets, and from sending
// signals to others.
func Scoped() bool {
	abi, _, err := ABI()
	return err == nil && abi >= scopesABI
}

// Restrict confines the calling thread, and all processes started from it, to the rules as
// far as this kernel can. restricted names what the kernel restricts. Without Landlock,
// restricted is "" and missing says why. tree is a descriptor of the directory to which the paths
// in Rules.Spare are relative. no_new_privs must be set.
func Restrict(r Rules, tree int) (restricted, missing string, err error) {
	abi, missing, err := ABI()
	if err != nil || abi == 0 {
		return "", missing, err
	}
	var attr ll.RulesetAttr
	var what []string
	for _, v := range abis {
		if abi < v.abi {
			break
		}
		attr.HandledAccessFS = 1<<v.fs - 1
		if r.NoNet {
			attr.HandledAccessNet = 1<<v.net - 1
		} else if v.what == "TCP" || v.what == "UDP" {
			continue
		}
		what = append(what, v.what)
	}
	if abi >= scopesABI {
		attr.Scoped = scopes
	}
	set, err := ll.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return "", "", fmt.Errorf("make Landlock's rules: %w", err)
	}
	defer unix.Close(set)
	devices := slices.DeleteFunc(slices.Clone(r.Write), func(path string) bool { return !names.Under(path, "/dev") })
	for _, rule := range []struct {
		rights uint64
		dir    int
		paths  []string
	}{
		{readRights, unix.AT_FDCWD, r.Read},
		{writeRights, unix.AT_FDCWD, r.Write},
		{ll.AccessFSIoctlDev, unix.AT_FDCWD, devices},
		{ll.AccessFSMakeSock, unix.AT_FDCWD, r.Sockets},
		{resolveUnix, unix.AT_FDCWD, r.Reach}, // the server of such a socket is not under these rules
		{writeRights | ll.AccessFSMakeSock, tree, r.Spare},
	} {
		for _, path := range rule.paths {
			if err := addRule(set, rule.dir, path, rule.rights&attr.HandledAccessFS); err != nil {
				return "", "", err
			}
		}
	}
	if err := ll.LandlockRestrictSelf(set, 0); err != nil {
		return "", "", fmt.Errorf("apply Landlock's rules: %w", err)
	}
	return fmt.Sprintf("ABI %d: %s", abi, strings.Join(what, ", ")), "", nil
}

// addRule permits rights on a file, or on a directory and all below it. A path that is
// missing, or closed to this uid, needs no rule.
func addRule(set, dir int, path string, rights uint64) error {
	fd, err := unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s for Landlock's rules: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s for Landlock's rules: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights // the kernel refuses the others on a file
	}
	if rights == 0 { // no right is left that this kernel has, and the kernel refuses an empty rule
		return nil
	}
	if err := ll.LandlockAddPathBeneathRule(set, &ll.PathBeneathAttr{AllowedAccess: rights, ParentFd: fd}, 0); err != nil {
		return fmt.Errorf("add %s to Landlock's rules: %w", path, err)
	}
	return nil
}
