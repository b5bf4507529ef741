package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

const revokeLong = `End the named roots, those that are for one server alone (--subject), or all, while
the session goes on. When revoke returns, every descriptor, mapping, directory handle,
working directory and lock that programs hold in them is dead, and what they wrote is
on the source. Granting the directory again wakes none of it. If a name is not that of
a root, nothing is revoked. A socket of "rootsfs run --socket" is cut by its name,
and the network of "rootsfs run --net=HOSTS" by --net.

If the source hangs (NFS, FUSE), a change that it was already given may take effect
later. revoke then says how many such calls may still arrive, and the exit code is 1.
With exit code 0 there are none. revoke works while a program has used up what the
kernel counts for your user. Where you can start no process any more, let your shell
revoke every root:
  read -r pid <$XDG_RUNTIME_DIR/rootsfs/SESSION/pid; kill -USR1 $pid`

const revokeExamples = `  rootsfs revoke out
  rootsfs revoke --subject editor
  rootsfs revoke --all --session work --json`

func (a *app) newRevokeCmd() *cobra.Command {
	var all, net bool
	var subject string
	cmd := &cobra.Command{
		Use:     "revoke NAME... | --subject SERVER | --net | --all",
		Short:   "End roots: everything that programs hold of them is dead",
		Long:    revokeLong,
		Example: revokeExamples,
		Args: func(c *cobra.Command, args []string) error {
			return oneOf("names, --subject, --net and --all", "name the roots to revoke, or use --all; see: rootsfs roots list", len(args) > 0, subject != "", net, all)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revoke(cmd.Context(), control.RevokeRequest{Names: args, All: all, Subject: subject, Net: net})
		},
		ValidArgsFunction: a.completeRoots(-1),
	}
	cmd.Flags().BoolVar(&all, "all", false, "every root of the session, and its network")
	cmd.Flags().BoolVar(&net, "net", false, "every host of a command's network (run --net=HOSTS)")
	cmd.Flags().StringVar(&subject, "subject", "", "the roots that are for this `server` alone")
	return a.ofSession(cmd)
}

func (a *app) revoke(ctx context.Context, req control.RevokeRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	done := a.waiting("revoking")
	ans, err := control.Revoke.Call(ctx, c, req)
	if req.All && control.Unreachable(err) {
		// A signal reaches the session even if its socket does not answer.
		ans.Ended, err = c.RevokeBySignal(ctx)
	}
	done()
	if err != nil && len(ans.Ended) == 0 {
		return err
	}
	if rerr := a.report(ans, func() { a.printEnded(ans.Ended) }); rerr != nil {
		return rerr
	}
	if err != nil {
		return &exitError{Code: exitFailure, Err: fmt.Errorf("%w; new accesses are already refused", err)}
	}
	return nil
}

// printEnded prints how roots ended.
func (a *app) printEnded(ended []control.Ended) {
	if len(ended) == 0 {
		a.say("there was no root to revoke")
	}
	for _, e := range ended {
		if e.Error != "" {
			a.say("%s: %s, but not everything could be taken back: %s", quoteIfNeeded(e.Root), e.State, e.Error)
			continue
		}
		a.say("%s: %s in %.1f ms", quoteIfNeeded(e.Root), e.State, e.TookMS)
	}
}
