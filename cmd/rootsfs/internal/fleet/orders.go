package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Ended reports the end of one root, socket or network by an order, and the session. If Root is
// "", the session is paused, and Error says what the session could not take back.
type Ended struct {
	Session names.Foreign `json:"session"`
	control.Ended
}

// carryOut carries out the revocations that due lists, in every live session of this machine. Each
// session then reads the lease. If the returned error is nil, each session has answered or has
// ended. If an Ended has an error, new accesses to its root are already refused, but calls under
// way may still take effect.
func carryOut(ctx context.Context, due []Revocation) ([]Ended, error) {
	all, err := control.List()
	if err != nil {
		return nil, err
	}
	type outcome struct {
		ended []Ended
		err   error
	}
	out := make([]outcome, len(all))
	var wait sync.WaitGroup
	for i, in := range all {
		wait.Go(func() {
			ended, err := carryOutIn(ctx, in, due)
			out[i] = outcome{ended, err}
		})
	}
	wait.Wait()
	var ended []Ended
	var errs []error
	for i, o := range out {
		ended = append(ended, o.ended...)
		if o.err != nil {
			errs = append(errs, fmt.Errorf("session %s: %w", all[i].Name, o.err))
		}
	}
	return ended, errors.Join(errs...)
}

// carryOutIn is carryOut for one session.
func carryOutIn(ctx context.Context, in control.Info, due []Revocation) (ended []Ended, err error) {
	c := control.Dial(in)
	for _, r := range due {
		if r.Session != "" && r.Session != in.Name {
			continue
		}
		got, err := revokeIn(ctx, c, r)
		for _, e := range got {
			ended = append(ended, Ended{names.Foreign(in.Name), e})
		}
		if err != nil {
			return ended, ignoreEnded(in, err)
		}
	}
	got, err := control.ReadLeaseNow.Call(ctx, c, control.None{})
	var refusal *control.Error
	if errors.As(err, &refusal) && got.Lease.Fleet == "" {
		// The session began before the machine joined, and has no lease.
		if lease, err := control.ReadLease(); err != nil || lease.Locked == "" {
			return ended, err
		}
		got, err := revokeIn(ctx, c, Revocation{All: true})
		for _, e := range got {
			ended = append(ended, Ended{names.Foreign(in.Name), e})
		}
		return ended, ignoreEnded(in, err)
	}
	if errors.As(err, &refusal) {
		// The session is paused, and says what it could not take back.
		return append(ended, Ended{names.Foreign(in.Name), control.Ended{State: "paused", Error: names.Text(err.Error())}}), nil
	}
	return ended, ignoreEnded(in, err)
}

// revokeIn revokes in one session. It returns nil if there is nothing to revoke.
func revokeIn(ctx context.Context, c *control.Client, r Revocation) ([]control.Ended, error) {
	got, err := control.Revoke.Call(ctx, c, r.request())
	if r.All && control.Unreachable(err) {
		got.Ended, err = c.RevokeBySignal(ctx)
	}
	var refusal *control.Error
	switch {
	case err == nil, len(got.Ended) > 0: // each Ended has its error
		return got.Ended, nil
	case errors.As(err, &refusal) && (refusal.Class == control.NoSuch || r.Net && refusal.Class == control.Usage):
		return nil, nil // the session has no such root, or no network
	}
	return nil, err
}

// ignoreEnded returns err, or nil if the session has ended.
func ignoreEnded(in control.Info, err error) error {
	if err == nil {
		return nil
	}
	all, listErr := control.List()
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	for _, live := range all {
		if live.Name == in.Name && live.PID == in.PID && live.Start == in.Start {
			return err
		}
	}
	return nil
}
