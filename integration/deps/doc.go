// Package deps makes checks of the source that the compiler does not make: for example, which
// package may import which, which packages may make file-system calls, and that the tree has the
// shape described in ARCHITECTURE.md. A test that finds a breach fails and prints the reason. The
// package does not judge whether an exception on its lists is a good one.
package deps
