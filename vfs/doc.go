// Package vfs is the guarded node tree: the operations of a file system, each
// of which passes the gate of package guard exactly once and then runs beneath
// its root's descriptor. The mount and the brokers are thin front ends of it.
//
// # Promises
//
// No operation reaches a file outside the root it names, whatever the names on the
// way are made to mean meanwhile. An operation given the identity of the file it is
// about (At.ID) either acts on that file or fails with ESTALE. A File or Dir of an
// ended root does nothing any more. Replace leaves either the old file or the new
// one. Among the users of one Tree no update of a file is lost without one of them
// being told: a file that is open for writing is not replaced, and an etag is compared
// when nobody else can change what it is of. An operation on a file system that hangs
// is answered when its root ends, its context does, or its time is up. No call that
// changes a source begins after its root has ended or was narrowed (guard.Lease.Change).
//
// What a pattern hides is told from what is absent by no answer's kind, and counted
// in none: where names may be hidden, directories have one link and 4096 bytes.
// Times are told, so that something in a directory changed shows.
//
// All methods may be called concurrently.
//
// # Not promised
//
// Nothing is said of updates between two Trees, nor between a Tree and processes of
// the host: an etag is compared immediately before a replacement takes the name, and
// what they write between the two is lost with the old file.
//
// A system call that a file system hangs in may have its effect later. When its root has
// ended or was narrowed, whoever did that is told (guard.Ended.Err), and the operation
// makes no other call that changes the source. What it leaves unfinished then has no
// name, or one that the Journal keeps.
//
// A hard link to a file outside its root is what it is: a file inside.
package vfs
