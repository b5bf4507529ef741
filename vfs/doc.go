// Package vfs is the guarded node tree: the operations of a file system, each
// of which passes the gate of package guard exactly once and then runs beneath
// its root's descriptor. The mount and the brokers are thin front ends of it.
//
// It promises that no operation reaches a file outside the root it names,
// whatever the names on the way are made to mean meanwhile; that an operation
// given the identity of the file it is about (At.ID) either acts on that file
// or fails with ESTALE; that a File or Dir of an ended root does nothing any
// more; that Replace leaves either the old file or the new one; that among the
// users of one Tree no update of a file is lost without one of them being told (a
// file that is open for writing is not replaced, and an etag is compared when
// nobody else can change what it is of); and that an operation on a file system
// that hangs is answered when its root ends, its context does, or its time is up.
//
// What a pattern hides is told from what is absent by no answer's kind, and counted
// in none: where names may be hidden, directories have one link and 4096 bytes.
// Times are told, so that something in a directory changed shows.
//
// It promises nothing about updates between two Trees, nor between a Tree and
// processes of the host: an etag is compared immediately before a replacement takes
// the name, and what they write between the two is lost with the old file.
//
// It does not promise that a system call already handed to such a file system
// has no effect later, and it sees a hard link to a file outside its root as
// what it is: a file inside.
//
// All methods may be called concurrently.
package vfs
