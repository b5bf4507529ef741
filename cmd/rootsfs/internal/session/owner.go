package session

import (
	"cmp"
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

var _ control.Service = (*Session)(nil)

// handlers serve the owner's commands.
func (s *Session) handlers() []control.Handler {
	return []control.Handler{
		control.GetStatus.Handle(s.status),
		control.GetRefusal.Handle(s.refusal),
		control.AddRoots.Handle(s.addRoots),
		control.SetMode.Handle(s.setMode),
		control.RenewRoot.Handle(s.renewRoot),
		control.SwitchProfile.Handle(s.switchProfile),
		control.Revoke.Handle(s.revoke),
		control.Resume.Handle(s.resume),
		control.Unmount.Handle(s.endByOwner),
		control.ListQuestions.Handle(s.listQuestions),
		control.AnswerQuestion.Handle(s.answer),
		control.PreviewQuestion.Handle(s.preview),
		control.ListDenials.Handle(s.listDenials),
		control.ForgetDenial.Handle(s.forgetDenial),
		control.GetPolicy.Handle(s.policy),
		control.CheckPolicy.Handle(s.checkPolicy),
		control.SetPatterns.Handle(s.setPatterns),
		control.ListTrash.Handle(s.listTrash),
		control.RestoreTrash.Handle(s.restoreTrash),
		control.EmptyTrash.Handle(s.emptyTrash),
	}
}

// errEnding refuses changes while everything is being revoked.
var errEnding = errors.New("the session is ending; start another one: rootsfs mount")

// status serves control.GetStatus.
func (s *Session) status(context.Context, control.None) (control.Status, error) {
	return s.state(), nil
}

// state is the session's state now.
func (s *Session) state() control.Status {
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

// addRoots serves control.AddRoots.
func (s *Session) addRoots(ctx context.Context, req control.AddRequest) (control.AddAnswer, error) {
	if len(req.Roots) == 0 {
		return control.AddAnswer{}, invalid("no root was named")
	}
	for i := range req.Roots {
		if err := checkAsked(&req.Roots[i]); err != nil {
			return control.AddAnswer{}, err
		}
	}
	roots, err := s.grant(ctx, req.Roots)
	return control.AddAnswer{Roots: roots}, err
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

// checkAsked refuses a grant that was asked for over the control socket and cannot be
// meant. The registry judges the directory.
func checkAsked(g *guard.Grant) error {
	name := names.Quote(string(g.Root))
	if _, err := names.ParseRootName(string(g.Root)); err != nil {
		return err
	}
	if g.Policy.Rights == 0 {
		_, err := guard.ParseMode("")
		return err
	}
	if !filepath.IsAbs(g.Dir) || strings.IndexByte(g.Dir, 0) >= 0 {
		return invalid("the path of root %s is not absolute", name)
	}
	if l := g.Policy.Limits; l.OpsPerSecond < 0 || l.Burst < 0 || l.BytesInFlight < 0 || l.MaxFile < 0 ||
		l.MaxWritten < 0 || l.MaxCreated < 0 || l.Timeout < 0 || l.Idle < 0 {
		return invalid("a limit of root %s is negative", name)
	}
	if g.Policy.Trash.Size < 0 || g.Policy.Trash.Age < 0 {
		return invalid("a bound of the trash of root %s is negative", name)
	}
	if g.Subject != "" {
		if err := config.CheckSubject(string(g.Subject)); err != nil {
			return invalid("the subject of root %s: %w", name, err)
		}
	}
	g.Origin = cmp.Or(g.Origin, "control socket")
	return nil
}

// renewRoot serves control.RenewRoot.
func (s *Session) renewRoot(ctx context.Context, req control.RenewRequest) (control.SetAnswer, error) {
	root, err := s.renew(ctx, req)
	return control.SetAnswer{Root: root}, err
}

func (s *Session) renew(ctx context.Context, req control.RenewRequest) (control.Root, error) {
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
	return s.rootAfter(name)
}

// rootAfter describes a root that has just been changed.
func (s *Session) rootAfter(name guard.RootName) (control.Root, error) {
	st, ok := s.reg.Lookup(name)
	if !ok {
		return control.Root{}, revokedMeanwhile(name)
	}
	return s.describe(st), nil
}

func revokedMeanwhile(name guard.RootName) error {
	return &guard.Error{Op: names.OpSet, Kind: names.NotExist, Err: fmt.Errorf("root %s was revoked meanwhile", names.Quote(string(name)))}
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

// revoke serves control.Revoke.
func (s *Session) revoke(ctx context.Context, req control.RevokeRequest) (a control.RevokeAnswer, err error) {
	given := 0
	for _, is := range []bool{req.All, len(req.Names) > 0, req.Subject != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return a, invalid("name the roots to revoke, or a server, or say all of them: one of these")
	}
	defer s.avail.update()
	switch {
	case req.Subject != "":
		a.Ended, err = s.revokeOf(ctx, guard.Subject(req.Subject))
	case req.All:
		a.Ended, err = s.revokeAll(ctx)
	default:
		a.Ended, err = s.revokeNamed(ctx, req.Names)
	}
	return a, err
}

// resume serves control.Resume.
func (s *Session) resume(_ context.Context, req control.ResumeRequest) (control.ResumeAnswer, error) {
	a := control.ResumeAnswer{Resumed: []string{}}
	if req.All && req.Subject != "" {
		return a, invalid("name a server, or say all of them, not both")
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

// setMode serves control.SetMode.
func (s *Session) setMode(ctx context.Context, req control.SetRequest) (control.SetAnswer, error) {
	name := guard.RootName(req.Name)
	rights, err := guard.ParseMode(req.Mode)
	if err == nil && s.isEnding() {
		err = errEnding
	}
	if err == nil {
		err = s.setRights(ctx, name, rights)
	}
	if err != nil {
		return control.SetAnswer{}, err
	}
	root, err := s.rootAfter(name)
	return control.SetAnswer{Root: root}, err
}

// endByOwner serves control.Unmount.
func (s *Session) endByOwner(context.Context, control.None) (control.UnmountAnswer, error) {
	s.end("unmounted by the owner")
	a := control.UnmountAnswer{Ended: s.ended}
	select {
	case <-s.served():
	case <-time.After(heldAfter):
		a.Held = true
	}
	return a, s.endErr
}

// Subscribe returns a channel of events, which is closed when the session ends or cancel
// is called.
func (s *Session) Subscribe() (<-chan control.Event, func()) { return s.hub.subscribe() }

// refusal serves control.GetRefusal.
func (s *Session) refusal(context.Context, control.None) (control.RefusalAnswer, error) {
	s.audit.flush()
	return control.RefusalAnswer{Last: s.lastRefusal()}, nil
}

// lastRefusal is the last refusal that a grant would have avoided, or nil.
func (s *Session) lastRefusal() *control.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return nil
	}
	last := *s.last
	if last.Remedy != "set" {
		if again := *last.Grant; !again.Expires.After(time.Now()) {
			again.Expires = time.Time{} // it ends before anybody says yes: last.ForMS counts
			last.Grant = &again
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
