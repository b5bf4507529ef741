package session

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
)

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
	case <-s.left:
		st.Mounted = false
	default:
	}
	roots := s.reg.Roots()
	s.askSpaces(roots)
	for _, r := range roots {
		st.Roots = append(st.Roots, s.describe(r))
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
	questions, _ := s.consent.Waiting()
	st.Process, st.Files, st.Questions = process(roots), s.brokered(), len(questions)
	addSharing(&st)
	st.Denials = len(s.consent.Denials())
	st.Server, st.Recent = s.server.Load(), s.recent()
	if st.Server != nil && s.opt.Network != nil {
		now, net := *st.Server, s.opt.Network.State()
		now.Hosts, now.Secrets = net.Hosts, net.Secrets
		net.Connections = busiest(net.Connections)
		st.Server, st.Network = &now, &net
	}
	st.Sockets = s.liveSockets()
	st.PathsPolled = s.paths.Problem()
	if s.mnt != nil {
		addWatching(&st, s.mnt.SourceStatus())
	}
	return st
}

// maxShownConnections is how many connections of a network a status has.
const maxShownConnections = 32

// busiest returns the fastest connections, the fastest first.
func busiest(list []control.NetConnection) []control.NetConnection {
	slices.SortStableFunc(list, func(a, b control.NetConnection) int { return cmp.Compare(b.Rate, a.Rate) })
	return list[:min(len(list), maxShownConnections)]
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

func (s *Session) describe(r guard.Status) control.Root {
	place := s.placeOf(r.Epoch)
	out := control.Root{
		Name: string(r.Grant.Root), Path: r.Grant.Dir, Resolved: r.Grant.Resolved,
		Mode: r.Grant.Policy.Rights.String(), State: r.State.String(), File: r.FileRoot,
		FSType: r.FSType, Remote: r.Remote, Perm: place.permissions, Origin: r.Grant.Origin, Epoch: r.Epoch,
		InFlight: r.InFlight, Ops: r.Ops, Refused: r.Refused, BytesRead: r.BytesRead,
		Written: r.Written, Nested: r.Nested, Repos: foreign(r.Repos), Lifted: r.Grant.Policy.Lifted(),
	}
	out.Subject, out.Created, out.Limits = string(r.Grant.Subject), r.Created, r.Grant.Policy.Limits
	if !r.Grant.Expires.IsZero() {
		out.Expires = &r.Grant.Expires
	}
	out.Once, out.Stage = r.Once, stageOf(&r)
	if r.State == guard.UnavailableState {
		out.Why = unavailable(out.Name, place.reappeared)
	} else {
		out.Free = place.free
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

// permissions shows mode and owner as ls -ln does.
func permissions(fi os.FileInfo) string {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%s %d:%d", fi.Mode(), st.Uid, st.Gid)
	}
	return fi.Mode().String()
}

// process are the daemon's own figures. What cannot be had (there are no
// descriptors left to open /proc with) stays zero.
func process(roots []guard.Status) control.Process {
	var p control.Process
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) == nil {
		p.CPU = time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		p.FDLimit = limit.Cur
	}
	if self, err := procfs.Self(); err == nil {
		if n, err := self.FileDescriptorsLen(); err == nil {
			p.FDs = n
		}
		if st, err := self.Stat(); err == nil {
			p.Resident = int64(st.ResidentMemory())
		}
	}
	for _, r := range roots {
		p.InFlight += r.InFlight
		p.Ops += r.Ops
		p.Refused += r.Refused
		p.Read += r.BytesRead
		p.Written += r.Written
	}
	return p
}

// brokered are the figures of the servers that are served.
func (s *Session) brokered() []broker.Stats {
	list := []broker.Stats{}
	for _, one := range s.broker.Sessions() {
		list = append(list, one.Stats())
	}
	return list
}

// noteRefusal keeps the last refusal that a grant would have avoided, for
// `rootsfs allow --last`. That a file's own permissions refused is no such
// thing.
func (s *Session) noteRefusal(rec *guard.Record) {
	if rec.Verdict != guard.Refused || rec.Via == guard.ViaControl {
		return
	}
	r := control.Refusal{
		Time: rec.Time, Op: rec.Op.String(), Path: names.Escape(rec.Path.String()), Reason: rec.Kind.String(),
		UID: rec.UID, PID: rec.PID, Root: string(rec.Path.Root),
	}
	switch rec.Kind {
	case names.ReadOnly, names.Permission:
		// Whether a right is missing is asked when somebody wants to know: liftableRefusal. In
		// the middle of an operation nothing may look at the source.
		st, ok := s.reg.Lookup(rec.Path.Root)
		if !ok || st.State != guard.Live || rec.Rule != "" ||
			rec.Kind == names.Permission && rec.Rights&^st.Grant.Policy.Rights == 0 && len(st.Nested) == 0 {
			return
		}
		r.Remedy = "set"
	case names.Revoked, names.NoConsent:
		s.mu.Lock()
		g, ok := s.lastGrants[rec.Path.Root]
		s.mu.Unlock()
		if !ok {
			return
		}
		// A new approval of a grant that had an end has one again: the one it
		// had, or, when that is past, after the same time.
		r.ForMS = g.life().Milliseconds()
		if !g.Expires.After(time.Now()) {
			g.Expires = time.Time{}
		}
		r.Remedy, r.Mode, r.Dir = "grant", g.Policy.Rights.String(), g.Dir
		g.Origin = "allow --last"
		r.Grant = &g.Grant
	default:
		return
	}
	s.mu.Lock()
	s.lastRefusal, s.refused = &r, guard.AskedAgain(rec)
	s.mu.Unlock()
}

// refusal serves control.GetRefusal.
func (s *Session) refusal(ctx context.Context, _ control.None) (control.RefusalAnswer, error) {
	s.audit.flush()
	return control.RefusalAnswer{Last: s.liftableRefusal(ctx)}, nil
}

// Explain is vfs.Tree.Explain for the session's roots.
func (s *Session) Explain(ctx context.Context, req guard.Request) guard.Explanation {
	return s.tree.Explain(ctx, req)
}

// liftableRefusal is the last refusal that a grant would have avoided, as it can be lifted
// now; nil if there is none.
func (s *Session) liftableRefusal(ctx context.Context) *control.Refusal {
	s.mu.Lock()
	noted, refused := s.lastRefusal, s.refused
	s.mu.Unlock()
	if noted == nil {
		return nil
	}
	last := *noted
	if last.Remedy != "set" {
		if again := *last.Grant; !again.Expires.After(time.Now()) {
			again.Expires = time.Time{} // it ends before anybody says yes: last.ForMS counts
			last.Grant = &again
		}
		return &last
	}
	// The mode may have changed since: what is proposed is what the root has now and what is
	// still missing, no less and no more.
	e := s.Explain(ctx, refused)
	st, ok := s.reg.Lookup(e.Root)
	if !ok || st.State != guard.Live || e.Lacks == 0 {
		return nil
	}
	last.Root, last.Dir, last.Mode = string(e.Root), st.Grant.Resolved, (st.Grant.Policy.Rights | e.Lacks).String()
	return &last
}
