package session

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

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
	s.lastRefusal, s.missingRights = &r, lacks
	s.mu.Unlock()
}

// refusal serves control.GetRefusal.
func (s *Session) refusal(context.Context, control.None) (control.RefusalAnswer, error) {
	s.audit.flush()
	return control.RefusalAnswer{Last: s.liftableRefusal()}, nil
}

// liftableRefusal is the last refusal that a grant would have avoided, as it can be lifted
// now; nil if there is none.
func (s *Session) liftableRefusal() *control.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastRefusal == nil {
		return nil
	}
	last := *s.lastRefusal
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
	if !ok || st.State != guard.Live || s.missingRights&^st.Grant.Policy.Rights == 0 {
		return nil
	}
	last.Mode = (st.Grant.Policy.Rights | s.missingRights).String()
	return &last
}
