package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// raced says which packages are tested with the race detector.
type raced string

const (
	racedNone  raced = "none"
	racedLeast raced = "least" // the directories of alwaysRaced
	racedMost  raced = "most"  // all but the directories of unraced
	racedAuto  raced = "auto"  // racedMost, or racedLeast on a machine where new pages are slow
)

// alwaysRaced are directories whose goroutines share most memory: the gate, the tree, the front ends, and
// the parts of a session.
var alwaysRaced = []string{"guard", "vfs", "broker", "mount", "cmd/rootsfs/internal/availability", "cmd/rootsfs/internal/consent",
	"cmd/rootsfs/internal/control", "cmd/rootsfs/internal/network", "cmd/rootsfs/internal/secret", "cmd/rootsfs/internal/session",
	"cmd/rootsfs/internal/sessionhub"}

// unraced are directories whose tests start programs and read files. The tests share no memory with
// these programs, which testkit.Build builds without the race detector. The race detector would see
// only the tests themselves, and they would take several times as long. `make soak` tests these
// directories with the race detector, too. The tests of integration/posix do one call after the other,
// so that its daemon, which is the test binary, has little to do at once.
var unraced = []string{"integration/deps", "integration/dist", "integration/sandbox", "integration/serve", "integration/console",
	"integration/reports", "integration/posix"}

// includes reports whether the packages of a directory are tested with the race detector.
func (r raced) includes(dir string) bool {
	switch r {
	case racedMost:
		return !slices.Contains(unraced, dir)
	case racedLeast:
		return isIn(alwaysRaced, dir)
	}
	return false
}

// slowPage is the time for a new page above which the race detector is too slow for most packages.
// A new page takes a fifth of a microsecond on a bare machine, and 20 in a guest whose hypervisor
// keeps the page tables itself. A program with the race detector needs five thousand new pages to start.
const slowPage = 5 * time.Microsecond

// onThisMachine returns the choice for this machine, and the reason if it is not r itself.
func (r raced) onThisMachine() (raced, string, error) {
	switch r {
	case racedNone, racedLeast, racedMost:
		return r, "", nil
	case racedAuto:
	default:
		return "", "", fmt.Errorf("there is no choice -race=%s: write none, least, most or auto", r)
	}
	cost, err := pageCost()
	if err != nil {
		return "", "", fmt.Errorf("measure the cost of a new page: %w", err)
	}
	if cost < slowPage {
		return racedMost, "", nil
	}
	return racedLeast, fmt.Sprintf("a new page of memory takes %v of the processor here: only the packages whose goroutines share most memory are tested with the race detector (RACE=most: most packages)", cost.Round(100*time.Nanosecond)), nil
}

// pageCost returns the processor time that the first use of a page takes: the least of a few
// measurements. It measures the time of this thread only, so other processes do not count.
func pageCost() (least time.Duration, err error) {
	const pages = 512
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 5 {
		data, err := unix.Mmap(-1, 0, pages*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return 0, err
		}
		_ = unix.Madvise(data, unix.MADV_NOHUGEPAGE)
		var from, to unix.Timespec
		err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &from)
		for at := 0; at < len(data); at += unix.Getpagesize() {
			data[at] = 1
		}
		if err == nil {
			err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &to)
		}
		_ = unix.Munmap(data)
		if err != nil {
			return 0, err
		}
		if took := time.Duration(to.Nano()-from.Nano()) / pages; least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}
