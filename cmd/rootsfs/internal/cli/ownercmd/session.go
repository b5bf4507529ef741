package ownercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

func (a *app) newUnmountCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "unmount MOUNTPOINT",
		Aliases:           []string{"umount"},
		Short:             "End a session: revoke every root and unmount",
		Args:              cli.ArgCount(1, 1, "the mountpoint"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.unmount(cmd.Context(), args[0]) },
		ValidArgsFunction: cli.CompleteSessions(func(in control.Info) (word, what string) { return cmp.Or(in.Point, in.Name), in.Name }),
	}
	a.JSONFlag(cmd)
	return cmd
}

// unmountResult is what unmount reports.
type unmountResult struct {
	Session string `json:"session,omitempty"`
	Point   string `json:"mountpoint"`
	// Stale: there was no session, only what a dead daemon had left.
	Stale bool `json:"stale"`
	control.UnmountAnswer
}

func (a *app) unmount(ctx context.Context, where string) error {
	if where == "" { // which would mean the working directory
		return cli.Usage(errors.New("the mountpoint is empty; see what is mounted: rootsfs status"))
	}
	where, err := cli.ExpandHome(where)
	if err != nil {
		return cli.Usage(fmt.Errorf("mountpoint %w", err))
	}
	in, err := control.FindByMountpoint(control.ResolvePoint(where))
	if errors.Is(err, control.ErrNoSession) {
		if in, err = control.Find(where); errors.Is(err, control.ErrNoSession) || where == "" {
			return a.unmountStale(where)
		}
	}
	if err != nil {
		return err
	}
	c := control.Dial(in)
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	done := a.Waiting("revoking and unmounting")
	answer, err := control.Unmount.Call(ctx, c, control.None{})
	if err == nil && !answer.Held || errors.Is(err, control.ErrNoSession) {
		// The name and the directory are free when the daemon has ended.
		c.WaitEnded(ctx, 10*time.Second)
	}
	done()
	if errors.Is(err, control.ErrNoSession) && in.Point != "" {
		// It was killed, or ended by itself, this very moment.
		return a.unmountStale(in.Point)
	}
	if err != nil {
		return err
	}
	res := unmountResult{Session: in.Name, Point: in.Point, UnmountAnswer: answer}
	return a.Report(res, func() {
		if in.Point == "" { // such as of `rootsfs serve`
			a.Say("ended session %s; %s revoked", in.Name, cli.Plural(len(answer.Ended), "root"))
			return
		}
		a.Say("unmounted %s; %s revoked", cli.QuoteIfNeeded(in.Point), cli.Plural(len(answer.Ended), "root"))
		if answer.Held {
			a.Say("something still holds the mount: everything is refused there, and session %s ends with the last holder", in.Name)
		}
	})
}

// unmountStale clears what a dead daemon left.
func (a *app) unmountStale(where string) error {
	point := control.ResolvePoint(where)
	in, err := mountpoint.Find(point)
	switch {
	case err != nil:
		return fmt.Errorf("%w; see what is: rootsfs status", err)
	case in.FSType == mountpoint.FSType && !mountpoint.IsStale(point):
		return fmt.Errorf("the session mounted at %s is alive, but its control socket is not in %s: "+
			"set XDG_RUNTIME_DIR as it was for rootsfs mount, or end that process with SIGTERM",
			names.Quote(point), names.Quote(control.RuntimeDir()))
	}
	if err := mountpoint.ClearStale(where); err != nil {
		return err
	}
	// The daemon is gone, and with it what it had not written; its directory
	// in the runtime directory was removed when the sessions were listed.
	return a.Report(unmountResult{Point: point, Stale: true, UnmountAnswer: control.UnmountAnswer{Ended: []control.Ended{}}}, func() {
		a.Say("cleared the stale mount at %s", cli.QuoteIfNeeded(point))
	})
}

func (a *app) newResumeCmd() *cobra.Command {
	var subject string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume suspended servers",
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only this `server`, by its name in rootsfs status")
	return cli.Do(a.App, cmd, control.Resume, func([]string) (control.ResumeRequest, error) {
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
			a.Say("resumed: %s", cli.QuoteIfNeeded(s))
		}
	})
}

func (a *app) newAllowCmd() *cobra.Command {
	var last, yes bool
	cmd := &cobra.Command{
		Use:   "allow --last",
		Short: "Grant what was refused last, after showing it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !last {
				return cli.Usage(errors.New("say what to allow: rootsfs allow --last"))
			}
			return a.allow(cmd.Context(), yes)
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "the last refusal")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.OfSession(cmd)
}

func (a *app) allow(ctx context.Context, yes bool) error {
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
	var life time.Duration // of a root that is granted again and has no end of its own
	if r.Grant != nil {
		end := "for as long as the session"
		if !r.Grant.Expires.IsZero() {
			end = "until " + cli.LocalTime(&r.Grant.Expires)
		} else if life = time.Duration(r.ForMS) * time.Millisecond; life > 0 {
			end = "for " + cli.DurationText(life)
		}
		what = fmt.Sprintf("root %s (%s) is granted again, mode %s, %s", cli.QuoteIfNeeded(r.Root), cli.QuoteIfNeeded(r.Dir), r.Mode, end)
	}
	if !a.JSON {
		a.Say("%s", said)
		a.Say("to allow it: %s", what)
	}
	if !yes {
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
