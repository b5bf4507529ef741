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
// # Not promised
//
// That a Path exists, that the caller may reach it, or that it means the same file a
// moment later: those are questions for package guard and for the descriptors that
// package vfs opens.
package names
