// Package commands has the commands of rootsfs.
//
// # Promises
//
// Those of package cli.
//
// # Not promised
//
// Those of package cli.
package commands

import "github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"

// app is the frame with the commands of this package as methods.
type app struct{ *cli.App }
