package cli

import (
	"context"
	"errors"
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

// ask sends one request to the session that the command line names.
func ask[In, Out any](ctx context.Context, a *app, v control.Verb[In, Out], in In) (out Out, err error) {
	c, err := a.client()
	if err != nil {
		return out, err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	return askOf(ctx, a, c, v, in)
}

// askOf sends one request to a session, and says what it waits for, if that takes long.
func askOf[In, Out any](ctx context.Context, a *app, c *control.Client, v control.Verb[In, Out], in In) (Out, error) {
	done := a.waiting("waiting for session " + shown(c.Info().Name))
	out, err := v.Call(ctx, c, in)
	done()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; the session goes on with what it was asked: see rootsfs status")
	}
	return out, err
}

// asking completes a command that sends one request to a session and reports the answer:
// request makes the request of the arguments, say prints the answer for people.
func asking[In, Out any](a *app, cmd *cobra.Command, v control.Verb[In, Out], request func(args []string) (In, error), say func(Out)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := request(args)
		if err != nil {
			return err
		}
		out, err := ask(cmd.Context(), a, v, in)
		if err != nil {
			return err
		}
		return a.report(out, func() { say(out) })
	}
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
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
		return completing(a.withClient(func(ctx context.Context, c *control.Client) ([]string, error) {
			st, err := control.GetStatus.Call(ctx, c, control.None{})
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

// withClient gives f a client of the session.
func (a *app) withClient(f func(context.Context, *control.Client) ([]string, error)) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		c, err := a.client()
		if err != nil {
			return nil, err
		}
		return f(ctx, c)
	}
}
