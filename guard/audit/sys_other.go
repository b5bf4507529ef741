//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package audit

import (
	"os"
	"syscall"
)

// On the systems of this build constraint, errnos have numbers and no names, two logs of one session
// do not exclude each other, and directories are not synced. rootsfs does not mount there. The
// package compiles, so that programs there can read and verify audit files.

func errnoName(syscall.Errno) string { return "" }

func lockFile(*os.File) error { return nil }

func syncDir(string) error { return nil }
