package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// A session can be mounted once more for each server: several servers, with
// policies of their own over the same directories, one registry.

// oneMount is one of the further mounts.
type oneMount struct {
	mnt  *mount.Mount
	info mountpoint.Info
}

// Mount implements control.Owner.
func (s *Session) Mount(ctx context.Context, req control.MountRequest) (control.MountAnswer, error) {
	none := control.MountAnswer{}
	if s.isEnding() {
		return none, errEnding
	}
	opt, err := s.mountFor(req)
	if err != nil {
		return none, err
	}
	asks := make([]guard.Grant, len(req.Roots))
	for i, a := range req.Roots {
		a.Subject = req.Subject
		if asks[i], err = toGrant(a); err != nil {
			return none, err
		}
	}
	one, err := s.mountOne(ctx, opt)
	if err != nil {
		return none, err
	}
	out := control.MountAnswer{SubjectMount: one.shown(), Roots: []control.Root{}}
	if len(asks) > 0 {
		if out.Roots, err = s.grant(ctx, asks); err != nil {
			return none, errors.Join(err, s.takeDown(ctx, one, "its roots could not be granted"))
		}
	}
	return out, nil
}

// mountFor checks a request, and makes the mount's options of it.
func (s *Session) mountFor(req control.MountRequest) (opt mount.Options, err error) {
	if err := config.CheckSubject(req.Subject); err != nil {
		return opt, invalid("--subject: %w", err)
	}
	if !filepath.IsAbs(req.Point) || strings.IndexByte(req.Point, 0) >= 0 {
		return opt, invalid("the mountpoint %s is not absolute", names.Quote(req.Point))
	}
	if err := mountpoint.CheckFUSE(); err != nil {
		return opt, err
	}
	if !s.opt.Unmounted {
		opt = s.opt.Mount
	}
	// The session's own may be arranged for the one process that it is for.
	opt.AllowOther = req.AllowOther || opt.AllowOther && opt.Owner == nil
	if opt.AllowOther {
		if err := mountpoint.CheckAllowOther(); err != nil {
			return opt, &control.Error{Text: err.Error(), Class: control.System}
		}
	}
	opt.Layout, opt.Owner, opt.Detached = mount.Layout{}, nil, false
	opt.Subject, opt.Tree, opt.Log, opt.ReadOnly = guard.Subject(req.Subject), s.tree, s.log, req.ReadOnly
	if req.Cache != "" {
		if opt.Level, err = mount.ParseLevel(req.Cache); err != nil {
			return opt, err
		}
	}
	if opt.Point, err = checkPoint(req.Point); err != nil {
		return opt, err
	}
	for _, st := range s.reg.Roots() {
		if reaches(st.Grant.Resolved, opt.Point) || reaches(opt.Point, st.Grant.Resolved) {
			return opt, &guard.Error{Kind: names.Permission, Err: fmt.Errorf("%s and the root %s (%s) lie in each other; mount it elsewhere",
				names.Quote(opt.Point), names.Quote(string(st.Grant.Root)), names.Quote(st.Grant.Resolved))}
		}
	}
	return opt, nil
}

// reaches reports whether a path is a directory or lies in it.
func reaches(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// mountOne makes a further mount and watches over it.
func (s *Session) mountOne(ctx context.Context, opt mount.Options) (*oneMount, error) {
	s.reg.Keep(guard.Keep{Path: opt.Point, What: "the mountpoint"}) // before anybody can grant it
	m, err := mount.New(s.reg, opt)
	if err != nil {
		return nil, err
	}
	one := &oneMount{mnt: m}
	gone := (<-chan struct{})(nil)
	if one.info, err = mountpoint.Find(m.Point()); err == nil {
		gone, err = mountpoint.WatchGone(s.ctx, one.info.ID)
	}
	if err == nil {
		err = s.reg.Note(names.OpMount, "", guard.Allowed, m.Point()+" for the server "+names.Quote(string(opt.Subject)))
	}
	if err != nil {
		return nil, errors.Join(err, m.Shut(ctx), m.Close())
	}
	s.mu.Lock()
	s.more = append(s.more, one)
	s.mu.Unlock()
	go func() {
		select {
		case <-gone:
			_ = s.takeDown(context.Background(), one, "unmounted by somebody else") // the log has it
		case <-m.Served():
			_ = s.takeDown(context.Background(), one, "the connection with the kernel has ended")
		case <-s.ending:
		}
	}()
	if err := s.publish(false); err != nil {
		return nil, errors.Join(err, s.takeDown(ctx, one, "the session file could not be written"))
	}
	s.log.Info("mounted once more", "mountpoint", m.Point(), "subject", opt.Subject)
	return one, nil
}

func (o *oneMount) shown() control.SubjectMount {
	opt := o.mnt.Options()
	return control.SubjectMount{Point: o.mnt.Point(), Subject: string(opt.Subject), Cache: cmp.Or(opt.Level, mount.Audit).String()}
}

// mounts lists the further mounts.
func (s *Session) mounts() []*oneMount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.more)
}

// takeDown ends a further mount: everything it showed is dead before it is
// unmounted. Whoever comes second does nothing.
func (s *Session) takeDown(ctx context.Context, one *oneMount, why string) error {
	s.mu.Lock()
	i := slices.Index(s.more, one)
	if i >= 0 {
		s.more = slices.Delete(slices.Clone(s.more), i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		return nil
	}
	err := errors.Join(one.mnt.Shut(ctx), one.detach())
	verdict := guard.Allowed
	if err != nil {
		verdict = guard.Failed
		s.log.Error("a mount could not be taken down whole", "mountpoint", one.mnt.Point(), "error", err)
	}
	err = errors.Join(err, s.reg.Note(names.OpUnmount, "", verdict, one.mnt.Point()+": "+why))
	if !s.isEnding() {
		err = errors.Join(err, s.publish(false))
	}
	s.log.Info("unmounted", "mountpoint", one.mnt.Point(), "why", why)
	return err
}

// detach takes the mount out of the tree unless somebody has done so.
func (o *oneMount) detach() error {
	all, err := mountpoint.Mounts()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(in mountpoint.Info) bool { return in.ID == o.info.ID && in.Dev == o.info.Dev }) {
		return nil
	}
	if err := mountpoint.Detach(o.mnt.Point(), true); err != nil && !errors.Is(err, mountpoint.ErrNotMounted) {
		return err
	}
	return nil
}

// UnmountOne implements control.Owner.
func (s *Session) UnmountOne(ctx context.Context, req control.UnmountOneRequest) (control.UnmountOneAnswer, error) {
	for _, one := range s.mounts() {
		if one.mnt.Point() != req.Point {
			continue
		}
		if err := s.takeDown(ctx, one, "unmounted by the owner"); err != nil {
			return control.UnmountOneAnswer{}, err
		}
		select {
		case <-one.mnt.Served():
			return control.UnmountOneAnswer{}, nil
		case <-time.After(heldAfter):
			return control.UnmountOneAnswer{Held: true}, nil
		}
	}
	return control.UnmountOneAnswer{}, &guard.Error{Op: names.OpSet, Kind: names.NotExist, Err: fmt.Errorf("%s is no mount of this session's", names.Quote(req.Point))}
}
