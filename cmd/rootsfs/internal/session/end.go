package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// Run serves until the session has ended: because stop was closed, the owner
// asked, or somebody unmounted. The error says what could not be taken back; with one, Run
// returns when nobody holds anything in the mount any more.
func (s *Session) Run(stop <-chan struct{}) error {
	select {
	case <-stop:
		s.log.Info("stopping: revoking every root, then unmounting")
		s.end(cmp.Or(s.opt.Stopped, "stopped by a signal"))
	case <-s.ending.Done():
	case <-s.left:
		s.lost()
	case <-s.served():
		s.lost()
	}
	<-s.endDone
	if s.endErr != nil {
		s.waitServed()
	}
	s.cancel()
	s.close()
	s.log.Info("ended", "session", s.dir.Name())
	return errors.Join(s.unanchored(), s.endErr)
}

// anchored ends the session if its audit log cannot be anchored.
func (s *Session) anchored() {
	if err := s.unanchored(); err != nil {
		s.log.Error("ending: revoking every root, then unmounting", "error", err)
		s.end("the audit log could not be anchored")
	}
}

// unanchored says why the audit log could not be anchored when it was opened.
func (s *Session) unanchored() error {
	return noAudit(s.audit.opened().Anchored())
}

// waitServed waits until nobody holds the mount, if not everything was taken back. Where it could
// not be unmounted that is tried again, for a while: with the process its connection ends as
// well, and what stays is a dead entry in the tree.
func (s *Session) waitServed() {
	for tries := 0; s.stuck && tries < mostUnmounts; tries++ {
		select {
		case <-s.served():
			return
		case <-time.After(unmountAgain):
		}
		s.stuck = s.unmount() != nil
	}
	if s.revokeErr == nil {
		return
	}
	s.log.Warn("not everything could be taken back; refusing everything until the last holder is gone", "mountpoint", s.Point())
	<-s.served()
}

// A session that could not be unmounted, for want of descriptors or because fusermount3 does
// not find the mount in its table, tries again at this interval, so often.
const (
	unmountAgain = 2 * time.Second
	mostUnmounts = 5
)

// The kernel lets go of a mount that nobody holds within milliseconds. A process that is just
// making a mount namespace (a container that starts, a run of our own) has copies of all
// mounts for a moment.
const (
	letGoAfter = 300 * time.Millisecond
	lookFor    = 500 * time.Millisecond // at one process
)

// lookWhoHolds says who still holds the mount that was detached. With everything revoked a
// holder reads and changes nothing, and gets errors from now on; so nobody waits for it. A
// container or sandbox that began meanwhile may hold it for days.
func (s *Session) lookWhoHolds() {
	if s.mnt == nil || s.opt.Leave {
		return
	}
	select {
	case <-s.mnt.Served():
		return
	case <-time.After(letGoAfter):
	}
	s.held = true
	s.holders = mountpoint.Holders(s.mnt.Info(), lookFor)
	s.log.Warn("something still held the mount; it gets errors from now on", "mountpoint", s.Point(), "holders", s.holders)
}

// end revokes every root and unmounts, once; every caller returns when that is
// done.
func (s *Session) end(why string) {
	s.endOnce.Do(func() {
		defer close(s.endDone)
		s.beginEnding()
		ctx := context.Background()
		s.closeBroker()
		ended, err := s.revokeAll(ctx)
		s.ended, s.revokeErr = ended, err
		if s.opt.Network != nil {
			s.opt.Network.Close()
		}
		if err != nil {
			s.log.Error("not everything could be taken back", "error", err)
		}
		closeErr := s.unmount()
		if s.stuck = closeErr != nil; s.stuck {
			s.log.Error("cannot unmount; everything in the mount is refused", "error", closeErr)
		}
		s.endErr = errors.Join(err, closeErr)
		if s.endErr == nil {
			s.lookWhoHolds()
		} else { // for as long as it is held
			if err := s.publish(closeErr == nil); err != nil {
				s.log.Error("the session file could not be brought up to date", "error", err)
			}
		}
		verdict := guard.Allowed
		if s.endErr != nil {
			verdict = guard.Failed
		}
		detail := why
		if where := s.Point(); where != "" {
			detail = where + ": " + why
		}
		if err := s.reg.NoteFacts(names.OpUnmount, verdict, guard.Facts{Point: s.Point()}, detail); err != nil {
			s.log.Error("the unmount could not be recorded", "error", err)
		}
		s.hub.Publish(control.Event{Time: time.Now(), Kind: "unmounted", Detail: names.Foreign(why)})
	})
	<-s.endDone
}

// undo takes back what Start did.
func (s *Session) undo() {
	s.cancel()
	s.closeBroker()
	if s.reg != nil {
		_, _ = s.reg.RevokeAll(context.Background())
	}
	if s.mnt != nil {
		if err := s.mnt.Close(); err != nil {
			// Nobody tries again, as after a start: for want of descriptors, mostly.
			s.log.Error("cannot unmount; everything in the mount is refused", "error", err)
		}
	}
	s.close()
}

func (s *Session) close() {
	s.hub.Close()
	if s.watching != nil {
		s.reg.RemoveView(s.watching)
		s.watching.Close()
	}
	s.journal.close()
	if s.srv != nil {
		s.srv.Close()
	}
	if s.reg != nil {
		s.closeStages()
	}
	if s.avail != nil {
		s.avail.close()
	}
	if s.reload != nil {
		<-s.reload
	}
	if s.audit != nil {
		if err := s.audit.close(); err != nil && s.log != nil {
			s.log.Error("the audit log could not be finished", "error", err)
		}
	}
	if s.dir != nil {
		_ = s.dir.Remove() // the next command that meets it removes it
	}
}

// errEnding refuses changes while everything is being revoked.
var errEnding = errors.New("the session is ending; start another one: rootsfs mount")

// endByOwner serves control.Unmount.
func (s *Session) endByOwner(context.Context, control.None) (control.UnmountAnswer, error) {
	s.end("unmounted by the owner")
	return control.UnmountAnswer{Ended: s.ended, Held: s.held || s.endErr != nil, HeldBy: names.List[names.Text](s.holders)}, s.endErr
}

func (s *Session) isEnding() bool { return s.ending.Err() != nil }
