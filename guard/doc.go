// Package guard is the reference monitor of rootsfs. It decides; it opens
// nothing and serves nobody itself.
//
// # The model
//
// A person approves a root: a directory, or a single file. The approval is a
// Grant: the root's name, where it lies, a Policy (rights, patterns, limits),
// an expiry and the subject it is for. A Registry holds the grants as immutable
// snapshots with an epoch each. Every operation, whether it came from the
// kernel or as JSON-RPC, is described by a Request and put to Registry.Admit,
// once. Admit answers with a Lease or with an error. Only a Lease yields the
// descriptor of a root, so there is nothing to open without having asked.
// Lease.Done settles, wraps the error once, audits and releases.
//
// A root ends by revocation, expiry, or because its directory vanished or was
// replaced. Ending is total: the registry lets each View flush what is dirty,
// shuts the gate, cancels and drains the operations in flight, lets each View
// take back what it had handed out, audits, and only then answers.
//
// # Promises
//
// After Revoke has returned, Admit grants nothing for that root, every operation
// admitted before has been answered, and every View has taken back what it had handed
// out. No call that changes the source (Lease.Change) begins any more under a lease of
// the root, nor under a lease of a root around it that has entered it; calls that had
// begun have returned. Where one of this could not be done within the deadline, Ended.Err
// says so, and how many calls may still take effect. The same holds for rights that Set
// and SetPatterns take away, and for roots that end in another way. A grant ends when the wall's clock shows its end, or when as much time
// has passed as was left to it, whichever comes first. Granting the same directory
// again makes a new epoch: handles of the old one stay dead. A root nested in
// another is judged by both policies, and revoking the inner one leaves a
// tombstone, so that revocation never widens what the outer one reaches. Roots of
// several subjects may be one directory, or overlap: while one of them moves a
// directory, nobody makes a name in it through another, so that no two servers
// together bring into place what a pattern keeps from each.
//
// # Not promised
//
// Parse finds a root by names alone; package vfs promises what the path leads to when it
// is opened. A source that hangs keeps the calls that it was given; nothing here takes
// them back, and calls that only read may begin after the end. When a root is granted
// inside another one, or a server is suspended, operations that run longer than the
// deadline go on, and the error says so. The package does not confine processes, and it trusts
// the operating system's user that runs it. It compiles on every platform; the
// Opener that turns a path into a descriptor is Linux's (package vfs).
//
// All exported methods may be called concurrently. No lock is held across a system call,
// an Auditor or a View, but for the locks of Lease.Making and Lease.Moving, which are held
// across the operation, and the right to change one root, which a change of it holds.
package guard
