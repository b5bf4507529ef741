// Package names has the vocabulary that every part of rootsfs and every peer shares: root
// names, paths inside roots, file URIs, operations, and the one error type with its table.
//
// # Promises
//
// Below its root, a Path holds only clean elements (no empty element, no ".", no "..", no NUL,
// no slash inside an element), because only the constructors of Path can set these elements. An
// Error always has an errno for the kernel and a files/* code for a peer. The package uses the
// standard library only and compiles on every platform.
//
// Text that a server, a file or the host chose is a Foreign. Packages fmt and log/slog print it
// escaped. It is printed in one way for each medium: Escape for a terminal, ShellWord for a
// command, JSON for JSON, SafeName for a name in rootsfs. Two texts that differ only in
// invisible characters look different after Escape. They look different after ShellWord, too,
// unless ShellWord has no word for them.
//
// # Not promised
//
// Two texts may look alike, because letters of two alphabets may. A Path may not exist, the
// caller may not be allowed to reach it, and it may lead to another file a moment later:
// package guard decides, and package vfs opens descriptors.
package names
