package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ceilingState is the ceiling in force.
type ceilingState struct {
	mu      sync.Mutex // guards the fields below
	current *config.Ceiling
	read    time.Time // when the files were read last without a mistake
	problem error     // why the present state of one of the files is not in force

	reading sync.Mutex // held from reading a state until it is in force; guards unreported
	// unreported are the roots that a ceiling of the fleet has ended, and of which the fleet's agent
	// does not know yet: the session may see the agent's file before the agent asks.
	unreported []control.Ended
}

// loadCeiling puts the ceiling in force before the first root is granted. If it cannot be read,
// the session does not begin.
func (s *Session) loadCeiling(ctx context.Context) error {
	c, err := s.opt.Ceiling, error(nil)
	if c == nil {
		c, err = config.LoadCeiling()
	}
	if err == nil {
		err = s.opt.within(c)
	}
	if err != nil {
		return CeilingError(err)
	}
	s.ceiling.current, s.ceiling.read = c, time.Now()
	_, err = s.reg.SetCeilings(ctx, c.Roots)
	return err
}

// CeilingError returns the refusal of a session because of the ceiling: it could not be read, or
// the session would be above it.
func CeilingError(err error) error {
	return &control.Error{Class: control.NotApproved, Text: err.Error()}
}

// within returns an error if a session as a whole is above a ceiling.
func (o *Options) within(c *config.Ceiling) error {
	if err := c.CheckPaths(o.AuditPaths.String()); err != nil || o.Within == nil {
		return err
	}
	return o.Within(c)
}

// followCeiling applies changes of the ceiling until the context ends, including those since
// the session began.
func (s *Session) followCeiling(ctx context.Context) {
	changes := make(chan struct{}, 1)
	defer s.paths.Signal(config.CeilingDir, hostwatch.Entries, changes)()
	defer s.paths.Signal(config.CeilingDir+"/ceiling.d", hostwatch.Entries, changes)()
	if dir, _, err := config.FleetDir(); err == nil && s.lease != nil {
		defer s.paths.Signal(dir, hostwatch.Entries, changes)()
	}
	var mu sync.Mutex // guards watched
	watched := map[string]func(){}
	apply := func() {
		if ctx.Err() != nil || s.isEnding() {
			return
		}
		if above, _ := s.applyCeiling(ctx); above != nil { // the log has other errors
			go s.end(above.Error())
		}
		mu.Lock()
		defer mu.Unlock()
		for _, file := range config.CeilingFiles() { // each may be a link to another directory
			if watched[file] == nil {
				watched[file] = s.paths.Signal(file, hostwatch.Path, changes)
			}
		}
	}
	defer func() {
		for _, stop := range watched {
			stop()
		}
	}()
	done := config.WatchCeiling(ctx, changes, func(*config.Ceiling, error) { apply() })
	apply()
	<-done
}

// readCeiling serves control.ReadCeilingNow.
func (s *Session) readCeiling(ctx context.Context, _ control.None) (a control.CeilingAnswer, err error) {
	above, err := s.applyCeiling(ctx)
	s.ceiling.reading.Lock()
	a.Ended = append([]control.Ended{}, s.ceiling.unreported...)
	s.ceiling.unreported = nil
	s.ceiling.reading.Unlock()
	if above != nil {
		s.end(above.Error())
		a.Ended, err = append(a.Ended, s.outcome.ended...), errors.Join(err, s.outcome.revokeErr)
	}
	return a, err
}

// applyCeiling puts the present state of the ceiling in force. above says why the session as a whole
// has to end; nil: it stays. If a file has a mistake, the last good state of this file stays in
// force.
func (s *Session) applyCeiling(ctx context.Context) (above, err error) {
	s.ceiling.reading.Lock()
	defer s.ceiling.reading.Unlock()
	old := s.Ceiling() // once the session has begun, only applyCeiling changes the ceiling
	next, err := config.LoadCeilingAfter(old)
	s.ceiling.mu.Lock()
	problem := s.ceiling.problem
	if s.ceiling.current, s.ceiling.problem = next, err; err == nil {
		s.ceiling.read = time.Now()
	}
	read := s.ceiling.read
	s.ceiling.mu.Unlock()
	if err != nil && (problem == nil || err.Error() != problem.Error()) {
		s.log.Error("a file of the ceiling cannot be used, and counts as it was before", "error", err, "since", read.Format(time.DateTime))
		s.note(guard.Failed, "ceiling kept: "+err.Error())
		s.hub.Publish(control.Event{Time: time.Now(), Kind: "config-error", Detail: names.Foreign(err.Error())})
	}
	if next.Equal(old) && (err != nil || problem == nil) {
		return nil, err
	}
	ended, above, lowerErr := s.lower(ctx, next)
	if !slices.Equal(next.OfFleet, old.OfFleet) {
		s.ceiling.unreported = append(s.ceiling.unreported, ended...)
	}
	return above, errors.Join(err, lowerErr)
}

