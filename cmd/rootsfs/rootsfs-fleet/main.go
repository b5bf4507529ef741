// Command rootsfs-fleet does the work of the commands `rootsfs fleet ...`: it is the server that
// the machines of a fleet connect to, and the client on each machine. The program rootsfs executes
// it.
//
// It is a program of its own because it links the server, which is larger than rootsfs.
package main

import (
	"os"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleetcli"
)

func main() {
	os.Exit(cli.FleetMain(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, fleetcli.Work()))
}
