// Package guard is the reference monitor of rootsfs. It decides about every operation, and
// opens no file and serves no peer itself.
//
// # The model
//
// A person approves a root: a directory, or a single file. The approval is a Grant: the root's
// name, its path, a Policy (rights, patterns, limits), an expiry and the subject, which is the
// server that the root is for. A Registry holds the grants in immutable snapshots. Each grant has
// an epoch, the number of its lifetime. A Request describes an operation, from the kernel or as
// JSON-RPC. Every operation calls Registry.Admit once, which returns a Lease or an error. Only a
// Lease yields the descriptor of a root, so nothing can be opened without it. Lease.Done settles
// the quotas, wraps the error once, writes the record and releases the root.
//
// A View is a way in which the kernel or a peer sees a root, such as a mount. A root ends by
// revocation, by expiry, after its one use, or because its directory vanished or was replaced. The
// end is total. The registry lets each View flush its dirty data, shuts the gate, and cancels and
// drains the operations in flight. Then it lets each View take back everything that it has handed
// out, audits, and only then answers.
//
// # Promises
//
// When Revoke has returned:
//   - Admit refuses every request for the root.
//   - Every operation admitted before has been answered.
//   - Every View has taken back what it had handed out.
//   - No call that changes the source (Lease.Change) is under way or begins any more. This holds
//     for leases of the root, and for leases of a root around it that have entered the root.
//
// If a part of this cannot be done within the deadline, Ended.Err says so, and how many calls
// may still take effect. The same holds for rights that Set and SetPatterns take away, and
// for roots that end in another way.
//
// A grant ends at its time by the wall clock, or when its remaining time has passed by the
// monotonic clock, whichever comes first. So setting the clock back does not extend it.
// Granting the same directory again makes a new epoch: handles of the old one stay dead.
//
// A dry run of an operation (Request.Dry) is answered as the operation would be, and leaves
// nothing behind. It does not know whether the audit log has room.
//
// A file in a nested root is judged by the policies of both roots. Revoking the inner root
// leaves a tombstone, so that revocation never widens what the outer one reaches. Roots of
// several subjects may have the same directory, or overlap. While a directory is moved
// through one of them, no name can be created in it through another. Otherwise two servers
// together could create a path that a pattern refuses to each of them.
//
// # Not promised
//
// Parse finds a root by names alone; where the path leads when it is opened is up to package
// vfs. System calls that hang in the source cannot be taken back. An operation that was answered
// before its system calls had ended may begin further ones that only read, also after the end of the
// root (Lease.Change refuses all others). When a root is granted inside another one, or a server is
// suspended, operations that run longer than the deadline go on, and the error says so. The
// package does not confine processes, and it trusts the operating system's user that runs it.
// It compiles on every platform; the Opener that turns a path into a descriptor exists for
// Linux (package vfs).
//
// All exported methods may be called concurrently. Three kinds of locks are held across system
// calls and calls of Auditors and Views:
//   - the locks of Lease.Making and Lease.Moving, for one operation
//   - the lock of a root's changes, for one change
//   - the lock of pauses, while one pause begins or ends
//
// No other lock is held across such calls.
package guard