// lower applies a ceiling to the roots and to the network, and ends the roots, hosts and secrets
// that the ceiling forbids. above says why the session as a whole has to end. The caller ends the
// session.
func (s *Session) lower(ctx context.Context, c *config.Ceiling) (list []control.Ended, above, err error) {
	begun := time.Now()
	ended, err := s.reg.SetCeilings(ctx, c.Roots)
	var notes []string
	for _, root := range slices.Sorted(maps.Keys(ended)) {
		notes = append(notes, fmt.Sprintf("root %s has ended: %v", names.Quote(string(root)), ended[root]))
		list = append(list, endedNow(string(root), begun))
	}
	more, netErr := s.lowerNetwork(c)
	notes = append(notes, more...)
	detail := strings.Join(append([]string{"the ceiling of this machine has changed"}, notes...), "; ")
	s.note(guard.Allowed, detail)
	s.log.Warn(detail)
	s.hub.Publish(control.Event{Time: time.Now(), Kind: "ceiling", Detail: names.Foreign(detail)})
	if err = errors.Join(err, netErr); err != nil {
		s.log.Error("not everything that the ceiling forbids could be taken back", "error", err)
	}
	s.avail.Update()
	if above = s.opt.within(c); above != nil {
		s.log.Error("ending: revoking every root, then unmounting", "error", above)
	}
	return list, above, err
}

// lowerNetwork removes the hosts and secrets that a ceiling forbids.
func (s *Session) lowerNetwork(c *config.Ceiling) (notes []string, err error) {
	if s.opt.Network == nil {
		return nil, nil
	}
	var gone []string
	now := s.opt.Network.State()
	for _, host := range now.Hosts {
		rule, err := network.ParseRule(host)
		if err == nil {
			err = c.CheckHost(rule)
		}
		if err != nil {
			gone, notes = append(gone, host), append(notes, err.Error())
		}
	}
	for _, text := range now.Secrets {
		name, at, _ := strings.Cut(text, "=")
		u, err := secret.ParseURL(at)
		if err == nil {
			err = c.CheckSecret(name, u)
		}
		if err != nil {
			gone, notes = append(gone, text), append(notes, err.Error())
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	removed, _, err := s.opt.Network.Remove(gone)
	return notes, errors.Join(err, s.noteRemoved(removed))
}

// checkHosts returns an error if the ceiling forbids any of the hosts. The hosts are written as
// run --net takes them.
func (s *Session) checkHosts(hosts []string) error {
	c := s.Ceiling()
	for _, h := range hosts {
		list, err := network.ParseRules(h)
		if err != nil {
			return nil // Network.Add says what is wrong
		}
		for _, rule := range list {
			if err := c.CheckHost(rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ceiling returns the ceiling in force.
func (s *Session) Ceiling() *config.Ceiling {
	s.ceiling.mu.Lock()
	defer s.ceiling.mu.Unlock()
	return s.ceiling.current
}

// ceilingStatus describes the ceiling; nil: the machine has none.
func (s *Session) ceilingStatus() *control.Ceiling {
	s.ceiling.mu.Lock()
	defer s.ceiling.mu.Unlock()
	if s.ceiling.current.Empty() && s.ceiling.problem == nil {
		return nil
	}
	st := &control.Ceiling{Files: []names.Foreign{}, Read: s.ceiling.read}
	for _, file := range s.ceiling.current.Files {
		st.Files = append(st.Files, names.Foreign(file))
	}
	if s.ceiling.problem != nil {
		st.Problem = names.Foreign(s.ceiling.problem.Error())
	}
	return st
}
