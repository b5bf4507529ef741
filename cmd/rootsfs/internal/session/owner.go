package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
)

var _ control.Owner = (*Session)(nil)

// errEnding refuses changes while everything is being revoked.
var errEnding = errors.New("the session is ending; start another one: rootsfs mount")

// Status implements control.Owner.
func (s *Session) Status() control.Status {
	var o mount.Options
	if s.mnt != nil {
		o = s.mnt.Options()
	}
	st := control.Status{
		Session: s.dir.Name(), PID: os.Getpid(), Version: s.opt.Version, Started: s.started,
		Point: s.Point(), Cache: o.Level.String(), Locks: o.Locks.String(), Posix: "safe",
		ReadOnly: o.ReadOnly, Mounted: s.mnt != nil, Audit: s.audit.path(), AuditOK: s.audit.healthy(),
		Roots: []control.Root{},
	}
	if s.opt.PosixFull {
		st.Posix = "full"
	}
	if s.mnt != nil {
		kind, why := s.mnt.Transport()
		st.Transport = string(kind)
		if why != nil {
			st.NoRings = why.Error()
		}
	}
	st.Profile, st.Config, st.ConfigError = s.confStatus()
	select {
	case <-s.left():
		st.Mounted = false
	default:
	}
	roots := s.reg.Roots()
	s.spaces.ask(s.ctx, s.reg, roots)
	for _, r := range roots {
		one := s.describe(r)
		if n, ok := s.spaces.free(&r); ok {
			one.Free = &n
		}
		st.Roots = append(st.Roots, one)
	}
	for _, u := range s.reg.Usage() {
		st.Subjects = append(st.Subjects, control.Quota{
			Subject: string(u.Subject), Written: u.Written, Created: u.Created,
			MaxFile: u.Quota.MaxFile, MaxWritten: u.Quota.MaxWritten, MaxCreated: u.Quota.MaxCreated,
		})
	}
	for _, s := range s.reg.Suspended() {
		st.Suspended = append(st.Suspended, control.Suspended{Subject: string(s.Subject), Since: s.Since, Why: s.Why})
	}
	st.Process, st.Files, st.Questions = process(roots), s.brokered(), len(s.questions.List())
	addSharing(&st)
	denied, _ := s.denials.list()
	st.Denials = len(denied)
	st.Server, st.Recent = s.server.Load(), s.recent()
	st.Sockets = s.liveSockets()
	if s.mnt != nil {
		addWatching(&st, s.mnt.SourceStatus())
	}
	return st
}

// addSharing says of each root that was allowed to requests without a session who else
// has it.
func addSharing(st *control.Status) {
	for i := range st.Roots {
		r := &st.Roots[i]
		at := slices.IndexFunc(st.Files, func(f broker.Stats) bool { return r.Subject != "" && f.Subject == r.Subject })
		if at >= 0 {
			r.SharedBy = st.Files[at].SharedBy
		}
	}
}

// addWatching adds how well the sources are watched for one mount.
func addWatching(st *control.Status, src mount.SourceStatus) {
	for _, r := range src.Loose {
		if !slices.Contains(st.Unwatched, string(r)) {
			st.Unwatched = append(st.Unwatched, string(r))
		}
	}
	st.Watches += src.Watched
	st.WatchesRefused += src.Refused
	st.Stuck += src.Stuck
}

// recent tells of the last operations.
func (s *Session) recent() []control.Operation {
	out := []control.Operation{}
	for _, rec := range s.audit.newest() {
		op := control.Operation{
			Time: rec.Time, Op: rec.Op.String(), Path: names.Escape(rec.Path.String()),
			Via: rec.Via.String(), Verdict: rec.Verdict.String(), PID: rec.PID,
		}
		if rec.Verdict != guard.Allowed {
			op.Reason = rec.Kind.String()
			if rec.Target != "" {
				op.Detail = "the link leads to " + names.Quote(rec.Target)
			}
		}
		out = append(out, op)
	}
	return out
}

