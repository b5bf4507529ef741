// Package names is the vocabulary that every part of rootsfs and every peer
// shares: root names, paths inside roots, file URIs, operations, and the one
// error type with its table.
//
// It promises that a Path holds only clean elements (no empty element, no ".",
// no "..", no NUL, no slash inside an element), because a Path can be made only
// by its constructors, and that an Error always has an errno for the kernel and
// a files/* code for a peer.
//
// It does not promise that a Path exists, that the caller may reach it, or that
// it means the same file a moment later. Those are questions for package guard
// and for the descriptors package vfs opens. It uses the standard library only
// and compiles on every platform.
package names
