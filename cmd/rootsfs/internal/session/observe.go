package session

import (
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// eventFailure is the kind of an event that tells of an operation that failed.
const eventFailure = "failure"

// observe is told of everything that happens in the registry. It runs in the
// middle of operations, so it does not wait for anything.
func (s *Session) observe(e guard.Event) {
	out := control.Event{Time: e.Time, Kind: string(e.Kind), Root: string(e.Root), Detail: e.Detail}
	if rec := e.Record; rec != nil {
		out.Op, out.Path, out.Reason = rec.Op.String(), names.Escape(rec.Path.String()), rec.Kind.String()
		out.UID, out.PID = rec.UID, rec.PID
		if rec.Detail != "" {
			out.Detail = rec.Detail
		}
		s.noteRefusal(rec)
		if rec.Verdict == guard.Failed {
			out.Kind = eventFailure
		}
	}
	s.hub.publish(out)
	if s.opt.Observe != nil {
		s.opt.Observe(e)
	}
	if e.Kind == guard.EventAdded && s.avail != nil {
		s.avail.update() // of a consent, too; s.avail is there before anything but Start grants
	}
	switch e.Kind {
	case guard.EventUnavailable:
		s.log.Warn("a root has become unavailable: its directory is gone, was replaced or cannot be read",
			"root", e.Root, "remedy", "put it back or make it again, then: rootsfs roots renew NAME")
	case guard.EventAbuse, guard.EventSuspended, guard.EventResumed:
		s.log.Warn("a server was refused too often: "+string(e.Kind), "detail", e.Detail, "see", "rootsfs status; rootsfs resume")
	case guard.EventRepository:
		s.log.Warn("a repository was created in a root", "root", e.Root, "detail", e.Detail)
	case guard.EventExpired, guard.EventRevoked, guard.EventAdded, guard.EventChanged:
		s.log.Info("root "+string(e.Kind), "root", e.Root, "detail", e.Detail)
	case guard.EventRefusal:
		s.log.Debug("refused", "op", out.Op, "path", out.Path, "reason", out.Reason, "pid", out.PID)
	}
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
	var lacks guard.Rights
	switch rec.Kind {
	case names.ReadOnly, names.Permission:
		st, ok := s.reg.Lookup(rec.Path.Root)
		if !ok || st.State != guard.Live {
			return
		}
		have := st.Grant.Policy.Rights
		want := have | rec.Rights
		if want == have && rec.Kind == names.ReadOnly {
			// Any of several rights would do; writing is the plain one.
			want |= guard.Write
		}
		if want == have {
			return
		}
		lacks = want &^ have
		r.Remedy, r.Mode, r.Dir = "set", want.String(), st.Grant.Resolved
	case names.Revoked, names.NoConsent:
		s.mu.Lock()
		g, ok := s.past[rec.Path.Root]
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
	s.last, s.lacks = &r, lacks
	s.mu.Unlock()
}
