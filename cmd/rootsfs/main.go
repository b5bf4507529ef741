// Command rootsfs gives programs a file system with only the directories that the owner approved.
// The owner can revoke each directory at any moment.
//
// Package cli is the command line, and states its promises. `rootsfs mount` confines no
// program by itself: a program that can also reach the host's own paths can use those.
package main

import (
	"fmt"
	"os"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/poller"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

//go:generate go test -count 1 -run ^TestTopicTables$ . -args -write

func main() {
	if err := poller.Err(); err != nil { // the init process of a confined command needs the poller
		sandbox.Refuse(err)
	}
	sandbox.Main()
	cleanup.Main(cli.StderrLog())
	if err := poller.Err(); err != nil && !cli.NeedsNoPoller(os.Args[1:]) {
		fmt.Fprintln(os.Stderr, "rootsfs:", err)
		os.Exit(cli.ExitSystem)
	}
	os.Exit(run(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// run executes one command line and returns its exit code.
func run(args []string, io cli.Stdio) int { return cli.Main(args, io) }