// SetServer tells `rootsfs status` what the session confines.
func (s *Session) SetServer(c control.Confined) { s.server.Store(&c) }

// Show has a spare directory of the session's mount show a root: see mount.Mount.
func (s *Session) Show(spare int, root guard.RootName) error { return s.mnt.Show(spare, root) }

// Retell has the kernel ask again for what is at a root's place: see mount.Mount.
func (s *Session) Retell(root guard.RootName) { s.mnt.Retell(root) }

func (s *Session) describe(r guard.Status) control.Root {
	s.mu.Lock()
	perm := s.perms[r.Epoch]
	s.mu.Unlock()
	out := control.Root{
		Name: string(r.Grant.Root), Path: r.Grant.Dir, Resolved: r.Grant.Resolved,
		Mode: r.Grant.Policy.Rights.String(), State: r.State.String(), File: r.FileRoot,
		FSType: r.FSType, Remote: r.Remote, Perm: perm, Origin: r.Grant.Origin, Epoch: r.Epoch,
		InFlight: r.InFlight, Ops: r.Ops, Refused: r.Refused, BytesRead: r.BytesRead,
		Written: r.Written, Nested: r.Nested, Repos: foreign(r.Repos), Lifted: r.Grant.Policy.Lifted(),
	}
	out.Subject, out.Created, out.Limits = string(r.Grant.Subject), r.Created, r.Grant.Policy.Limits
	if !r.Grant.Expires.IsZero() {
		out.Expires = &r.Grant.Expires
	}
	out.Once = r.Once
	if r.State == guard.UnavailableState {
		s.mu.Lock()
		again := s.again[r.Epoch]
		s.mu.Unlock()
		out.Why = unavailable(out.Name, again)
	}
	if t := r.Grant.Policy.Trash; t.On && !r.FileRoot {
		t.Size, t.Age = t.Bounds()
		out.Trash = &t
	}
	if !r.LastUse.IsZero() {
		out.LastUse = &r.LastUse
	}
	return out
}

func foreign(list []string) (out []names.Foreign) {
	for _, one := range list {
		out = append(out, names.Foreign(one))
	}
	return out
}

// unavailable says why a root is, and what to do.
func unavailable(name string, again bool) string {
	if again {
		return "its directory was deleted or replaced, and another is there now; approve that with: rootsfs roots renew " + names.ShellWord(name)
	}
	return "its directory is gone or cannot be read; put it back or make it again, then: rootsfs roots renew " + names.ShellWord(name)
}

// Add implements control.Owner.
func (s *Session) Add(ctx context.Context, asks []control.Ask) ([]control.Root, error) {
	if len(asks) == 0 {
		return nil, &guard.Error{Kind: names.Invalid, Err: errors.New("no root was named")}
	}
	grants := make([]guard.Grant, len(asks))
	for i, a := range asks {
		var err error
		if grants[i], err = toGrant(a); err != nil {
			return nil, err
		}
	}
	return s.grant(ctx, grants)
}

// grant adds roots, all or none, to the running session.
func (s *Session) grant(ctx context.Context, grants []guard.Grant) ([]control.Root, error) {
	for i := range grants {
		grants[i].Policy.PosixFull = grants[i].Policy.PosixFull || s.opt.PosixFull
	}
	if s.isEnding() {
		return nil, errEnding
	}
	got, err := s.grantAll(ctx, grants)
	if err != nil {
		return nil, err
	}
	if s.isEnding() {
		// The ending may have listed the roots before these were among them.
		_, _ = s.reg.RevokeAll(ctx)
		return nil, errEnding
	}
	out := make([]control.Root, 0, len(got))
	for _, g := range got {
		if st, ok := s.reg.Lookup(g.Root); ok {
			out = append(out, s.describe(st))
		}
	}
	return out, nil
}

