// Package beneath makes rootsfs's file-system calls in roots: it is the only place that
// does. Every function that reaches into a root takes a *guard.Lease, or a descriptor that
// another function got with a lease. A lease is the only source of a root's descriptor, so nothing
// can be opened before package guard has admitted the operation.
//
// # Promises
//
// A resolution starts at the root's descriptor, never leaves it, follows no link
// (RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, and RESOLVE_NO_XDEV
// unless the grant allows other file systems). If other roots are nested in the root, the
// resolution calls guard.Lease.EnterIfNested for each directory and name that it passes. The
// operation then works on the descriptor that was resolved, or on one name in that directory.
//
// A function that changes something takes the lease, and makes each system call that changes
// something through guard.Lease.Change: no such call begins when the lease is dead.
//
// A directory of a staged root is the union of the source's directory and the one in the
// store's upper directory (union.go). A call that changes a file takes a Changeable. Only the
// owner's apply gets a Changeable for a file of a staged root's source. So no program changes that
// source. After a crash, the change that was under way is there as a whole or not at all.
//
// # Not promised
//
// The package decides nothing (package guard does). It cannot cancel a system call that
// a file system does not return from; package vfs detaches such calls.
//
// Linux only, 5.6 or newer (openat2).
package beneath
