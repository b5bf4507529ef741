package grantflags

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
)

// Trash are the flags about keeping what is removed, which `mount`, `run` and
// `roots add` share.
type Trash struct {
	fs   *pflag.FlagSet
	on   bool
	size string
	age  time.Duration
}

func (f *Trash) add(fs *pflag.FlagSet) {
	f.fs = fs
	fs.BoolVar(&f.on, "trash", false, "keep what is removed, replaced or truncated in "+guard.TrashName+" of the root")
	fs.StringVar(&f.size, "trash-size", "", "how much is kept in each root: a `size`; the oldest goes first (default 1G)")
	fs.DurationVar(&f.age, "trash-age", 0, "how long it is kept: a `duration` (default 720h)")
	cli.HideFlags(fs, "trash-size", "trash-age") // keys of [trash]
}

func (f *Trash) trash() (guard.Trash, error) {
	t := guard.Trash{On: f.on, Age: f.age}
	given := func(flag string) bool { return f.fs != nil && f.fs.Changed(flag) }
	aged := given("trash-age")
	var err error
	if t.Size, err = ParseSize(f.size); err != nil {
		return t, cli.Usage(fmt.Errorf("--trash-size: %w", err))
	}
	switch {
	case !f.on && (given("trash-size") || aged):
		return t, cli.Usage(errors.New("--trash-size and --trash-age need --trash: write it as well"))
	case aged && (f.age < time.Second || f.age > config.MaxIdle):
		return t, cli.Usage(fmt.Errorf("--trash-age %v: write a duration from 1s to %v, such as 72h", f.age, config.MaxIdle))
	}
	return t, nil
}
