package auditview

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Trail is a summary of the records of a session's newest run: its roots, how its command was
// confined, and the newest refusal.
type Trail struct {
	Session string
	Roots   map[names.Foreign]TrailRoot // by name, also those that have ended
	Ran     bool                        // its command was started
	Level   string                      // how the command is confined
	Mounted bool                        // its tree was served, at Point or by rootsfs serve
	Point   string                      // the mountpoint, if it has one
	Ended   bool
	Refused *audit.Entry // nil: none
	// Older reports that an earlier version wrote the records: directories, Level and Point
	// are missing.
	Older bool

	earlier *Trail       // of an earlier session of this name, if that was refused something
	unsure  *audit.Entry // the newest refusal for which isUnsure reports true
}

// TrailRoot describes a root by its newest grant.
type TrailRoot struct {
	Dir, Mode string
	End       time.Time // zero: it is live
	EndOp     string    // revoke, expire, …
}

// Trail reads the records of a session. It takes only refusals that a program's own call
// caused. Unless matches is nil, it takes only those that matches accepts. If only an
// earlier session of this name had such a refusal, the trail is of that session.
func (s *Store) Trail(ctx context.Context, session string, matches func(*Trail, *audit.Entry) bool) (Trail, error) {
	t := Trail{Session: session, Roots: map[names.Foreign]TrailRoot{}}
	_, err := s.Each(ctx, Query{Session: session, Limit: 1}, func(e *audit.Entry) error {
		t.add(e, matches)
		return nil
	})
	return t.result(), err
}

// result returns the trail to report after the last record: t, or that of an earlier session.
func (t *Trail) result() Trail {
	if !t.Ended && t.unsure != nil && (t.Refused == nil || t.unsure.Time.After(t.Refused.Time)) {
		t.Refused = t.unsure
	}
	if t.Refused == nil && t.earlier != nil {
		return *t.earlier
	}
	return *t
}

// add adds the next record of the session to the trail.
func (t *Trail) add(e *audit.Entry, matches func(*Trail, *audit.Entry) bool) {
	switch {
	case e.Verdict == "refused":
		if e.Via != "control" && !t.Ended && (matches == nil || matches(t, e)) {
			one := *e
			one.Line = nil // the reader reuses its memory
			if isUnsure(e) {
				t.unsure = &one
			} else {
				t.Refused = &one
			}
		}
		return
	case e.Verdict != "allowed" || e.Via != "control":
		return
	case t.Ended && e.Op.Raw() == names.OpGrant.String(): // the next session of this name begins
		earlier := t.earlier
		if t.Refused != nil {
			one := *t
			earlier, one.earlier = &one, nil
		}
		*t = Trail{Session: t.Session, Roots: map[names.Foreign]TrailRoot{}, earlier: earlier}
	}
	t.Older = e.LacksFacts()
	if e.Root != "" { // else it is about the network, or the session itself
		t.addRoot(e)
		return
	}
	switch e.Op.Raw() {
	case names.OpMount.String():
		if !t.Mounted {
			t.Mounted, t.Point = true, e.Point.Raw()
		}
	case names.OpRun.String():
		t.Ran, t.Level = true, e.Level.Raw()
	case names.OpUnmount.String():
		t.Ended = true
	}
}

// StartedBy returns the command that started the session: run, mount or serve. It returns run
// if there is no record of it.
func (t *Trail) StartedBy() string {
	switch {
	case t.Ran || !t.Mounted:
		return "run"
	case t.Point == "":
		return "serve"
	}
	return "mount"
}

// addRoot adds a record about a root.
func (t *Trail) addRoot(e *audit.Entry) {
	switch root := t.Roots[e.Root]; e.Op.Raw() {
	case names.OpGrant.String():
		t.Roots[e.Root] = TrailRoot{Dir: e.Dir.Raw(), Mode: e.Rights.Raw()}
	case names.OpSet.String():
		if e.Rights != "" { // without rights it is a note about the root
			root.Mode = e.Rights.Raw()
		}
		t.Roots[e.Root] = root
	case names.OpRevoke.String(), names.OpExpire.String(), names.OpUnavailable.String():
		root.End, root.EndOp = e.Time, e.Op.Raw()
		t.Roots[e.Root] = root
	}
}

// isUnsure reports whether a refusal may have another cause than a program's own call.
// When a root ends, the kernel asks for the attributes of cached files, and is refused;
// so is a program whose working directory is in the root. While the session lives, such a
// refusal shows the root's end. At the end of a session it shows nothing.
func isUnsure(e *audit.Entry) bool {
	return e.Kind.Raw() == names.Revoked.String() && e.Op.Raw() == names.OpGetattr.String()
}

// HostPath returns the path on the host of a record's file, "" if it is not known.
func (t *Trail) HostPath(e *audit.Entry) string {
	root, ok := t.Roots[e.Root]
	if !ok || root.Dir == "" || e.PathHash != "" {
		return ""
	}
	return filepath.Join(root.Dir, e.Name().Raw())
}

// EndedRoot finds the innermost root that has ended and held a path: a path on the
// host, or the root's name and a path below it.
func (t *Trail) EndedRoot(path string) (name string, root TrailRoot, found bool) {
	for n, r := range t.Roots {
		if r.End.IsZero() {
			continue
		}
		first, _, _ := strings.Cut(path, "/")
		if first == n.Raw() || r.Dir != "" && names.Under(path, r.Dir) && len(r.Dir) >= len(root.Dir) {
			name, root, found = n.Raw(), r, true
		}
	}
	return name, root, found
}

// EndedSince lists the roots that have ended after a moment, by name.
func (t *Trail) EndedSince(moment time.Time) (list []string) {
	for name, r := range t.Roots {
		if r.End.After(moment) {
			list = append(list, name.Raw())
		}
	}
	slices.Sort(list)
	return list
}
