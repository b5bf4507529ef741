package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// The functions about the session's mount, if it has one.

// checkMount checks whether a mount can be made, and resolves the mountpoint.
func (o *Options) checkMount() (err error) {
	if err := mountpoint.CheckFUSE(); err != nil {
		return err
	}
	if o.Mount.AllowOther {
		if err := mountpoint.CheckAllowOther(); err != nil {
			return &control.Error{Text: err.Error(), Class: control.System}
		}
	}
	o.Mount.Point, err = checkPoint(o.Mount.Point)
	return err
}

// checkPoint resolves the mountpoint and clears a dead daemon's mount there.
func checkPoint(path string) (string, error) {
	point, err := mountpoint.Check(path)
	if !errors.Is(err, mountpoint.ErrStale) {
		return point, err
	}
	if clearErr := mountpoint.ClearStale(path); clearErr != nil {
		return "", err // err describes a mount at a directory above path, or of another user
	}
	return mountpoint.Check(path)
}

// point returns the mountpoint of the session; "": there is none.
func (o *Options) point() string {
	if o.Unmounted {
		return ""
	}
	return o.Mount.Point
}

// mount makes the mount, if the session has one, and the tree.
func (s *Session) mount() (err error) {
	if s.opt.Unmounted {
		s.tree = vfs.New(s.reg)
		return nil
	}
	s.opt.Mount.Log = s.log
	s.mnt, err = mount.New(s.reg, s.opt.Mount)
	if err != nil {
		return err
	}
	s.tree = s.mnt.Tree()
	return nil
}

// watchMount begins to watch the mount and the table of mounts, and writes the mount to the audit
// log. After each change of the table, the watched paths are checked again.
func (s *Session) watchMount(ctx context.Context) error {
	if s.Point() != "" {
		var err error
		if s.unlisted, err = mountpoint.WatchGone(ctx, s.mnt.Info().ID); err != nil {
			return err
		}
	}
	if err := mountpoint.WatchTable(ctx, s.paths.CheckAll); err != nil {
		return err
	}
	if err := s.reg.NoteFacts(names.OpMount, guard.Allowed, guard.Facts{Point: s.Point()}, strings.TrimSpace(strings.Join(append([]string{s.Point()}, s.opt.Flags...), " "))); err != nil {
		return fmt.Errorf("the mount cannot be recorded: %w", err)
	}
	return nil
}

// served returns a channel that is closed when the mount has ended: then no program holds anything
// in the mount any more. Without a mount, the channel is closed when the session has ended.
func (s *Session) served() <-chan struct{} {
	if s.mnt == nil {
		return s.endDone
	}
	return s.mnt.Served()
}

// endWithoutMount ends a session whose mount was unmounted, or has lost its connection.
func (s *Session) endWithoutMount() {
	if s.isEnding() {
		return // the session unmounts the mount itself
	}
	why := "unmounted by somebody else"
	if attached, _ := s.mnt.IsAttached(); attached {
		why = "the connection with the kernel was aborted"
	}
	s.log.Warn(why + ": revoking every root")
	s.end(why)
}

// unmount unmounts the mount, if there is one.
func (s *Session) unmount() error {
	if s.mnt == nil {
		return nil
	}
	return s.mnt.Close()
}
