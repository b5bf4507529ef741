// Package mount shows the guarded tree to the kernel, as a FUSE file system.
//
// # Promises
//
// Every request passes the gate once (package vfs sees to it). When Invalidate
// returns for an ended root, nothing the kernel was given for it works any more:
// descriptors, mappings, working directories, directory handles, cached names,
// attributes and pages. No file is ever passed through (a passed-through descriptor
// cannot be revoked). Dirty pages written before a revocation are saved. A panic in a
// handler is EIO for its caller and a record for the owner.
//
// # Not promised
//
// It does not confine anybody: a process that can reach the source some other
// way still can (package mount/sandbox is for that). Stores that a process of
// the host makes through a shared mapping of its own are not noticed by the
// source's watch; level Strict shows them, the others when something else
// changes.
//
// It takes nothing back that it does not live to take back. When the daemon is
// killed (SIGKILL, the OOM killer), the kernel goes on answering from its caches:
// attributes by name, for as long as they were allowed to be kept, and contents
// of files that are open or mapped (at level Max, of any file whose pages are
// cached), until the dead mount is detached and its last holder is gone. Nothing
// reaches the source any more. The supervisor of `rootsfs mount --daemon` detaches a
// dead mount at once (fusermount3 -u -z for an ordinary user), `rootsfs unmount` when
// it is asked to; nobody does for a program that uses this package by itself. Cached
// pages of files that a program has mapped, or holds open, may stay readable to that
// program after the detach.
//
// A detached mount (Options.Detached) is in no mount namespace but those of whom it is
// given to, and the kernel takes it away with them.
//
// Whoever holds a directory's lock in the kernel (a reading of it that is stopped
// half-way) delays what the host changes in that directory, and in no other; see
// SourceStatus.Stuck. Files, directories and references beyond vfs.MaxKept are
// refused with ENFILE, so that the owner's commands find descriptors. With
// Options.AllowOther each user has a share of these, and gets EMFILE beyond it.
//
// # Model
//
// Every file the kernel knows is a node in the table of its root's view. The
// raw layer opens a flight for each request, and a node handed out stays pinned
// in the table until its flight has landed, so that the table never lacks a node
// that the kernel knows. Taking a root back means: let the flights of that root
// land, then tell the kernel to drop the pages, the attributes and the name of
// every node in the table.
package mount
