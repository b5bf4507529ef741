package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// enableFile is the kernel's switch of FUSE over io_uring. It exists since Linux 6.14, and is
// off by default. Tests change it.
var enableFile = "/sys/module/fuse/parameters/enable_uring"

// testedKernels are prefixes of the releases of the kernels on which this package's tests ran with
// io_uring.
var testedKernels = []string{"6.18.", "7.0.", "7.3."}

// maxQueues is the largest number of processors that Suits accepts: each costs a thread.
const maxQueues = 64

// Suits returns nil where io_uring is known to work: on a tested kernel with a moderate
// number of processors. It does not check whether the kernel's switch is on (see IsEnabled).
func Suits() error {
	if _, err := IsEnabled(); err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("ask for the kernel's version: %w", err)
	}
	if release := unix.ByteSliceToString(u.Release[:]); !isTested(release) {
		return fmt.Errorf("FUSE over io_uring is not tested with Linux %s", release)
	}
	if n, err := possibleCPUs(); err != nil || n > maxQueues {
		return errors.Join(fmt.Errorf("FUSE over io_uring takes a thread for each of %d processors", n), err)
	}
	return nil
}

// Check returns why a mount with the transport auto would not use io_uring here, or nil. For
// root it does not matter whether the kernel's switch is on: the mount switches it on.
func Check() error {
	if err := Suits(); err != nil {
		return err
	}
	on, err := IsEnabled()
	if err == nil && !on && os.Geteuid() != 0 {
		return errors.New("fuse.enable_uring is off, and only root can switch it on")
	}
	return err
}

func isTested(release string) bool {
	for _, prefix := range testedKernels {
		if strings.HasPrefix(release, prefix) {
			return true
		}
	}
	return false
}

// IsEnabled reports whether the kernel's switch is on. It fails if the switch does not exist.
func IsEnabled() (bool, error) {
	b, err := os.ReadFile(enableFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, errors.New(notOfferedText + ": that takes Linux 6.14 or newer, built with it")
	}
	if err != nil {
		return false, fmt.Errorf("whether the kernel has FUSE over io_uring is not known: %w", err)
	}
	return strings.TrimSpace(string(b)) == "Y", nil
}

// Enable turns the kernel's switch on, for all later mounts. Only root may.
func Enable() error {
	if err := os.WriteFile(enableFile, []byte("Y"), 0o644); err != nil {
		return fmt.Errorf("switch on FUSE over io_uring: %w", err)
	}
	return nil
}

const notOfferedText = "the kernel does not offer FUSE over io_uring"

// notOffered returns an error that says that the kernel does not offer FUSE over io_uring, and why
// not if the reason is known.
func notOffered() error {
	on, err := IsEnabled()
	switch {
	case err != nil:
		return err
	case !on:
		return fmt.Errorf("%s: %s is N: as root, write Y to it", notOfferedText, enableFile)
	}
	return errors.New(notOfferedText)
}

// threadStatus returns the fields of /proc/TID/stat after the thread's name: its first field is
// the third of proc(5).
func threadStatus(tid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) <= statProcessor {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", tid, len(fields))
	}
	return fields, nil
}

// The indices of threadStatus.
const (
	statState     = 0
	statProcessor = 36
)

// isRunnable reports whether a thread runs, or would if it had a processor.
func isRunnable(tid int) bool {
	fields, err := threadStatus(tid)
	return err == nil && fields[statState] == "R"
}

// processorOf returns the processor that a thread ran on last.
func processorOf(tid uint32) (int, error) {
	fields, err := threadStatus(int(tid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[statProcessor])
}

// possibleCPUs counts the processors that the kernel wants a queue for. These are more
// than runtime.NumCPU counts under an affinity mask.
func possibleCPUs() (int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return 0, fmt.Errorf("count the processors: %w", err)
	}
	return countCPUs(strings.TrimSpace(string(b)))
}

// countCPUs counts the members of a list such as "0-3,8".
func countCPUs(list string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil || b < a {
			return 0, fmt.Errorf("count the processors: %q is no list of numbers", list)
		}
		n += b - a + 1
	}
	return n, nil
}
