package grantflags

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
)

// Trash are the flags about keeping what is removed, which `mount`, `run` and
// `roots add` share.
type Trash struct {
	on     bool
	bounds KeyFlags[guard.Trash]
}

func (f *Trash) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.on, "trash", false, "keep what is removed, replaced or truncated in "+guard.TrashName+" of the root")
	f.bounds.addEach(cmd, "trash-", config.TrashBounds()) // keys of [trash]
}

func (f *Trash) trash() (guard.Trash, error) {
	t := f.bounds.Values
	if t.On = f.on; !t.On && len(f.bounds.given) > 0 {
		return t, cli.Usage(errors.New("--trash-size and --trash-age need --trash: write it as well"))
	}
	return t, nil
}
