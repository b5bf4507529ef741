package session

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/availability"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// status serves control.GetStatus.
func (s *Session) status(context.Context, control.None) (control.Status, error) {
	return s.state(), nil
}

// state returns the session's present state.
func (s *Session) state() control.Status {
	var o mount.Options
	if s.mnt != nil {
		o = s.mnt.Options()
	}
	st := control.Status{
		Session: s.dir.Name(), PID: os.Getpid(), Version: s.opt.Version, Started: s.started,
		Point: names.Foreign(s.Point()), Cache: o.Level.String(), Locks: o.Locks.String(), Posix: "safe",
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
			st.NoRings = names.Text(why.Error())
		}
	}
	st.Profile, st.Config, st.ConfigError = s.conf.status()
	st.Ceiling = s.ceilingStatus()
	select {
	case <-s.unlisted:
		st.Mounted = false
	default:
	}
	roots := s.reg.Roots()
	s.avail.AskFree(s.ctx, roots)
	for _, r := range roots {
		st.Roots = append(st.Roots, s.describe(r))
	}
	for _, u := range s.reg.Usage() {
		st.Subjects = append(st.Subjects, control.Quota{
			Subject: names.Foreign(u.Subject), Written: u.Written, Created: u.Created,
			MaxFile: u.Quota.MaxFile, MaxWritten: u.Quota.MaxWritten, MaxCreated: u.Quota.MaxCreated,
		})
	}
	st.Suspended, st.Paused, st.Lease = s.suspendedServers(), s.pauses(), s.leaseStatus()
	questions, _ := s.consent.Waiting()
	st.Process, st.Files, st.Questions = process(roots), brokerStats(s.broker), len(questions)
	addSharing(&st)
	st.Denials = len(s.consent.Denials())
	st.Server, st.Recent = s.server.Load(), recentOf(s.audit)
	if st.Server != nil && s.opt.Network != nil {
		now, net := *st.Server, s.opt.Network.State()
		now.Hosts, now.Secrets = net.Hosts, net.Secrets
		net.Connections = busiest(net.Connections)
		st.Server, st.Network = &now, &net
	}
	st.Sockets = liveSockets(s.opt.Sockets)
	st.PathsPolled = names.Text(s.paths.Problem())
	if s.mnt != nil {
		addWatching(&st, s.mnt.SourceStatus())
	}
	return st
}

// maxShownConnections is the largest number of connections of a network that a status lists.
const maxShownConnections = 32

// busiest returns the maxShownConnections fastest connections, the fastest first. It sorts list in
// place.
func busiest(list []control.NetConnection) []control.NetConnection {
	slices.SortStableFunc(list, func(a, b control.NetConnection) int { return cmp.Compare(b.Rate, a.Rate) })
	return list[:min(len(list), maxShownConnections)]
}

// addSharing sets, for each root that was granted to requests without a session, who shares it.
func addSharing(st *control.Status) {
	for i := range st.Roots {
		r := &st.Roots[i]
		at := slices.IndexFunc(st.Files, func(f broker.Stats) bool { return r.Subject != "" && f.Subject.Raw() == r.Subject.Raw() })
		if at >= 0 {
			r.SharedBy = st.Files[at].SharedBy
		}
	}
}

// addWatching adds to st the figures about the watching of the sources of one mount.
func addWatching(st *control.Status, src mount.SourceStatus) {
	for _, r := range src.Loose {
		if !slices.Contains(st.Unwatched, names.Foreign(r)) {
			st.Unwatched = append(st.Unwatched, names.Foreign(r))
		}
	}
	st.Watches += src.Watched
	st.WatchesRefused += src.Refused
	st.Stuck += src.Stuck
}

// recentOf returns the last operations.
func recentOf(log *records) []control.Operation {
	out := []control.Operation{}
	for _, rec := range log.newest() {
		op := control.Operation{
			Time: rec.Time, Op: rec.Op.String(), Path: names.Text(names.Escape(rec.Path.String())),
			Via: rec.Via.String(), Verdict: rec.Verdict.String(), PID: rec.PID,
		}
		if rec.Verdict != guard.Allowed {
			op.Reason = rec.Kind.String()
			if rec.Target != "" {
				op.Detail = names.Text("the link leads to " + names.Quote(rec.Target))
			}
		}
		out = append(out, op)
	}
	return out
}

