package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

func (a *App) newResumeCmd() *cobra.Command {
	var subject string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume suspended servers",
		Long: `Resume the servers that were suspended because they were refused too often ([abuse]
in the configuration), or the one that --subject names. Their count of refusals begins
anew. "rootsfs status" shows who is suspended and why.`,
		Example: `  rootsfs resume
  rootsfs resume --subject editor --json`,
		Args: ArgCount(0, 0, ""),
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only this `server`, by its name in rootsfs status")
	return Do(a, cmd, control.Resume, func([]string) (control.ResumeRequest, error) {
		return control.ResumeRequest{Subject: subject, All: !cmd.Flags().Changed("subject")}, nil
	}, func(ans control.ResumeAnswer) {
		if len(ans.Resumed) == 0 {
			a.Say("no server is suspended")
		}
		for _, s := range ans.Resumed {
			if s == "" {
				a.Say("resumed: servers without a name")
				continue
			}
			a.Say("resumed: %s", QuoteIfNeeded(s))
		}
	})
}

// abuseFlags are the flags about servers that are refused too often, which `mount`
// and `run` share.
type abuseFlags struct {
	escapes, refusals int
	suspend           bool
	fs                *pflag.FlagSet
}

func (f *abuseFlags) add(fs *pflag.FlagSet) {
	f.fs = fs
	fs.IntVar(&f.escapes, "abuse-escapes", 0, "report a server that tries to leave a root more than `N` times a minute (0: never)")
	fs.IntVar(&f.refusals, "abuse-refusals", 0, "report a server that is refused more than `N` times a minute (0: never)")
	fs.BoolVar(&f.suspend, "abuse-suspend", false, "suspend such a server as well, until rootsfs resume")
	HideFlags(fs, "abuse-escapes", "abuse-refusals", "abuse-suspend") // keys of [abuse]
}

// given reports whether a flag was written; a command without these flags has none.
func (f *abuseFlags) given(flag string) bool { return f.fs != nil && f.fs.Changed(flag) }

// elsewhere says where what such a flag asks for is set in a session that lives
// already; "" of other flags.
func (f *abuseFlags) elsewhere(flag string) string {
	if !strings.HasPrefix(flag, "abuse-") {
		return ""
	}
	return "; set it where the session is started, or at once in [abuse] of its configuration"
}

// over is what the flags make of the configuration's bounds; fixed says that they
// say something.
func (f *abuseFlags) over(a guard.Abuse) (_ guard.Abuse, fixed bool, err error) {
	for _, n := range []struct {
		flag  string
		value int
		to    *int
	}{{"abuse-escapes", f.escapes, &a.Escapes}, {"abuse-refusals", f.refusals, &a.Refusals}} {
		if !f.given(n.flag) {
			continue
		}
		if n.value < 0 || n.value > guard.MaxAbuse {
			return a, false, Usage(fmt.Errorf("--%s %d: write a number from 0 (never) to %d", n.flag, n.value, guard.MaxAbuse))
		}
		*n.to, fixed = n.value, true
	}
	if f.given("abuse-suspend") {
		a.Suspend, fixed = f.suspend, true
	}
	if a.Suspend && fixed && a.Escapes == 0 && a.Refusals == 0 {
		return a, false, Usage(errors.New("--abuse-suspend needs a bound: write --abuse-escapes or --abuse-refusals as well"))
	}
	return a, fixed, nil
}
