package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Network is the network of approved hosts that the session's command has.
type Network interface {
	// State returns its rules and open connections.
	State() control.NetState
	// New returns those of hosts, written as `run --net` takes them, that no rule names yet.
	New(hosts []string) ([]string, error)
	// Add permits more hosts, or none of them after an error.
	Add(hosts []string) error
	// Remove takes rules back, nil all of them, or none if one is not there. When it returns
	// no byte of a connection that only they permitted is carried any more.
	Remove(hosts []string) (removed []string, ended int, err error)
	// Close ends every connection for good. When it returns, their ends are on record.
	Close()
}

// errNoNetwork refuses what needs a network of approved hosts.
var errNoNetwork = &guard.Error{Kind: names.Invalid, Err: errors.New(
	"the session has no network of approved hosts, which is made at its start: rootsfs run --net=HOSTS")}

// listNet serves control.ListNet.
func (s *Session) listNet(context.Context, control.None) (control.NetState, error) {
	if s.opt.Network == nil {
		return control.NetState{}, errNoNetwork
	}
	return s.opt.Network.State(), nil
}

// addNet serves control.AddNet. What cannot be recorded is not permitted.
func (s *Session) addNet(_ context.Context, req control.NetRequest) (control.NetAdded, error) {
	out := control.NetAdded{Added: []string{}}
	switch {
	case s.opt.Network == nil:
		return out, errNoNetwork
	case s.isEnding():
		return out, errEnding
	}
	added, err := s.opt.Network.New(req.Hosts)
	if err != nil {
		return out, err
	}
	for _, host := range added {
		if err := s.reg.Note(names.OpGrant, "", guard.Allowed, "network "+host); err != nil {
			return out, fmt.Errorf("%s cannot be recorded, and nothing more is permitted: %w", host, err)
		}
	}
	if err := s.opt.Network.Add(added); err != nil {
		return out, errors.Join(err, s.noteRemoved(added))
	}
	out.Added = append(out.Added, added...)
	return out, nil
}

// removeNet serves control.RemoveNet.
func (s *Session) removeNet(_ context.Context, req control.NetRequest) (control.NetRemoved, error) {
	out := control.NetRemoved{Removed: []string{}}
	if s.opt.Network == nil {
		return out, errNoNetwork
	}
	if len(req.Hosts) == 0 {
		return out, &guard.Error{Kind: names.Invalid, Err: errors.New("no host is named; see: rootsfs net list")}
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
	if err := s.reg.Note(names.OpRevoke, "", guard.Allowed, "network "+strings.Join(removed, ",")); err != nil {
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
	e := control.Ended{Root: "network", State: guard.RevokedState.String(), TookMS: float64(time.Since(begun).Microseconds()) / 1000}
	if err := errors.Join(err, s.noteRemoved(removed)); err != nil {
		e.Error = err.Error()
	}
	return []control.Ended{e}
}
