// Package revoke tries to break revocation, from outside, through real mounts.
//
// It holds nothing but tests. A process that holds files of a mount never serves the mount. The
// test binary runs itself again as a child (see newMode), without the race detector (see
// childBinary). The child gets commands over pipes, one JSON line each way. So a page fault of a
// holder stops only the holder's runtime, not the runtime that serves the mount.
//
// A holder opens and maps everything that a process can hold, and tries each thing with a
// probe. A probe that fails before the revocation fails the test. The holder probes again
// after the root has ended: revoked, expired, replaced, or unmounted by another process.
// Storms are processes that do operations all the time while roots come and go. A source
// that hangs is a FUSE mount, served by another child (slowfs) or by the test (package hangfs).
//
// By default the loops are shortened; ROOTSFS_SOAK=1 runs them in full.
//
// Some things no FUSE server can take away, so the tests do not count them as failures.
// These are locks kept by the kernel, and a process's own copies of private pages. A
// process that asks for stale attributes of a held inode gets the attributes that the
// kernel last knew (statx with AT_STATX_DONT_SYNC).
package revoke
