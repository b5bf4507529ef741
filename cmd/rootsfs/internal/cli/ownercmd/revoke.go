package ownercmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

func (a *app) newRevokeCmd() *cobra.Command {
	var all, net bool
	var subject string
	cmd := &cobra.Command{
		Use:   "revoke NAME... | --subject SERVER | --net | --all",
		Short: "End roots: everything that programs hold of them is dead",
		Args: func(c *cobra.Command, args []string) error {
			return cli.OneOf("names, --subject, --net and --all", "name the roots to revoke, or use --all; see: rootsfs roots list", len(args) > 0, subject != "", net, all)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revoke(cmd.Context(), control.RevokeRequest{Names: args, All: all, Subject: subject, Net: net})
		},
		ValidArgsFunction: a.CompleteRoots(-1),
	}
	cmd.Flags().BoolVar(&all, "all", false, "every root of the session, and its network")
	cmd.Flags().BoolVar(&net, "net", false, "every host of a command's network (run --net=HOSTS)")
	cmd.Flags().StringVar(&subject, "subject", "", "the roots that are for this `server` alone")
	return a.OfSession(cmd)
}

func (a *app) revoke(ctx context.Context, req control.RevokeRequest) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	done := a.Waiting("revoking")
	ans, err := control.Revoke.Call(ctx, c, req)
	if req.All && control.Unreachable(err) {
		// Whatever keeps the socket from answering, a signal gets through.
		ans.Ended, err = c.RevokeBySignal(ctx)
	}
	done()
	if err != nil && len(ans.Ended) == 0 {
		return err
	}
	if rerr := a.Report(ans, func() { a.printEnded(ans.Ended) }); rerr != nil {
		return rerr
	}
	if err != nil {
		return &cli.ExitError{Code: cli.ExitFailure, Err: fmt.Errorf("%w; new accesses are already refused", err)}
	}
	return nil
}

// printEnded tells how roots ended.
func (a *app) printEnded(ended []control.Ended) {
	if len(ended) == 0 {
		a.Say("there was no root to revoke")
	}
	for _, e := range ended {
		if e.Error != "" {
			a.Say("%s: %s, but not everything could be taken back: %s", cli.QuoteIfNeeded(e.Root), e.State, e.Error)
			continue
		}
		a.Say("%s: %s in %.1f ms", cli.QuoteIfNeeded(e.Root), e.State, e.TookMS)
	}
}
