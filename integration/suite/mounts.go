package main

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// place is a mount as the table of mounts has it, whatever its options become.
type place struct {
	id    int
	point string
}

// mountPoints returns the mounts there are.
func mountPoints() (map[place]bool, error) {
	all, err := mountpoint.Mounts()
	if err != nil {
		return nil, err
	}
	set := map[place]bool{}
	for _, in := range all {
		set[place{in.ID, in.Point}] = true
	}
	return set, nil
}

// mountsLeft reports the mounts that were not there before and are rootsfs's, or lie in
// the suite's temporary directory, and detaches them.
func mountsLeft(before map[place]bool, temp string) (problems []string, err error) {
	all, err := mountpoint.Mounts()
	if err != nil {
		return nil, err
	}
	for _, in := range slices.Backward(all) {
		if before[place{in.ID, in.Point}] || in.FSType != mountpoint.FSType && !strings.HasPrefix(in.Point, temp+"/") {
			continue
		}
		problems = append(problems, "a test left a mount of "+in.FSType+" on "+in.Point)
		if in.FSType == mountpoint.FSType {
			_ = mountpoint.Detach(in.Point, true)
		} else {
			_ = unix.Unmount(in.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
	return problems, nil
}
