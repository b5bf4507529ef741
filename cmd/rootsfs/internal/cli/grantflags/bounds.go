package grantflags

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
)

// Abuse are the flags about servers that are refused too often, which `mount`
// and `run` share.
type Abuse struct{ bounds KeyFlags[guard.Abuse] }

// Add adds the flags to a command.
func (f *Abuse) Add(cmd *cobra.Command) { f.bounds.addEach(cmd, "abuse-", config.AbuseBounds()) }

// Merge puts what was given in the place of the configuration's bounds; fixed says that
// something was.
func (f *Abuse) Merge(a guard.Abuse) (_ guard.Abuse, fixed bool, err error) {
	f.bounds.Override(&a)
	fixed = len(f.bounds.given) > 0
	if fixed && a.Suspend && a.Escapes == 0 && a.Refusals == 0 {
		return a, false, cli.Usage(errors.New("--abuse-suspend needs a bound: write --abuse-escapes or --abuse-refusals as well"))
	}
	return a, fixed, nil
}

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
