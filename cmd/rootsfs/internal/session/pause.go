package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A paused session refuses everything to its servers and its command. Its roots pause in the
// registry (guard/pause.go). Its network and its sockets close their connections, and refuse
// new ones until the session goes on.

// maxReason is how long the reason of a pause may be, in bytes.
const maxReason = 200

// pausing serialises the calls that begin or end a pause of the session.
type pausing struct{ mu sync.Mutex }

// pause serves control.Pause.
func (s *Session) pause(ctx context.Context, req control.PauseRequest) (control.PauseAnswer, error) {
	if len(req.Reason) > maxReason {
		return control.PauseAnswer{}, invalid("the reason has more than %d bytes: say it in fewer words", maxReason)
	}
	if s.isEnding() {
		return control.PauseAnswer{}, errEnding
	}
	begun := time.Now()
	err := s.beginPause(ctx, guard.PausedByOwner, req.Reason)
	a := control.PauseAnswer{TookMS: float64(time.Since(begun).Microseconds()) / 1000}
	for _, p := range s.pauses() {
		if p.Cause == string(guard.PausedByOwner) {
			a.Paused = p
		}
	}
	return a, err
}

// beginPause pauses the session for a cause.
func (s *Session) beginPause(ctx context.Context, cause guard.PauseCause, reason string) error {
	s.pausing.mu.Lock()
	defer s.pausing.mu.Unlock()
	s.opt.Sockets.Pause()
	if s.opt.Network != nil {
		s.opt.Network.Pause()
	}
	return s.reg.Pause(ctx, cause, reason)
}

// endPause ends the pause of a cause. If it was the last one, the session goes on.
func (s *Session) endPause(cause guard.PauseCause) error {
	s.pausing.mu.Lock()
	defer s.pausing.mu.Unlock()
	if err := s.reg.EndPause(cause); err != nil {
		return err
	}
	if len(s.reg.Paused()) > 0 {
		return nil
	}
	s.opt.Sockets.Resume()
	if s.opt.Network != nil {
		s.opt.Network.Resume()
	}
	return nil
}

// pauses returns the pauses in force.
func (s *Session) pauses() []control.Paused { return pausesOf(s.reg) }

func pausesOf(reg *guard.Registry) (list []control.Paused) {
	for _, p := range reg.Paused() {
		list = append(list, control.Paused{Cause: string(p.Cause), Since: p.Since, Reason: names.Foreign(p.Reason)})
	}
	return list
}

// suspendedServers returns the servers that are suspended.
func (s *Session) suspendedServers() (list []control.Suspended) {
	for _, who := range s.reg.Suspended() {
		list = append(list, control.Suspended{Subject: names.Foreign(who.Subject), Since: who.Since, Why: names.Foreign(who.Why)})
	}
	return list
}

// resume serves control.Resume.
func (s *Session) resume(_ context.Context, req control.ResumeRequest) (control.ResumeAnswer, error) {
	a := control.ResumeAnswer{Resumed: []names.Foreign{}}
	if req.All && req.Subject != "" {
		return a, invalid("name a server, or say all of them, not both")
	}
	which := []guard.Subject{guard.Subject(req.Subject)}
	if req.All {
		list := s.pauses()
		for i := range list {
			if list[i].Cause == string(guard.PausedByOwner) {
				err := s.endPause(guard.PausedByOwner)
				a.Pause, a.Suspended = &list[i], s.suspendedServers()
				return a, err
			}
		}
		which = nil
		for _, one := range s.reg.Suspended() {
			which = append(which, one.Subject)
		}
		if len(which) == 0 && len(list) > 0 {
			return a, &guard.Error{Kind: names.Permission, Err: errors.New(list[0].String())}
		}
	}
	for _, who := range which {
		if err := s.reg.Resume(who); err != nil {
			return a, err
		}
		a.Resumed = append(a.Resumed, names.Foreign(who))
	}
	return a, nil
}
