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
		return completing(a.asking(func(ctx context.Context, c *control.Client) ([]string, error) {
			st, err := c.Status(ctx)
			if err != nil {
				return nil, err
			}
			var out []string
			for _, r := range st.Roots {
				out = append(out, cobra.CompletionWithDesc(r.Name, r.Mode+" "+names.Escape(r.Resolved)))
			}
			return out, nil
		}))
	}
}

// completing offers the words that f finds in a moment, and nothing, rather than
// an error in the middle of somebody's typing, when it fails. File names are never
// what is meant.
func completing(f func(context.Context) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	out, err := f(ctx)
	if err != nil {
		out = nil
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// asking is for what the session has to be asked.
func (a *app) asking(f func(context.Context, *control.Client) ([]string, error)) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		c, err := a.client()
		if err != nil {
			return nil, err
		}
		return f(ctx, c)
	}
}
