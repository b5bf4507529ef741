package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/top"
)

const topLong = `Show every live session with its roots and what happens in them, the questions of
servers, and the records, and revoke a root, a session or everything. "rootsfs
console" shows the same in a browser. The last line shows the keys. Leaving ends
nothing.`

const topExamples = `  rootsfs top`

func (a *app) newTopCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "top",
		Short:   "See, approve and revoke in the terminal",
		Long:    topLong,
		Example: topExamples,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context()) },
	}
}

func (a *app) top(ctx context.Context) error {
	if in, ok := a.Stdin.(*os.File); !ok || !isTerminal(in) || !isTerminal(a.Stdout) {
		return usage(errors.New("top needs a terminal; without one: rootsfs status --json, or rootsfs status --watch"))
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	store, err := recordStore()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	return top.Run(ctx, store)
}
