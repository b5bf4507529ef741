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

// Client finds the session that the command line names.
func (a *App) Client() (*control.Client, error) {
	in, err := control.Find(a.Session)
	if err != nil {
		return nil, err
	}
	return control.Dial(in), nil
}

// Ask sends one request to the session that the command line names.
func Ask[In, Out any](ctx context.Context, a *App, v control.Verb[In, Out], in In) (out Out, err error) {
	c, err := a.Client()
	if err != nil {
		return out, err
	}
	ctx, cancel := Interruptible(ctx)
	defer cancel()
	return AskOf(ctx, a, c, v, in)
}

// AskOf sends one request to a session, and says what it waits for, if that takes long.
func AskOf[In, Out any](ctx context.Context, a *App, c *control.Client, v control.Verb[In, Out], in In) (Out, error) {
	done := a.Waiting("waiting for session " + QuoteIfNeeded(c.Info().Name))
	out, err := v.Call(ctx, c, in)
	done()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; the session goes on with what it was asked: see rootsfs status")
	}
	return out, err
}

// Do completes a command that sends one request to a session and reports the answer:
// request makes the request of the arguments, say prints the answer for people.
func Do[In, Out any](a *App, cmd *cobra.Command, v control.Verb[In, Out], request func(args []string) (In, error), say func(Out)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := request(args)
		if err != nil {
			return err
		}
		out, err := Ask(cmd.Context(), a, v, in)
		if err != nil {
			return err
		}
		return a.Report(out, func() { say(out) })
	}
	return a.OfSession(cmd)
}

// Show completes a command that shows something of a session: pick takes it from the
// session's answer for --json, say prints it for people.
func Show[Out, Part any](a *App, cmd *cobra.Command, v control.Verb[control.None, Out], pick func(Out) Part, say func(Part)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := Ask(cmd.Context(), a, v, control.None{})
		if err != nil {
			return err
		}
		part := pick(out)
		return a.Report(part, func() { say(part) })
	}
	return a.OfSession(cmd)
}

// Watch calls show with what the session that the command line names tells, until the
// session ends, show returns an error or a signal comes.
func Watch(ctx context.Context, a *App, show func(control.Update) error) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	ctx, cancel := Interruptible(ctx)
	defer cancel()
	if err = c.Watch(ctx, control.WatchRequest{}, show); ctx.Err() != nil {
		return nil
	}
	return err
}

// Interruptible ends with SIGINT and SIGTERM: leaving a command that waits for a
// session does not stop what the session does.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
}
