package main

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// mountKey identifies a mount in the table of mounts. It does not depend on the mount's options,
// which may change.
type mountKey struct {
	id    int
	point string
}

// mountPoints returns the keys of all current mounts.
func mountPoints() (map[mountKey]bool, error) {
	all, err := mountpoint.Mounts()
	if err != nil {
		return nil, err
	}
	set := map[mountKey]bool{}
	for _, in := range all {
		set[mountKey{in.ID, in.Point}] = true
	}
	return set, nil
}

// mountsLeft reports and detaches mounts that are not in before, if they are mounts of rootsfs
// or lie in the suite's temporary directory.
func mountsLeft(before map[mountKey]bool, temp string) (problems []string, err error) {
	all, err := mountpoint.Mounts()
	if err != nil {
		return nil, err
	}
	for _, in := range slices.Backward(all) {
		if before[mountKey{in.ID, in.Point}] || in.FSType != mountpoint.FSType && !strings.HasPrefix(in.Point, temp+"/") {
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
