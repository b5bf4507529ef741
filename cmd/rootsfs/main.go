// Command rootsfs shows programs the directories their owner approved, and
// nothing else, as a file system that the kernel confines and the owner can
// revoke at any moment.
//
// # Promises
//
// Commands print what they did or found to standard output, and at most one
// line to standard error when they fail, with what to do next. Exit codes are
// those of exit.go. Every command that reports takes --json, whose field names
// do not change.
//
// # Not promised
//
// `rootsfs mount` confines nobody by itself: a program that can also reach the
// host's own paths can use those. The text of human output may change.
package main

import (
	"os"

	_ "github.com/rootsfs/rootsfs/cmd/rootsfs/internal/early"
)

func main() {
	os.Exit(run(os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
