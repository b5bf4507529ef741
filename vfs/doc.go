// Package vfs is the guarded node tree: the operations of a file system. Each operation passes
// the gate of package guard once and then runs beneath the descriptor of its root. A call that
// consists of several operations, such as a copy between two roots, passes the gate for each of
// them. The mount and the brokers are thin front ends of the tree.
//
// # Promises
//
// No operation reaches a file outside the root that it names, even if names on the path are
// exchanged meanwhile. An operation with the identity of a file (At.ID) acts on that file or
// fails with ESTALE. A File or Dir of an ended root does nothing any more. Replace leaves
// either the old file or the new one. Among the users of one Tree no update of a file is lost
// silently. A file that is open for writing is not replaced, and an etag is compared while no
// other operation of the Tree can change the file. An operation on a file system that hangs is
// answered when its root or its context ends, or its time is up. No call that changes a source
// begins after its root has ended or was narrowed (guard.Lease.Change).
//
// A name that a pattern hides is indistinguishable from a missing one: for such a name, every
// operation returns the same error or result, whether it exists or not. No count includes a hidden
// name: where names may be hidden, every directory has one link and 4096 bytes. The times of a
// directory are shown, so they reveal that hidden names in it have changed.
//
// All methods may be called concurrently.
//
// # Not promised
//
// An update can be lost between two Trees, or between a Tree and a process of the host.
// The etag is compared immediately before the new file takes the name. A write between
// these two steps is lost with the old file.
//
// A system call that hangs in a file system may take effect later. If the root is ended or
// narrowed meanwhile, the error of that call says so (guard.Ended.Err), and the
// operation makes no further call that changes the source. The unfinished file of such an
// operation has no name, or a temporary name that is in the Journal.
//
// A hard link inside a root to a file outside counts as a file inside.
package vfs
