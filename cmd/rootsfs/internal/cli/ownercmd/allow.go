package ownercmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

func (a *app) newAllowCmd() *cobra.Command {
	f := &allowFlags{}
	cmd := &cobra.Command{
		Use:   "allow --last",
		Short: "Grant what was refused last, after showing it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch given := cmd.Flags().Changed("for"); {
			case !f.last:
				return cli.Usage(errors.New("say what to allow: rootsfs allow --last"))
			case given && f.forSession:
				return cli.Usage(errors.New("--for and --for-session: use one of them"))
			case given && f.forTime <= 0:
				return cli.Usage(fmt.Errorf("--for %v: write a positive duration, such as 30m", f.forTime))
			}
			return a.allow(cmd.Context(), f)
		},
	}
	cmd.Flags().BoolVar(&f.last, "last", false, "the last refusal")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().DurationVar(&f.forTime, "for", 0, "grant the root for this `duration`, such as 30m")
	cmd.Flags().BoolVar(&f.forSession, "for-session", false, "grant the root until the session ends")
	return a.OfSession(cmd)
}

// allowFlags are the flags of `rootsfs allow`.
type allowFlags struct {
	last, yes, forSession bool
	forTime               time.Duration
}

func (a *app) allow(ctx context.Context, f *allowFlags) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	refusal, err := cli.AskOf(ctx, a.App, c, control.GetRefusal, control.None{})
	if err != nil {
		return err
	}
	r := refusal.Last
	if r == nil {
		return errors.New("no refusal is one that a wider mode, or granting the root again, would lift; why the last one was: rootsfs why")
	}
	said := fmt.Sprintf("refused at %s: %s of \"%s\" by pid %d uid %d (%s)",
		r.Time.Local().Format("15:04:05"), r.Op, r.Path, r.PID, r.UID, r.Reason)
	what := fmt.Sprintf("root %s (%s) gets the mode %s", cli.QuoteIfNeeded(r.Root), cli.QuoteIfNeeded(r.Dir), r.Mode)
	var life time.Duration
	if r.Grant != nil {
		var end string
		life, end = f.end(r)
		what = fmt.Sprintf("root %s (%s) is granted again, mode %s, %s", cli.QuoteIfNeeded(r.Root), cli.QuoteIfNeeded(r.Dir), r.Mode, end)
	} else if f.forTime > 0 || f.forSession {
		return cli.Usage(fmt.Errorf("root %s is granted, and what was refused needs a wider mode of it: its end stays, so leave out --for and --for-session", cli.QuoteIfNeeded(r.Root)))
	}
	if !a.JSON {
		a.Say("%s", said)
		a.Say("to allow it: %s", what)
	}
	if !f.yes {
		if err := cli.Confirm(said+"\nto allow it: "+what+"\n", "Allow it?"); err != nil {
			return err
		}
	}
	var ans control.SetAnswer
	if r.Grant == nil {
		ans, err = cli.AskOf(ctx, a.App, c, control.SetMode, control.SetRequest{Name: r.Root, Mode: r.Mode})
	} else {
		if life > 0 {
			r.Grant.Expires = time.Now().Add(life)
		}
		var added control.AddAnswer
		if added, err = cli.AskOf(ctx, a.App, c, control.AddRoots, control.AddRequest{Roots: []guard.Grant{*r.Grant}}); len(added.Roots) == 1 {
			ans.Root = added.Roots[0]
		}
	}
	if err != nil {
		return err
	}
	return a.Report(ans, func() { a.Say("allowed: %s is %s now", cli.QuoteIfNeeded(ans.Root.Name), ans.Root.Mode) })
}

// end decides when a root that is granted again ends: after a life that is
// counted from the approval, or, if that is 0, as r.Grant says then.
func (f *allowFlags) end(r *control.Refusal) (life time.Duration, text string) {
	switch {
	case f.forSession:
		r.Grant.Expires = time.Time{}
	case f.forTime > 0:
		life = f.forTime
	case r.Grant.Expires.IsZero():
		life = time.Duration(r.ForMS) * time.Millisecond
	}
	switch {
	case life > 0:
		return life, "for " + cli.DurationText(life)
	case !r.Grant.Expires.IsZero():
		return 0, "until " + cli.LocalTime(&r.Grant.Expires)
	}
	return 0, "for as long as the session"
}
