package sandbox

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// secureBits: uid 0 means nothing, and nobody can change that again. (There is
// no uid 0 inside; this is for the day when there is.)
const secureBits = 1<<0 | 1<<1 | // SECBIT_NOROOT, _LOCKED
	1<<2 | 1<<3 | // SECBIT_NO_SETUID_FIXUP, _LOCKED
	1<<5 | // SECBIT_KEEP_CAPS_LOCKED
	1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE, _LOCKED

// dropCaps leaves the calling thread, and what is started from it, no capability
// in any set. On the way, while it may still do so, it changes to another uid if
// there is one. It returns what it could not do.
func dropCaps(c *config) (note string, err error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return "", step(err, "read the capabilities")
	}
	if data[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		if err := dropBounding(); err != nil {
			return "", err
		}
	} else {
		note = "; the bounding set could not be emptied, and gives nobody anything under no_new_privs"
	}
	if c.SetID {
		// All threads: the others have no business as root either.
		if err := syscall.Setgroups(nil); err != nil {
			return "", step(err, "drop the supplementary groups")
		}
		if err := syscall.Setresgid(int(c.GID), int(c.GID), int(c.GID)); err != nil {
			return "", step(err, "change to gid %d", c.GID)
		}
		if err := syscall.Setresuid(int(c.UID), int(c.UID), int(c.UID)); err != nil {
			return "", step(err, "change to uid %d", c.UID)
		}
	}
	// The ambient set goes with the permitted one.
	data = [2]unix.CapUserData{}
	return note, step(unix.Capset(&hdr, &data[0]), "drop all capabilities")
}

// dropBounding empties the bounding set and locks the secure bits.
func dropBounding() error {
	for c := uintptr(0); ; c++ {
		// EINVAL: one more than the kernel knows, which may be more than
		// unix.CAP_LAST_CAP.
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break
		}
		if err != nil {
			return step(err, "drop capability %d from the bounding set", c)
		}
	}
	return step(unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0), "lock the secure bits")
}
