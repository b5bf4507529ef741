package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// client finds the session that the command line names.
func (a *app) client() (*control.Client, error) {
	in, err := control.Find(a.session)
	if err != nil {
		return nil, err
	}
	return control.Dial(in), nil
}

// interruptible ends with SIGINT and SIGTERM: leaving a command that waits for a
// session does not stop what the session does.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
}

// completeTimeout bounds what the shell waits for when the user presses tab.
const completeTimeout = time.Second

func completeSessions(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := control.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, in := range all {
		out = append(out, cobra.CompletionWithDesc(in.Name, names.Escape(in.Point)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeRoots offers the session's roots; at most limit arguments are roots
// (no limit if it is negative), after which the words of then follow.
func (a *app) completeRoots(limit int, then ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return then, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
		defer cancel()
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		st, err := c.Status(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, r := range st.Roots {
			out = append(out, cobra.CompletionWithDesc(r.Name, r.Mode+" "+names.Escape(r.Resolved)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
