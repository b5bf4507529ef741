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

// Run serves until the session has ended: because stop was closed, the mount was unmounted, or the
// session ended itself, for example at a command of its owner. The error says what could not be
// revoked or unmounted, or that the audit log could not be anchored. If a root could not be
// revoked, Run returns only when no program holds anything in the mount any more. If only the
// unmount failed, Run repeats the unmount a few times.
func (s *Session) Run(stop <-chan struct{}) error {
	select {
	case <-stop:
		s.log.Info("stopping: revoking every root, then unmounting")
		s.end(cmp.Or(s.opt.StopReason, "stopped by a signal"))
	case <-s.ending.Done():
	case <-s.unlisted:
		s.endWithoutMount()
	case <-s.served():
		s.endWithoutMount()
	}
	<-s.endDone
	if s.outcome.err != nil {
		s.waitServed()
	}
	s.cancel()
	s.close()
	s.log.Info("ended", "session", s.dir.Name())
	return errors.Join(s.anchorErr(), s.outcome.err)
}

// endUnlessAnchored ends the session if its audit log cannot be anchored.
func (s *Session) endUnlessAnchored() {
	if err := s.anchorErr(); err != nil {
		s.log.Error("ending: revoking every root, then unmounting", "error", err)
		s.end("the audit log could not be anchored")
	}
}

// anchorErr returns why the audit log could not be anchored when it was opened.
func (s *Session) anchorErr() error {
	return wrapAuditErr(s.audit.opened().Anchored())
}

// waitServed first repeats a failed unmount, at most maxUnmountRetries times. Then, if a root could
// not be revoked, it waits until no program holds the mount. If only the unmount failed, waitServed
// does not wait any longer: the FUSE connection ends with this process, and after that only a dead
// entry stays in the table of mounts.
func (s *Session) waitServed() {
	for tries := 0; s.outcome.isStuck && tries < maxUnmountRetries; tries++ {
		select {
		case <-s.served():
			return
		case <-time.After(unmountInterval):
		}
		s.outcome.isStuck = s.unmount() != nil
	}
	if s.outcome.revokeErr == nil {
		return
	}
	s.log.Warn("not everything could be taken back; refusing everything until the last holder is gone", "mountpoint", s.Point())
	<-s.served()
}

// The interval and the number of further attempts to unmount. An unmount fails for want of
// descriptors, or if fusermount3 does not find the mount in its table.
const (
	unmountInterval   = 2 * time.Second
	maxUnmountRetries = 5
)

// findHolders looks for holders of the mount only after releaseTimeout. The kernel releases a mount
// that nobody holds within milliseconds, but a process that is just making a mount namespace (a
// container that starts, a `rootsfs run`) has copies of all mounts for a moment.
const (
	releaseTimeout = 300 * time.Millisecond
	holderTimeout  = 500 * time.Millisecond // a process is skipped if reading one of its files in /proc takes longer
)

// findHolders finds and logs the processes that still hold the detached mount. Everything is
// revoked, so a holder reads and changes nothing, and only gets errors. The session does not wait
// for holders: a container or sandbox that began meanwhile may hold the mount for days.
func (s *Session) findHolders() {
	if s.mnt == nil || s.opt.SkipHolderSearch {
		return
	}
	select {
	case <-s.mnt.Served():
		return
	case <-time.After(releaseTimeout):
	}
	s.outcome.isHeld = true
	s.outcome.holders = mountpoint.Holders(s.mnt.Info(), holderTimeout)
	s.log.Warn("something still held the mount; it gets errors from now on", "mountpoint", s.Point(), "holders", s.outcome.holders)
}

// end revokes every root and unmounts, once. Every call returns when that is done.
func (s *Session) end(why string) {
	s.endOnce.Do(func() {
		defer close(s.endDone)
		s.beginEnding()
		ctx := context.Background()
		s.closeBroker()
		ended, err := s.revokeAll(ctx)
		s.outcome.ended, s.outcome.revokeErr = ended, err
		if s.opt.Network != nil {
			s.opt.Network.Close()
		}
		if err != nil {
			s.log.Error("not everything could be taken back", "error", err)
		}
		closeErr := s.unmount()
		if s.outcome.isStuck = closeErr != nil; s.outcome.isStuck {
			s.log.Error("cannot unmount; everything in the mount is refused", "error", closeErr)
		}
		s.outcome.err = errors.Join(err, closeErr)
		if s.outcome.err == nil {
			s.findHolders()
		} else { // the session stays while waitServed waits
			if err := s.publish(closeErr == nil); err != nil {
				s.log.Error("the session file could not be brought up to date", "error", err)
			}
		}
		verdict := guard.Allowed
		if s.outcome.err != nil {
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

// undo undoes the work of a failed Start.
func (s *Session) undo() {
	s.cancel()
	s.closeBroker()
	if s.reg != nil {
		_, _ = s.reg.RevokeAll(context.Background())
	}
	if s.mnt != nil {
		if err := s.mnt.Close(); err != nil {
			// If an unmount fails, the cause is mostly a lack of descriptors. Unlike after a complete
			// start, the unmount is not tried again.
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
	s.watches.Wait()
	if s.audit != nil {
		if err := s.audit.close(); err != nil && s.log != nil {
			s.log.Error("the audit log could not be finished", "error", err)
		}
	}
	if s.dir != nil {
		_ = s.dir.Remove() // if it fails, the next command removes the directory
	}
}

// errEnding refuses changes while everything is being revoked.
var errEnding = errors.New("the session is ending; start another one: rootsfs mount")

// endByOwner serves control.Unmount.
func (s *Session) endByOwner(context.Context, control.None) (control.UnmountAnswer, error) {
	s.end("unmounted by the owner")
	return control.UnmountAnswer{Ended: s.outcome.ended, Held: s.outcome.isHeld || s.outcome.err != nil, HeldBy: names.List[names.Text](s.outcome.holders)}, s.outcome.err
}

func (s *Session) isEnding() bool { return s.ending.Err() != nil }
