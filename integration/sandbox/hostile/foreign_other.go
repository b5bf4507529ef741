//go:build !amd64

package main

// foreignCall: there is no other architecture that is part of this one and can
// be called from a program of this one.
func foreignCall() int { return 2 }
