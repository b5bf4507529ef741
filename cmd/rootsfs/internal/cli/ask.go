package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// client returns a client of the session that the command line names.
func (a *app) client() (*control.Client, error) {
	in, err := control.Find(a.Session)
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

// askOf sends one request to a session. If the answer takes long, askOf prints on the terminal that
// the command waits for the session.
func askOf[In, Out any](ctx context.Context, a *app, c *control.Client, v control.Verb[In, Out], in In) (Out, error) {
	done := a.waiting("waiting for session " + quoteIfNeeded(c.Info().Name))
	out, err := v.Call(ctx, c, in)
	done()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; the session goes on with what it was asked: see rootsfs status")
	}
	return out, err
}

// do sets up a command that sends one request to a session and reports the answer: request makes
// the request from the arguments, and say prints the answer if --json is not set.
func do[In, Out any](a *app, cmd *cobra.Command, v control.Verb[In, Out], request func(args []string) (In, error), say func(Out)) *cobra.Command {
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
	return a.ofSession(cmd)
}

// show sets up a command that shows a part of a session's state: pick returns the part of the
// session's answer to show, and say prints the part if --json is not set.
func show[Out, Part any](a *app, cmd *cobra.Command, v control.Verb[control.None, Out], pick func(Out) Part, say func(Part)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := ask(cmd.Context(), a, v, control.None{})
		if err != nil {
			return err
		}
		part := pick(out)
		return a.report(part, func() { say(part) })
	}
	return a.ofSession(cmd)
}

// stream calls show with the updates of the session that the command line names. It returns when
// the session ends, show returns an error or the command gets SIGINT or SIGTERM.
func stream(ctx context.Context, a *app, show func(control.Update) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	if err = c.Stream(ctx, control.StreamRequest{}, show); ctx.Err() != nil {
		return nil
	}
	return err
}

// interruptible returns a context that SIGINT and SIGTERM end. It is for commands that wait for a
// session: the session goes on with its work after the command has been interrupted.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
}
