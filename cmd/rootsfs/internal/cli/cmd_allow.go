package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

const allowLong = `Show the last refusal for want of a root or right, and what would allow it: a wider
mode of the root, or a new grant of a root that was revoked or has expired. Nothing
changes before you say yes, on the terminal or with --yes.

A root that is granted again ends when it was to end before. If that time is past, it
lasts as long as it did before. "rootsfs roots renew" sets another end.`

const allowExamples = `  rootsfs allow --last
  rootsfs allow --last --yes --session work`

func (a *app) newAllowCmd() *cobra.Command {
	var last, yes bool
	cmd := &cobra.Command{
		Use:     "allow --last",
		Short:   "Grant what was refused last, after showing it",
		Long:    allowLong,
		Example: allowExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !last {
				return usage(errors.New("say what to allow: rootsfs allow --last"))
			}
			return a.allow(cmd.Context(), yes)
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "the last refusal")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.ofSession(cmd)
}

func (a *app) allow(ctx context.Context, yes bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	refusal, err := askOf(ctx, a, c, control.GetRefusal, control.None{})
	if err != nil {
		return err
	}
	r := refusal.Last
	if r == nil {
		return errors.New("no refusal is one that a wider mode, or granting the root again, would lift; why the last one was: rootsfs why")
	}
	refusalLine := fmt.Sprintf("refused at %s: %s of \"%s\" by pid %d uid %d (%s)",
		r.Time.Local().Format("15:04:05"), r.Op, r.Path, r.PID, r.UID, r.Reason)
	grantLine := fmt.Sprintf("root %s (%s) gets the mode %s", quoteIfNeeded(r.Root), quoteIfNeeded(r.Dir), r.Mode)
	var life time.Duration // lifetime of a root that is granted again, if r.Grant has no end
	if r.Grant != nil {
		end := "for as long as the session"
		if !r.Grant.Expires.IsZero() {
			end = "until " + localTime(&r.Grant.Expires)
		} else if life = time.Duration(r.ForMS) * time.Millisecond; life > 0 {
			end = "for " + durationText(life)
		}
		grantLine = fmt.Sprintf("root %s (%s) is granted again, mode %s, %s", quoteIfNeeded(r.Root), quoteIfNeeded(r.Dir), r.Mode, end)
	}
	if !a.JSON {
		a.say("%s", refusalLine)
		a.say("to allow it: %s", grantLine)
	}
	if !yes {
		if err := confirm(refusalLine+"\nto allow it: "+grantLine+"\n", "Allow it?"); err != nil {
			return err
		}
	}
	var ans control.SetAnswer
	if r.Grant == nil {
		ans, err = askOf(ctx, a, c, control.SetMode, control.SetRequest{Name: r.Root.Raw(), Mode: r.Mode})
	} else {
		if life > 0 {
			r.Grant.Expires = time.Now().Add(life)
		}
		var added control.AddAnswer
		if added, err = askOf(ctx, a, c, control.AddRoots, control.AddRequest{Roots: []guard.Grant{*r.Grant}}); len(added.Roots) == 1 {
			ans.Root = added.Roots[0]
		}
	}
	if err != nil {
		return err
	}
	return a.report(ans, func() { a.say("allowed: %s is %s now", quoteIfNeeded(ans.Root.Name), ans.Root.Mode) })
}