func toGrant(a control.Ask) (guard.Grant, error) {
	invalid := func(format string, args ...any) (guard.Grant, error) {
		return guard.Grant{}, &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
	}
	rights, err := guard.ParseMode(a.Mode)
	if err != nil {
		return guard.Grant{}, err
	}
	name, err := names.ParseRootName(a.Name)
	if err != nil {
		return guard.Grant{}, err
	}
	if !filepath.IsAbs(a.Path) || strings.IndexByte(a.Path, 0) >= 0 {
		return invalid("the path of root %s is not absolute", names.Quote(a.Name))
	}
	if l := a.Limits; l.OpsPerSecond < 0 || l.Burst < 0 || l.BytesInFlight < 0 || l.MaxFile < 0 ||
		l.MaxWritten < 0 || l.MaxCreated < 0 || l.Timeout < 0 || l.Idle < 0 {
		return invalid("a limit of root %s is negative", names.Quote(a.Name))
	}
	if a.Trash.Size < 0 || a.Trash.Age < 0 {
		return invalid("a bound of the trash of root %s is negative", names.Quote(a.Name))
	}
	if a.Subject != "" {
		if err := config.CheckSubject(a.Subject); err != nil {
			return invalid("the subject of root %s: %w", names.Quote(a.Name), err)
		}
	}
	g := guard.Grant{
		Root: name, Dir: a.Path, Subject: guard.Subject(a.Subject), Origin: a.ApprovedBy, AllowSystem: a.AllowSystem, AllowRootDir: a.AllowRootDir,
		Policy: guard.Policy{Rights: rights, Patterns: a.Patterns, Limits: a.Limits, OtherFileSystems: a.OtherFS, PosixFull: a.PosixFull, Once: a.Once, Trash: a.Trash},
	}
	if g.Origin == "" {
		g.Origin = "control socket"
	}
	if a.Expires != nil {
		g.Expires = *a.Expires
	}
	return g, nil
}

// Renew implements control.Owner.
func (s *Session) Renew(ctx context.Context, req control.RenewRequest) (control.Root, error) {
	name := guard.RootName(req.Name)
	var end time.Time
	switch {
	case req.Session:
	case req.Expires != nil:
		end = *req.Expires
	case req.ForMS < 0 || req.ForMS > longestGrant.Milliseconds():
		return control.Root{}, invalid("a duration is between 0 (as long as it was granted for) and %v", longestGrant)
	case req.ForMS > 0:
		end = time.Now().Add(time.Duration(req.ForMS) * time.Millisecond)
	default:
		s.mu.Lock()
		g := s.past[name]
		s.mu.Unlock()
		if life := g.life(); life > 0 {
			end = time.Now().Add(life)
		}
	}
	if s.isEnding() {
		return control.Root{}, errEnding
	}
	if st, ok := s.reg.Lookup(name); ok && st.State == guard.UnavailableState {
		return s.approveAgain(ctx, st, end)
	}
	if err := s.reg.Renew(ctx, name, end); err != nil {
		return control.Root{}, err
	}
	st, ok := s.reg.Lookup(name)
	if !ok {
		return control.Root{}, &guard.Error{Op: names.OpSet, Kind: names.NotExist, Err: fmt.Errorf("root %s was revoked meanwhile", names.Quote(req.Name))}
	}
	return s.describe(st), nil
}

// approveAgain grants an unavailable root's policy to the directory that is at its
// place now.
func (s *Session) approveAgain(ctx context.Context, st guard.Status, end time.Time) (control.Root, error) {
	refuse := func(format string, args ...any) (control.Root, error) {
		return control.Root{}, &guard.Error{Op: names.OpSet, Kind: names.Unavailable, Err: fmt.Errorf(format, args...)}
	}
	g := st.Grant
	now, err := filepath.EvalSymlinks(g.Resolved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("nothing is at %s: make it or put it back first", names.Quote(g.Resolved))
	case err != nil:
		return control.Root{}, err
	case now != g.Resolved:
		return refuse("%s leads to %s now; if that is meant, approve it: rootsfs roots add %s",
			names.Quote(g.Resolved), names.Quote(now), names.ShellWord(string(g.Root)+"="+now))
	}
	g.Dir, g.Expires = g.Resolved, end
	got, err := s.grant(ctx, []guard.Grant{g})
	if err != nil {
		return control.Root{}, err
	}
	if len(got) == 0 {
		return control.Root{}, guard.NoRoot(g.Root)
	}
	return got[0], nil
}

