// Package deps checks what the compiler does not: which package may know which,
// where file-system calls may stand, and that the tree has the shape that ARCHITECTURE.md
// gives it. It promises that a breach fails with its reason; it does not judge
// whether an exception on its lists is a good one.
package deps
