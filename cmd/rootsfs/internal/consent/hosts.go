package consent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// errDeniedBefore refuses a host that was denied before. The owner is not asked again.
var errDeniedBefore = fmt.Errorf("%w, for as long as the session lasts; to be asked again: rootsfs consent forget", network.ErrDenied)

// HostDenied returns an error if the host was denied before, so that the owner is not asked
// again.
func (qs *Questions) HostDenied(host string) error {
	if qs.denials.coversHost(qs.commandSubject(), host) {
		return errDeniedBefore
	}
	return nil
}

// commandSubject returns the subject of questions about hosts. A server that the command runs has
// the same subject.
func (qs *Questions) commandSubject() guard.Subject { return guard.Subject(qs.cfg.Session) }

// AskHost asks whether the session's command may connect to a host. It asks the answerers of
// WayNetwork: the command's own MCP host first, and the owner if that host cannot ask. After
// recording the permission, AskHost calls permit with a duration, or 0 for the rest of the session.
// The error says why there is no permission. A denial is remembered. The cause of ctx says why a
// question ended without an answer. If the cause is network.ErrPermitted, a rule permits the host
// already, and AskHost returns nil without a call of permit.
func (qs *Questions) AskHost(ctx context.Context, h broker.Host, permit func(time.Duration) error) error {
	until, _ := ctx.Deadline()
	q := &broker.Question{Kind: broker.HostKind, ID: broker.NewID(), Asked: time.Now(), Until: until, Subject: qs.commandSubject(), Items: []broker.Item{}, Host: &h}
	a, err := qs.Asker(WayNetwork).Ask(ctx, q)
	what := "network " + h.String()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, network.ErrPermitted):
		return qs.noteHost(&h, guard.Allowed, what+": "+cause.Error(), nil)
	case cause != nil: // an answer that comes too late does not count
		return qs.noteHost(&h, guard.Refused, what+": "+cause.Error(), cause)
	case err != nil && !errors.Is(err, broker.ErrUnanswered):
		return qs.noteHost(&h, guard.Refused, what+": the question could not be put: "+err.Error(), network.ErrUnanswered)
	case err != nil: // too many questions wait
		return qs.noteHost(&h, guard.Refused, what+": "+err.Error(), network.ErrUnanswered)
	case !anyAllowed(a):
		if err := qs.remember(q); err != nil {
			qs.cfg.Log.Warn("a denial is not remembered", "host", h.String(), "error", err)
		}
		return qs.noteHost(&h, guard.Refused, what+": denied by "+a.By, network.ErrDenied)
	}
	length := a.Decisions[0].For
	detail := what + ": allowed by " + a.By
	if length > 0 {
		detail += " for " + length.String()
	}
	if err := qs.cfg.Registry.NoteFacts(names.OpGrant, guard.Allowed, hostFacts(&h), detail); err != nil {
		return fmt.Errorf("the permission cannot be recorded, so there is none: %w", err)
	}
	err = permit(length)
	if err == nil {
		return nil
	}
	if bad := qs.cfg.Registry.NoteFacts(names.OpRevoke, guard.Allowed, guard.Facts{Host: h.String()}, what); bad != nil {
		err = errors.Join(err, fmt.Errorf("the hosts are revoked, which cannot be recorded: %w", bad))
	}
	return err
}

// hostFacts returns the facts of a record about the host of a question.
func hostFacts(h *broker.Host) guard.Facts {
	return guard.Facts{Host: h.Name.Raw(), Port: h.Port, Program: h.Program.Raw()}
}

// noteHost records the end of a question about a host, and returns result. The refusal of the
// connection has a record of its own.
func (qs *Questions) noteHost(h *broker.Host, verdict guard.Verdict, detail string, result error) error {
	if err := qs.cfg.Registry.NoteConsent(guard.Caller{Subject: qs.commandSubject(), Via: guard.ViaNet, PID: h.PID}, verdict, hostFacts(h), detail); err != nil {
		qs.cfg.Log.Error("the answer to a question cannot be recorded", "host", h.String(), "error", err)
	}
	return result
}

// askCommandsHost asks through the MCP host of the session's command. It tries the connected
// servers of the command, until one does not return broker.ErrUnanswered.
func (qs *Questions) askCommandsHost(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	for _, one := range qs.cfg.Servers() {
		if one.Subject().WithoutSession() != q.Subject {
			continue
		}
		if a, err := one.Ask(ctx, q); err == nil || !errors.Is(err, broker.ErrUnanswered) {
			return a, err
		}
	}
	return broker.Answer{}, broker.ErrUnanswered
}

// decideHost returns the decision for an approval of a host.
func decideHost(req control.AnswerRequest) ([]broker.Decision, error) {
	switch {
	case req.Path != "", req.Mode != "", req.IdleMS != 0:
		return nil, invalid("a host is allowed as asked: path, mode and idle time are of files")
	case len(req.Only) > 1, len(req.Only) == 1 && req.Only[0] != 1:
		return nil, invalid("there is one host to allow, which has the number 1")
	case req.ForMS < 0, req.ForMS > config.MaxFor.Milliseconds():
		return nil, invalid("a duration is between 0 (with the session) and %v", config.MaxFor)
	}
	return []broker.Decision{{Allow: true, For: time.Duration(req.ForMS) * time.Millisecond}}, nil
}
