package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// What a session does with its mount, if it has one.

// checkMount finds out whether a mount can be made.
func (s *Session) checkMount() (err error) {
	if err := mount.CheckFUSE(); err != nil {
		return err
	}
	if s.opt.Mount.AllowOther {
		if err := mount.CheckAllowOther(); err != nil {
			return &control.Error{Text: err.Error(), Class: control.System}
		}
	}
	s.opt.Mount.Point, err = checkPoint(s.opt.Mount.Point)
	return err
}

// checkPoint resolves the mountpoint and clears a dead daemon's mount there.
func checkPoint(path string) (string, error) {
	point, err := mount.CheckMountpoint(path)
	if !errors.Is(err, mount.ErrStale) {
		return point, err
	}
	if cleared := mount.ClearStale(path); cleared != nil {
		return "", err // it lies further up, or is not ours; CheckMountpoint says
	}
	return mount.CheckMountpoint(path)
}

// point is where the session is to be mounted; "": nowhere.
func (s *Session) point() string {
	if s.opt.Unmounted {
		return ""
	}
	return s.opt.Mount.Point
}

// mount makes the mount, and the tree.
func (s *Session) mount() (err error) {
	if s.opt.Unmounted {
		s.tree = vfs.New(s.reg)
		return nil
	}
	s.opt.Mount.Log = s.log
	if s.mnt, err = mount.New(s.reg, s.opt.Mount); err != nil {
		return err
	}
	s.tree = s.mnt.Tree()
	return nil
}

// watchMount records the mount and notices when it goes away.
func (s *Session) watchMount(ctx context.Context) (err error) {
	if s.mnt != nil {
		s.info = s.mnt.Info()
		if s.gone, err = mount.WatchGone(ctx, s.info.ID); err != nil {
			return err
		}
	}
	if err := s.reg.Note(names.OpMount, "", guard.Allowed, strings.TrimSpace(strings.Join(append([]string{s.Point()}, s.opt.Flags...), " "))); err != nil {
		return fmt.Errorf("the mount cannot be recorded: %w", err)
	}
	return nil
}

// served is closed when nobody holds anything in the mount any more.
func (s *Session) served() <-chan struct{} {
	if s.mnt == nil {
		return s.endDone
	}
	return s.mnt.Served()
}

// aborted is closed when the mount has ended; nil if there is none.
func (s *Session) aborted() <-chan struct{} {
	if s.mnt == nil {
		return nil
	}
	return s.mnt.Served()
}

// lost ends a session whose mount was taken away: unmounted by somebody, or its
// connection aborted.
func (s *Session) lost() {
	if s.isEnding() {
		return // it was the owner
	}
	why := "unmounted by somebody else"
	if s.inTable() {
		why = "the connection with the kernel was aborted"
	}
	s.log.Warn(why + ": revoking every root")
	s.end(why)
}

// inTable reports that the session's mount is still in the table of mounts.
func (s *Session) inTable() bool {
	all, err := mount.Mounts()
	return err == nil && slices.ContainsFunc(all, func(in mount.Info) bool {
		return in.ID == s.info.ID && in.Dev == s.info.Dev
	})
}

// unmount takes the mount out of the tree unless somebody has done so: what is
// mounted there by then would be somebody else's.
func (s *Session) unmount() error {
	if s.mnt == nil || !s.inTable() {
		return nil
	}
	// Not Mount.Close: after an aborted connection it has nothing to close,
	// and the dead mount would stay.
	if err := mount.Detach(s.mnt.Point(), true); err != nil && !errors.Is(err, mount.ErrNotMounted) {
		return err
	}
	return nil
}