func (s *Session) describe(r guard.Status) control.Root {
	place := s.avail.Place(r.Epoch)
	out := control.Root{
		Name: names.Foreign(r.Grant.Root), Path: names.Foreign(r.Grant.Dir), Resolved: names.Foreign(r.Grant.Resolved),
		Mode: r.Grant.Policy.Rights.String(), State: r.State.String(), File: r.FileRoot,
		FSType: r.FSType, Remote: r.Remote, Perm: place.Permissions, Origin: r.Grant.Origin, Epoch: r.Epoch,
		InFlight: r.InFlight, Ops: r.Ops, Refused: r.Refused, BytesRead: r.BytesRead,
		Written: r.Written, Nested: names.List[names.Foreign](r.Nested), Repos: names.List[names.Foreign](r.Repos), Lifted: names.Text(r.Grant.Policy.LiftedText()),
	}
	out.Subject, out.Created, out.Limits = names.Foreign(r.Grant.Subject), r.Created, r.Grant.Policy.Limits
	if !r.Grant.Expires.IsZero() {
		out.Expires = &r.Grant.Expires
	}
	out.Once, out.Stage = r.Once, stageOf(&r)
	if r.State == guard.UnavailableState {
		out.Why = names.Text(availability.Why(out.Name.Raw(), place.Reappeared))
	} else {
		out.Free = place.Free
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

// process returns the figures of this process, and the sums of the figures of roots. A figure that
// cannot be read stays zero, for example if no descriptor is left to open /proc.
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

// brokerStats returns the figures of the connected servers.
func brokerStats(b *broker.Broker) []broker.Stats {
	list := []broker.Stats{}
	for _, one := range b.Sessions() {
		list = append(list, one.Stats())
	}
	return list
}

// noteRefusal keeps the refusal rec for `rootsfs allow --last` if a grant or a wider mode could
// have avoided the refusal. A refusal by a file's own permissions does not count: noteRefusal
// ignores rec, or, in a root with nested roots, liftable later returns nil.
func (f *refusals) noteRefusal(reg *guard.Registry, rec *guard.Record) {
	if rec.Verdict != guard.Refused || rec.Via == guard.ViaControl {
		return
	}
	r := control.Refusal{
		Time: rec.Time, Op: rec.Op.String(), Path: names.Text(names.Escape(rec.Path.String())), Reason: rec.Kind.String(),
		UID: rec.UID, PID: rec.PID, Root: names.Foreign(rec.Path.Root),
	}
	switch rec.Kind {
	case names.ReadOnly, names.Permission:
		// liftable checks later whether a right is missing: this code runs in the middle of an
		// operation, and must not read the source.
		st, ok := reg.Lookup(rec.Path.Root)
		if !ok || st.State != guard.Live || rec.Rule != "" ||
			rec.Kind == names.Permission && rec.Rights&^st.Grant.Policy.Rights == 0 && len(st.Nested) == 0 {
			return
		}
		r.Remedy = "set"
	case names.Revoked, names.NoConsent:
		g, ok := f.grant(rec.Path.Root)
		if !ok {
			return
		}
		// If the grant had an end, a new approval has the same end. If this end has passed, the
		// new approval has the duration of the grant.
		r.ForMS = g.life().Milliseconds()
		if !g.Expires.After(time.Now()) {
			g.Expires = time.Time{}
		}
		r.Remedy, r.Mode, r.Dir = "grant", g.Policy.Rights.String(), names.Foreign(g.Dir)
		g.Origin = "allow --last"
		r.Grant = &g.Grant
	default:
		return
	}
	f.setLast(&r, guard.RequestOf(rec))
}

// refusal serves control.GetRefusal.
func (s *Session) refusal(ctx context.Context, _ control.None) (control.RefusalAnswer, error) {
	s.audit.flush()
	return control.RefusalAnswer{Last: s.refusals.liftable(ctx, s.reg, s.tree)}, nil
}

// Explain is vfs.Tree.Explain for the session's roots.
func (s *Session) Explain(ctx context.Context, req guard.Request) guard.Explanation {
	return s.tree.Explain(ctx, req)
}

// liftable returns the refusal that noteRefusal kept last, with the grant or mode that would lift
// the refusal now. It returns nil if noteRefusal kept none, or if no wider mode would lift it now.
func (f *refusals) liftable(ctx context.Context, reg *guard.Registry, tree *vfs.Tree) *control.Refusal {
	noted, refused := f.lastRefusal()
	if noted == nil {
		return nil
	}
	last := *noted
	if last.Remedy != "set" {
		if again := *last.Grant; !again.Expires.After(time.Now()) {
			again.Expires = time.Time{} // the end has passed since the refusal: last.ForMS counts
			last.Grant = &again
		}
		return &last
	}
	// The mode may have changed since: the proposal is the present mode with exactly the
	// missing rights added.
	e := tree.Explain(ctx, refused)
	st, ok := reg.Lookup(e.Root)
	if !ok || st.State != guard.Live || e.Lacks == 0 {
		return nil
	}
	last.Root, last.Dir, last.Mode = names.Foreign(e.Root), names.Foreign(st.Grant.Resolved), (st.Grant.Policy.Rights | e.Lacks).String()
	return &last
}
