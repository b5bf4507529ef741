package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Network is the network of approved hosts that the session's command has.
type Network interface {
	// State returns its rules and open connections.
	State() control.NetState
	// Add permits more hosts, written as `run --net` takes them, or none of them after an
	// error. It returns those that no rule named before, which record has accepted.
	Add(hosts []string, record func(host string) error) ([]string, error)
	// Remove takes rules back, nil all of them, or none if one is not there. When it returns
	// no byte of a connection that only they permitted is carried any more.
	Remove(hosts []string) (removed []string, ended int, err error)
	// Close ends every connection for good. When it returns, their ends are on record.
	Close()
}

// ErrNoNetwork refuses what needs a network of approved hosts.
var ErrNoNetwork error = invalid("the session has no network of its own; a run has one at levels namespaces and bubblewrap, without --net for the whole network")

// listNet serves control.ListNet.
func (s *Session) listNet(context.Context, control.None) (control.NetState, error) {
	if s.opt.Network == nil {
		return control.NetState{}, ErrNoNetwork
	}
	return s.opt.Network.State(), nil
}

// addNet serves control.AddNet. What cannot be recorded is not permitted.
func (s *Session) addNet(_ context.Context, req control.NetRequest) (control.NetAdded, error) {
	out := control.NetAdded{Added: []string{}}
	switch {
	case s.opt.Network == nil:
		return out, ErrNoNetwork
	case s.isEnding():
		return out, errEnding
	}
	added, err := s.opt.Network.Add(req.Hosts, func(host string) error {
		if err := s.reg.NoteFacts(names.OpGrant, guard.Allowed, guard.Facts{Host: host}, "network "+host); err != nil {
			return fmt.Errorf("%s cannot be recorded, and nothing more is permitted: %w", host, err)
		}
		return nil
	})
	if len(added) > 0 && err != nil {
		err = errors.Join(err, s.noteRemoved(added))
	}
	if err != nil {
		return out, err
	}
	out.Added = append(out.Added, added...)
	return out, nil
}

// removeNet serves control.RemoveNet.
func (s *Session) removeNet(_ context.Context, req control.NetRequest) (control.NetRemoved, error) {
	out := control.NetRemoved{Removed: []string{}}
	if s.opt.Network == nil {
		return out, ErrNoNetwork
	}
	if len(req.Hosts) == 0 {
		return out, invalid("no host is named; see: rootsfs net list")
	}
	removed, ended, err := s.opt.Network.Remove(req.Hosts)
	if err != nil {
		return out, err
	}
	out.Removed, out.Connections = removed, ended
	return out, s.noteRemoved(removed)
}

func (s *Session) noteRemoved(removed []string) error {
	if len(removed) == 0 {
		return nil
	}
	hosts := strings.Join(removed, ",")
	if err := s.reg.NoteFacts(names.OpRevoke, guard.Allowed, guard.Facts{Host: hosts}, "network "+hosts); err != nil {
		return fmt.Errorf("the hosts are revoked, which cannot be recorded: %w", err)
	}
	return nil
}

// cutNetwork takes every rule back and puts that on record.
func (s *Session) cutNetwork() []control.Ended {
	if s.opt.Network == nil {
		return nil
	}
	begun := time.Now()
	removed, _, err := s.opt.Network.Remove(nil)
	if err == nil && len(removed) == 0 {
		return nil
	}
	e := endedNow("network", begun)
	if err := errors.Join(err, s.noteRemoved(removed)); err != nil {
		e.Error = names.Text(err.Error())
	}
	return []control.Ended{e}
}

// errDeniedBefore refuses a host without a question.
var errDeniedBefore = fmt.Errorf("%w, for as long as the session lasts; to be asked again: rootsfs consent forget", network.ErrDenied)

// HostDenied returns why the command may not connect to a host without being asked about: it
// was denied before.
func (s *Session) HostDenied(host string) error {
	if s.denials.coversHost(s.command(), host) {
		return errDeniedBefore
	}
	return nil
}

// command is the subject of questions about hosts: a server that the command is has the same.
func (s *Session) command() guard.Subject { return guard.Subject(s.dir.Name()) }

