package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

func newConsentDenialsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "denials",
		Short: "Show the denials that are remembered",
		Long: `Show the denials that you asked to remember: since when, which server, and the path.
What that server asks for there, and below, is denied without a question.`,
		Example: `  rootsfs consent denials
  rootsfs consent denials --json | jq -r '.[].path'`,
		Args: nargs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Denials(cmd.Context())
			if err != nil {
				return err
			}
			return a.report(list, func() { a.sayDenials(list) })
		},
	}
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

func (a *app) sayDenials(list []control.Denial) {
	if len(list) == 0 {
		a.say("no denial is remembered; remember one: rootsfs consent deny ID --remember")
		return
	}
	rows := [][]string{{"ID", "SINCE", "SERVER", "DENIED, AND BELOW"}}
	for _, d := range list {
		rows = append(rows, []string{shortID(d.ID), d.Since.Local().Format(time.TimeOnly), deniedTo(d), shown(d.Path)})
	}
	a.table(rows)
	a.say("to be asked again: rootsfs consent forget %s", shortID(list[0].ID))
}

// deniedTo is the server of a denial.
func deniedTo(d control.Denial) string {
	if d.Subject == "" {
		return "(no name)"
	}
	return shown(d.Subject)
}

func newConsentForgetCmd(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "forget ID | --all",
		Short: "Lift a denial that is remembered",
		Long: `Lift a denial that is remembered, or every one of the session. ID is the denial's, or
enough of its beginning. Nothing is granted: the server may ask again, and then you
are asked.`,
		Example: `  rootsfs consent forget 4kq
  rootsfs consent forget --all`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usage(errors.New("--all and an id cannot be combined: use one of them"))
			case !all && (len(args) == 0 || args[0] == ""):
				return usage(errors.New("name the denial to lift, or use --all; see: rootsfs consent denials"))
			case len(args) > 1:
				return usage(fmt.Errorf("%q is one argument too many; see: rootsfs consent forget --help", args[1]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req := control.ForgetRequest{All: all}
			if !all {
				req.ID = args[0]
			}
			return a.forget(cmd.Context(), req)
		},
		ValidArgsFunction: a.completeDenials,
	}
	cmd.Flags().BoolVar(&all, "all", false, "every denial that is remembered")
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

func (a *app) forget(ctx context.Context, req control.ForgetRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	list, err := c.Forget(ctx, req)
	if err != nil {
		return err
	}
	return a.report(control.ForgetAnswer{Forgotten: list}, func() {
		if len(list) == 0 {
			a.say("no denial is remembered")
		}
		for _, d := range list {
			a.say("%s may ask again: %s", deniedTo(d), shown(d.Path))
		}
	})
}

// completeDenials offers the ids of denials that are remembered.
func (a *app) completeDenials(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completing(a.asking(func(ctx context.Context, c *control.Client) ([]string, error) {
		list, err := c.Denials(ctx)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, d := range list {
			out = append(out, cobra.CompletionWithDesc(d.ID, deniedTo(d)+": "+shown(d.Path)))
		}
		return out, nil
	}))
}
