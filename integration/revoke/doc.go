// Package revoke tries to break revocation, from outside, through real mounts.
//
// It holds nothing but tests. A process that holds files of a mount never serves the mount. The
// test binary runs itself again in a mode of its own (see newMode) and gets orders over pipes,
// one JSON line each way. So a page fault of a holder stops only the holder's runtime, not the one
// that serves the mount.
//
// A holder takes everything a process can hold and proves that each thing works: a probe
// that fails before the revocation fails the test. It probes again after the root has
// ended: revoked, expired, replaced, or unmounted by another process. Storms probe
// millions of times while roots come and go. A source that hangs is a FUSE mount served
// by another child.
//
// Requirements shown here carry their ids in the tests' comments. By default
// the loops are shortened; ROOTSFS_SOAK=1 runs them in full.
//
// Some things no FUSE server can take away, so they are only counted. These are locks
// kept by the kernel, and a process's own copies of private pages. A process that asks
// for stale attributes of a held inode gets those that the kernel last knew (statx with
// AT_STATX_DONT_SYNC).
package revoke
