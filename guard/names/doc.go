// Package names is the vocabulary that every part of rootsfs and every peer
// shares: root names, paths inside roots, file URIs, operations, and the one
// error type with its table.
//
// # Promises
//
// A Path holds only clean elements (no empty element, no ".", no "..", no NUL, no
// slash inside an element), because a Path can be made only by its constructors. An
// Error always has an errno for the kernel and a files/* code for a peer. The package
// uses the standard library only and compiles on every platform.
//
// Text that somebody else chose (Foreign) is printed in one way for each medium: Escape
// for a terminal, ShellWord for a command, JSON for JSON, SafeName where it becomes a
// name of ours. No two texts look alike in the first two because of characters that are
// not seen.
//
// # Not promised
//
// That two texts of letters that look alike (of two alphabets) are told apart. That a Path exists, that the caller may reach it, or that it means the same file a
// moment later: those are questions for package guard and for the descriptors that
// package vfs opens.
package names
