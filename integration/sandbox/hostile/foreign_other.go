//go:build !amd64

package main

// foreignCall returns 2: programs of this architecture cannot make system calls of another
// architecture.
func foreignCall() int { return 2 }
