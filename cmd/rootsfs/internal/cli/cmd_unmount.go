package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

const unmountLong = `End a session, which is named by its mountpoint or its name. Every root is revoked, so
that whatever programs hold is dead; then the session is unmounted. A session of
"rootsfs serve" has no mount, and so only a name. If something still holds the mount,
such as a container that was started meanwhile, the mount leaves the tree all the same;
unmount says who, and what they hold is dead.

What a killed daemon left mounted ("Transport endpoint is not connected") is cleared
away. A mount that is not yours, or not of rootsfs, is left alone.`

const unmountExamples = `  rootsfs unmount /mnt/work
  rootsfs unmount work --json`

func (a *app) newUnmountCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "unmount MOUNTPOINT",
		Aliases:           []string{"umount"},
		Short:             "End a session: revoke every root and unmount",
		Long:              unmountLong,
		Example:           unmountExamples,
		Args:              argCount(1, 1, "the mountpoint"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.unmount(cmd.Context(), args[0]) },
		ValidArgsFunction: completeSessions(func(in control.Info) (word, what string) { return cmp.Or(in.Point, in.Name), in.Name }),
	}
	a.jsonFlag(cmd)
	return cmd
}

// unmountResult is the output of unmount.
type unmountResult struct {
	Session string `json:"session,omitempty"`
	Point   string `json:"mountpoint"`
	// Stale: there was no session, only what a dead daemon had left.
	Stale bool `json:"stale"`
	control.UnmountAnswer
}

func (a *app) unmount(ctx context.Context, where string) error {
	if where == "" { // an empty path would mean the working directory
		return usage(errors.New("the mountpoint is empty; see what is mounted: rootsfs status"))
	}
	where, err := expandHome(where)
	if err != nil {
		return usage(fmt.Errorf("mountpoint %w", err))
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
	ctx, cancel := interruptible(ctx)
	defer cancel()
	done := a.waiting("revoking and unmounting")
	answer, err := control.Unmount.Call(ctx, c, control.None{})
	if err == nil || errors.Is(err, control.ErrNoSession) {
		// The name and the directory are free when the daemon has ended.
		c.WaitEnded(ctx, 10*time.Second)
	}
	done()
	if errors.Is(err, control.ErrNoSession) && in.Point != "" {
		// The session was killed, or has ended by itself, at this moment.
		return a.unmountStale(in.Point)
	}
	if err != nil {
		return err
	}
	res := unmountResult{Session: in.Name, Point: in.Point, UnmountAnswer: answer}
	defer a.warnStaged(ctx, in.Name)
	return a.report(res, func() {
		if in.Point == "" { // such as a session of `rootsfs serve`
			a.say("ended session %s; %s revoked", in.Name, plural(len(answer.Ended), "root"))
			return
		}
		a.say("unmounted %s; %s revoked", quoteIfNeeded(in.Point), plural(len(answer.Ended), "root"))
		if answer.Held {
			by := cmp.Or(names.Join(answer.HeldBy, ", "), "something that only root can look into, or that is gone")
			a.say("still held, and dead to who holds it: %s", by)
		}
	})
}

// unmountStale removes the remains of a dead daemon.
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
	// The daemon is gone, and its unwritten data is lost. The daemon's directory in the runtime
	// directory was removed when the sessions were listed.
	return a.report(unmountResult{Point: point, Stale: true, UnmountAnswer: control.UnmountAnswer{Ended: []control.Ended{}}}, func() {
		a.say("cleared the stale mount at %s", quoteIfNeeded(point))
	})
}
