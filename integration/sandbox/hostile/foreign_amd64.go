package main

import "os"

// int80 makes the system call getpid through the 32-bit interface and returns the result.
func int80() int32

// foreignCall returns 0 if a 32-bit system call works, else 1.
func foreignCall() int {
	if int(int80()) == os.Getpid() {
		return 0
	}
	return 1
}
