package sandbox

import (
	"errors"

	"golang.org/x/sys/unix"
)

// buildCaps are what building the root takes, all of them over our own
// namespaces only: mounts and the host name, the loopback interface, the
// limits of nested namespaces, and the dropping of capabilities.
var buildCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_SETPCAP}

// secureBits: uid 0 means nothing, and nobody can change that again. (There is
// no uid 0 inside; this is for the day when there is.)
const secureBits = 1<<0 | 1<<1 | // SECBIT_NOROOT, _LOCKED
	1<<2 | 1<<3 | // SECBIT_NO_SETUID_FIXUP, _LOCKED
	1<<5 | // SECBIT_KEEP_CAPS_LOCKED
	1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE, _LOCKED

// dropCaps leaves the calling thread, and what is started from it, no capability
// in any set.
func dropCaps() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return step(err, "read the capabilities")
	}
	if data[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		for c := uintptr(0); ; c++ {
			// EINVAL: one more than the kernel knows, which may be more than
			// unix.CAP_LAST_CAP.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
				break
			} else if err != nil {
				return step(err, "drop capability %d from the bounding set", c)
			}
		}
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
			return step(err, "lock the secure bits")
		}
	}
	// The ambient set goes with the permitted one.
	data = [2]unix.CapUserData{}
	return step(unix.Capset(&hdr, &data[0]), "drop all capabilities")
}
