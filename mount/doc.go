// Package mount shows the guarded tree to the kernel, as a FUSE file system.
//
// # Promises
//
// Every request passes the gate once (package vfs sees to it). When Invalidate
// returns nil for an ended root, nothing the kernel was given for it works any more:
// descriptors, mappings, working directories, directory handles, cached names,
// attributes and pages. This holds for each lifetime of a root, also when the root is
// granted again meanwhile. No file is ever passed through (a passed-through descriptor
// cannot be revoked). Dirty pages written before a revocation are saved. A panic in a
// handler is EIO for its caller and a record for the owner.
//
// Of a root whose source hangs, Invalidate waits for no request for longer than its
// context allows, and for no page or name for longer than half of guard.EndDeadline
// without progress. A request that waits for a source known to be remote is answered
// when its root ends, and also when another root ends that it was about before.
//
// # Not promised
//
// A system call that is in the source's kernel when its root ends cannot be stopped.
// The request was answered, so Invalidate does not wait for the call or report it: the
// call may still change the source. Package guard says what a revocation reports of
// such calls.
//
// A page whose read does not come back from a source cannot be taken back. Invalidate
// then aborts the connection, which ends the mount's other roots too, and returns an
// error. Pages of the files that were cached before stay readable through descriptors
// and mappings that exist. A request on a local source that hangs, contrary to
// expectation, makes Invalidate return an error; the request may still hand out what
// it has read, and may still change the source.
//
// While a program holds the lock of a directory (a reading of it that is stopped
// half-way), names in that directory and its cached list may stay. The names lead to
// nothing: their attributes are gone, and the gate refuses to give them again.
// Invalidate returns nil then, and the mount logs a warning.
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
// Whoever holds a directory's lock in the kernel (a reading of it that is stopped
// half-way) delays what the host changes in that directory, and in no other; see
// SourceStatus.Stuck. Files, directories and references beyond vfs.MaxKept are
// refused with ENFILE, so that the owner's commands find descriptors. With
// Options.AllowOther each user has a share of these, and gets EMFILE beyond it.
//
// # Model
//
// Every file the kernel knows is a node in the table of its root's view. Each lifetime
// of a root has a view of its own. A request counts as one about every view that it has
// joined, until it ends. A node that is handed out is put into the table, and counted as
// known, before its request ends, so that the table never lacks a node that the kernel
// knows. A fixed directory is an alias: a request for it is one for the directory of the
// root that it shows. Taking a root back means: wait for the requests of its view, then tell
// the kernel to drop the root's name, the pages and attributes of every node in the
// table, the names, and once more the pages and attributes that may have come late.
package mount