// Revoke implements control.Owner.
func (s *Session) Revoke(ctx context.Context, req control.RevokeRequest) ([]control.Ended, error) {
	given := 0
	for _, is := range []bool{req.All, len(req.Names) > 0, req.Subject != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, &guard.Error{Kind: names.Invalid, Err: errors.New("name the roots to revoke, or a server, or say all of them: one of these")}
	}
	defer s.avail.update()
	if req.Subject != "" {
		return s.revokeOf(ctx, guard.Subject(req.Subject))
	}
	if req.All {
		return s.revokeAll(ctx)
	}
	return s.revokeNamed(ctx, req.Names)
}

// Resume implements control.Owner.
func (s *Session) Resume(req control.ResumeRequest) (control.ResumeAnswer, error) {
	a := control.ResumeAnswer{Resumed: []string{}}
	if req.All && req.Subject != "" {
		return a, &guard.Error{Kind: names.Invalid, Err: errors.New("name a server, or say all of them, not both")}
	}
	which := []guard.Subject{guard.Subject(req.Subject)}
	if req.All {
		which = nil
		for _, s := range s.reg.Suspended() {
			which = append(which, s.Subject)
		}
	}
	for _, who := range which {
		if err := s.reg.Resume(who); err != nil {
			return a, err
		}
		a.Resumed = append(a.Resumed, string(who))
	}
	return a, nil
}

// Set implements control.Owner.
func (s *Session) Set(ctx context.Context, name, mode string) (control.Root, error) {
	rights, err := guard.ParseMode(mode)
	if err != nil {
		return control.Root{}, err
	}
	if s.isEnding() {
		return control.Root{}, errEnding
	}
	if err := s.setRights(ctx, guard.RootName(name), rights); err != nil {
		return control.Root{}, err
	}
	st, ok := s.reg.Lookup(guard.RootName(name))
	if !ok {
		return control.Root{}, &guard.Error{Op: names.OpSet, Kind: names.NotExist, Err: fmt.Errorf("root %s was revoked meanwhile", names.Quote(name))}
	}
	return s.describe(st), nil
}

// Unmount implements control.Owner.
func (s *Session) Unmount(context.Context) (control.UnmountAnswer, error) {
	s.end("unmounted by the owner")
	a := control.UnmountAnswer{Ended: s.ended}
	select {
	case <-s.served():
	case <-time.After(heldAfter):
		a.Held = true
	}
	return a, s.endErr
}

// Subscribe implements control.Owner.
func (s *Session) Subscribe() (<-chan control.Event, func()) { return s.hub.subscribe() }

// Refused implements control.Owner. The records up to now are in the log when it returns.
func (s *Session) Refused() *control.Refusal {
	s.audit.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return nil
	}
	last := *s.last
	if last.Remedy != "set" {
		if last.Ask.Expires != nil && !last.Ask.Expires.After(time.Now()) {
			ask := *last.Ask
			last.Ask, ask.Expires = &ask, nil // it ends before anybody says yes: last.ForMS counts
		}
		return &last
	}
	// The mode may have changed since: what is proposed is what the root has
	// now and what was missing then, no less and no more.
	st, ok := s.reg.Lookup(guard.RootName(last.Root))
	if !ok || st.State != guard.Live || s.lacks&^st.Grant.Policy.Rights == 0 {
		return nil
	}
	last.Mode = (st.Grant.Policy.Rights | s.lacks).String()
	return &last
}

func (s *Session) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}
