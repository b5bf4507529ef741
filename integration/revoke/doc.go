// Package revoke tries to break revocation, from outside, through real mounts.
//
// It holds nothing but tests. The processes that hold things of a mount are
// never the one that serves it: the test binary runs itself again in a mode of
// its own (see modes) and is spoken to over pipes, one JSON line each way. So a
// page fault of a holder cannot wait for the runtime it stops.
//
// A holder takes everything a process can hold, proves that each of it works
// (a probe that fails before the revocation fails the test), and is asked again
// after the root has ended: revoked, expired, replaced, unmounted by somebody
// else. Storms ask millions of times while roots come and go. A source that
// hangs is a FUSE mount served by another child.
//
// Requirements shown here carry their ids in the tests' comments. By default
// the loops are shortened; ROOTSFS_SOAK=1 runs them in full.
//
// What no FUSE server can take away, and what is therefore only counted: the
// attributes of a held inode as the kernel last knew them, for who asks for
// stale ones (statx with AT_STATX_DONT_SYNC); locks kept by the kernel; a
// process's own copies of private pages.
package revoke
