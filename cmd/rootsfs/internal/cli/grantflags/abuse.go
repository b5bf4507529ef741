package grantflags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/guard"
)

// Abuse are the flags about servers that are refused too often, which `mount`
// and `run` share.
type Abuse struct {
	escapes, refusals int
	suspend           bool
	fs                *pflag.FlagSet
}

func (f *Abuse) Add(fs *pflag.FlagSet) {
	f.fs = fs
	fs.IntVar(&f.escapes, "abuse-escapes", 0, "report a server that tries to leave a root more than `N` times a minute (0: never)")
	fs.IntVar(&f.refusals, "abuse-refusals", 0, "report a server that is refused more than `N` times a minute (0: never)")
	fs.BoolVar(&f.suspend, "abuse-suspend", false, "suspend such a server as well, until rootsfs resume")
	cli.HideFlags(fs, "abuse-escapes", "abuse-refusals", "abuse-suspend") // keys of [abuse]
}

// given reports whether a flag was written; a command without these flags has none.
func (f *Abuse) given(flag string) bool { return f.fs != nil && f.fs.Changed(flag) }

// Merge is what the flags make of the configuration's bounds; fixed says that they
// say something.
func (f *Abuse) Merge(a guard.Abuse) (_ guard.Abuse, fixed bool, err error) {
	for _, n := range []struct {
		flag  string
		value int
		to    *int
	}{{"abuse-escapes", f.escapes, &a.Escapes}, {"abuse-refusals", f.refusals, &a.Refusals}} {
		if !f.given(n.flag) {
			continue
		}
		if n.value < 0 || n.value > guard.MaxAbuse {
			return a, false, cli.Usage(fmt.Errorf("--%s %d: write a number from 0 (never) to %d", n.flag, n.value, guard.MaxAbuse))
		}
		*n.to, fixed = n.value, true
	}
	if f.given("abuse-suspend") {
		a.Suspend, fixed = f.suspend, true
	}
	if a.Suspend && fixed && a.Escapes == 0 && a.Refusals == 0 {
		return a, false, cli.Usage(errors.New("--abuse-suspend needs a bound: write --abuse-escapes or --abuse-refusals as well"))
	}
	return a, fixed, nil
}