// AskHost asks whether the session's command may connect to a host: through the command's own
// MCP host, if it has one that can ask, otherwise as servers' questions about files. It calls
// permit, with a length of time or 0 for the rest of the session, once the permission is on
// record, and returns why there is none. A denial is remembered. The cause of ctx says why a
// question is over without an answer.
func (s *Session) AskHost(ctx context.Context, h broker.Host, permit func(time.Duration) error) error {
	until, _ := ctx.Deadline()
	q := &broker.Question{Kind: broker.HostKind, ID: broker.NewID(), Asked: time.Now(), Until: until, Subject: s.command(), Items: []broker.Item{}, Host: &h}
	a, err := s.asker(WayNetwork).Ask(ctx, q)
	what := "network " + h.String()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, network.ErrPermitted):
		return s.noteHost(&h, guard.Allowed, what+": "+cause.Error(), nil)
	case cause != nil: // an answer that comes too late is none
		return s.noteHost(&h, guard.Refused, what+": "+cause.Error(), cause)
	case err != nil && !errors.Is(err, broker.ErrUnanswered):
		return s.noteHost(&h, guard.Refused, what+": the question could not be put: "+err.Error(), network.ErrUnanswered)
	case err != nil: // too many wait
		return s.noteHost(&h, guard.Refused, what+": "+err.Error(), network.ErrUnanswered)
	case !anyAllowed(a):
		if err := s.remember(q); err != nil {
			s.log.Warn("a denial is not remembered", "host", h.String(), "error", err)
		}
		return s.noteHost(&h, guard.Refused, what+": denied by "+a.By, network.ErrDenied)
	}
	length := a.Decisions[0].For
	detail := what + ": allowed by " + a.By
	if length > 0 {
		detail += " for " + length.String()
	}
	if err := s.reg.NoteFacts(names.OpGrant, guard.Allowed, hostFacts(&h), detail); err != nil {
		return fmt.Errorf("the permission cannot be recorded, so there is none: %w", err)
	}
	if err := permit(length); err != nil {
		return errors.Join(err, s.noteRemoved([]string{h.String()}))
	}
	return nil
}

// hostFacts returns what a record tells of the host of a question.
func hostFacts(h *broker.Host) guard.Facts {
	return guard.Facts{Host: h.Name, Port: h.Port, Program: h.Program}
}

// noteHost records the end of a question about a host, and returns result. The refusal of the
// connection is on record besides.
func (s *Session) noteHost(h *broker.Host, verdict guard.Verdict, detail string, result error) error {
	if err := s.reg.NoteConsent(guard.Caller{Subject: s.command(), Via: guard.ViaNet, PID: h.PID}, verdict, hostFacts(h), detail); err != nil {
		s.log.Error("the answer to a question cannot be recorded", "host", h.String(), "error", err)
	}
	return result
}

// askCommandsHost asks through the MCP host of the session's command.
func (s *Session) askCommandsHost(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	for _, one := range s.broker.Sessions() {
		if one.Subject().WithoutSession() != q.Subject {
			continue
		}
		if a, err := one.Ask(ctx, q); err == nil || !errors.Is(err, broker.ErrUnanswered) {
			return a, err
		}
	}
	return broker.Answer{}, broker.ErrUnanswered
}

// decideHost makes the decision of an approval of a host.
func decideHost(req control.AnswerRequest) ([]broker.Decision, error) {
	switch {
	case req.Path != "", req.Mode != "", req.IdleMS != 0:
		return nil, invalid("a host is allowed as asked: path, mode and idle time are of files")
	case len(req.Only) > 1, len(req.Only) == 1 && req.Only[0] != 1:
		return nil, invalid("there is one host to allow, which has the number 1")
	case req.ForMS < 0, req.ForMS > longestGrant.Milliseconds():
		return nil, invalid("a duration is between 0 (with the session) and %v", longestGrant)
	}
	return []broker.Decision{{Allow: true, For: time.Duration(req.ForMS) * time.Millisecond}}, nil
}

// saveHost writes a host that is to be allowed to the configuration, for runs of the same name.
func (s *Session) saveHost(q *broker.Question, length time.Duration) (file string, err error) {
	if s.opt.NameUngiven {
		return "", invalid("nothing was saved or allowed: this run is called after its command, which may be a project's; allow the host for this run alone, and give later runs a name: rootsfs run --name NAME")
	}
	rule, err := network.ParseRule(q.Host.String())
	if err != nil {
		return "", err
	}
	_, file, _ = s.confStatus()
	if file == "" {
		if file, err = config.DefaultPath(); err != nil {
			return "", err
		}
	}
	subject := guard.Subject(cmp.Or(s.opt.Name, s.opt.NameFor))
	return file, config.SaveNet(file, config.Net{Hosts: []network.Rule{rule}, Subject: string(subject), For: length})
}
