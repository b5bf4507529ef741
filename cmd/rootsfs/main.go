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
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/starved"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

func main() {
	if err := starved.Err(); err != nil {
		sandbox.Refuse(err)
	}
	sandbox.Main()
	cleanup.Main(newLog(os.Stderr, slog.LevelInfo, logAttr))
	if err := starved.Err(); err != nil && !endsAccess(os.Args[1:]) {
		fmt.Fprintln(os.Stderr, "rootsfs:", err)
		os.Exit(exitSystem)
	}
	os.Exit(run(os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// endsAccess reports whether a command line is one of those that must work without a
// poller: they end or show access, and need no other program for it.
func endsAccess(args []string) bool {
	return len(args) == 0 || slices.Contains([]string{"revoke", "status", "unmount", "umount", "version", "--version", "roots"}, args[0])
}
