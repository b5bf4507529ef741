package main

import "os"

// int80 is getpid by the 32-bit interface.
func int80() int32

// foreignCall returns 0 if the call worked, else 1.
func foreignCall() int {
	if int(int80()) == os.Getpid() {
		return 0
	}
	return 1
}
