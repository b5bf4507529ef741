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
	// Add permits more hosts, in the form of `run --net`, or none of them after an error. It
	// returns the hosts that no rule named before. It permits only hosts that record accepts.
	// Hosts that Add returns with an error are recorded and not permitted.
	Add(hosts []string, record func(host string) error) ([]string, error)
	// Remove removes rules and secrets (nil: all of them), or nothing if a rule does not exist.
	// ended is the number of connections that only the removed rules and secrets permitted. When
	// Remove returns, these connections carry no more data.
	Remove(hosts []string) (removed []string, ended int, err error)
	// Pause ends every connection and refuses new ones until Resume. When it returns, no
	// connection carries any more data.
	Pause()
	Resume()
	// Close ends every connection for good. When it returns, the ends of the connections are
	// recorded.
	Close()
}

// ErrNoNetwork refuses requests that need a network of approved hosts.
var ErrNoNetwork error = invalid("the session has no network of its own; a run has one at levels namespaces and bubblewrap, without --net for the whole network")

// listNet serves control.ListNet.
func (s *Session) listNet(context.Context, control.None) (control.NetState, error) {
	if s.opt.Network == nil {
		return control.NetState{}, ErrNoNetwork
	}
	return s.opt.Network.State(), nil
}

// addNet serves control.AddNet. A host is not permitted if the record fails.
func (s *Session) addNet(_ context.Context, req control.NetRequest) (control.NetAdded, error) {
	out := control.NetAdded{Added: []string{}}
	switch {
	case s.opt.Network == nil:
		return out, ErrNoNetwork
	case s.isEnding():
		return out, errEnding
	}
	if err := s.lease.checkGrants(); err != nil {
		return out, err
	}
	if err := s.checkHosts(req.Hosts); err != nil {
		return out, err
	}
	added, err := s.opt.Network.Add(req.Hosts, func(host string) error {
		if err := s.reg.NoteFacts(names.OpGrant, guard.Allowed, guard.Facts{Host: host}, "network "+host); err != nil {
			return fmt.Errorf("%s cannot be recorded, and nothing more is permitted: %w", host, err)
		}
		return nil
	})
	if above := s.checkHosts(added); err == nil && above != nil { // the ceiling was lowered meanwhile
		_, _, err = s.opt.Network.Remove(added)
		err = errors.Join(above, err)
	}
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

// cutNetwork removes every rule and every secret of the network, and records that.
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

// saveHost writes an approved host to the configuration, for runs of the same name.
func (s *Session) saveHost(h *broker.Host, length time.Duration) (file string, err error) {
	if s.opt.HasProgramName {
		return "", invalid("nothing was saved or allowed: this run is called after its command, which may be a project's; allow the host for this run alone, and give later runs a name: rootsfs run --name NAME")
	}
	rule, err := network.ParseRule(h.String())
	if err != nil {
		return "", err
	}
	_, file, _ = s.conf.status()
	if file == "" {
		if file, err = config.DefaultPath(); err != nil {
			return "", err
		}
	}
	subject := guard.Subject(cmp.Or(s.opt.Name, s.opt.NameSource))
	return file, config.SaveNet(file, config.Net{Hosts: []network.Rule{rule}, Subject: string(subject), For: length})
}
