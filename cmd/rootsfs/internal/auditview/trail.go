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

// Trail is a summary of the records of one session: its roots, how its command was confined, and
// its newest refusal. Sessions of the same name may follow each other; Store.Trail chooses one.
type Trail struct {
	Session string
	Roots   map[names.Foreign]TrailRoot // by name; roots that have ended are included
	Ran     bool                        // the command of the session was started
	Level   string                      // how the command is confined
	Mounted bool                        // the session's tree was served, at Point or by rootsfs serve
	Point   string                      // the mountpoint; "": none
	Ended   bool
	Refused *audit.Entry // the newest refusal; nil: none
	// Older reports that an earlier version of rootsfs wrote the newest record of a control
	// operation. That version did not record the directories, Level and Point.
	Older bool
	// HidesPaths reports that the records have no paths, or hashes of them.
	HidesPaths bool

	earlier *Trail       // the newest earlier session of this name with a refusal; nil: none
	unsure  *audit.Entry // the newest refusal for which isUnsure reports true
}

// TrailRoot describes a root by its newest grant.
type TrailRoot struct {
	Dir, Mode string
	End       time.Time // zero: the root is live
	EndOp     string    // revoke, expire, …
}

// Trail reads the records of the sessions with a name and summarizes the newest session. It ignores
// refusals of control operations, refusals after the end of a session and, if the session has
// ended, refusals for which isUnsure reports true. If matches is not nil, Trail also ignores
// refusals for which matches reports false. If only earlier sessions have a refusal that Trail does
// not ignore, Trail summarizes the newest of these.
func (s *Store) Trail(ctx context.Context, session string, matches func(*Trail, *audit.Entry) bool) (Trail, error) {
	t := Trail{Session: session, Roots: map[names.Foreign]TrailRoot{}}
	_, err := s.Each(ctx, Query{Session: session, Limit: 1, headers: true}, func(e *audit.Entry) error {
		t.add(e, matches)
		return nil
	})
	return t.result(), err
}

// result returns the trail to report after the last record: t, or the trail of an earlier session
// if t has no refusal and the earlier session has one.
func (t *Trail) result() Trail {
	if !t.Ended && t.unsure != nil && (t.Refused == nil || t.unsure.Time.After(t.Refused.Time)) {
		t.Refused = t.unsure
	}
	if t.Refused == nil && t.earlier != nil {
		return *t.earlier
	}
	return *t
}

// add adds the next record to the trail.
func (t *Trail) add(e *audit.Entry, matches func(*Trail, *audit.Entry) bool) {
	switch {
	case e.Verdict == "refused":
		if e.Via != "control" && !t.Ended && (matches == nil || matches(t, e)) {
			one := *e
			one.Line = nil // audit.Read reuses the memory of Line
			if isUnsure(e) {
				t.unsure = &one
			} else {
				t.Refused = &one
			}
		}
		return
	case e.Op == opHeader:
		if e.AnchorHash != "" { // not a continuation; the session before may have left no record of its end
			t.begin()
		}
		t.HidesPaths = e.Paths != "" && e.Paths != audit.PathsFull.String()
		return
	case e.Verdict != "allowed" || e.Via != "control":
		return
	case t.Ended && e.Op.Raw() == names.OpGrant.String():
		t.begin()
	}
	t.Older = e.LacksFacts()
	if e.Root != "" { // otherwise the record is about the network, or the session itself
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

// begin begins the trail of the next session of this name.
func (t *Trail) begin() {
	earlier := t.earlier
	if t.Refused != nil {
		one := *t
		one.Ended, one.earlier = true, nil
		earlier = &one
	}
	*t = Trail{Session: t.Session, Roots: map[names.Foreign]TrailRoot{}, earlier: earlier}
}

// StartedBy returns the command that started the session: run, mount or serve. It returns run if no
// record shows which command it was.
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
		if e.Rights != "" { // a record without rights is only a note about the root
			root.Mode = e.Rights.Raw()
		}
		t.Roots[e.Root] = root
	case names.OpRevoke.String(), names.OpExpire.String(), names.OpUnavailable.String():
		root.End, root.EndOp = e.Time, e.Op.Raw()
		t.Roots[e.Root] = root
	}
}

// isUnsure reports whether a refusal may have another cause than a program's own call. When a root
// ends, the kernel asks for the attributes of cached files and is refused. A program whose working
// directory is in the root is refused in the same way. While the session lives, such a refusal
// shows that the root has ended. At the end of a session, where all roots end, such a refusal shows
// nothing.
func isUnsure(e *audit.Entry) bool {
	return e.Kind.Raw() == names.Revoked.String() && e.Op.Raw() == names.OpGetattr.String()
}

// HostPath returns the path that the file of a record has on the host, "" if the path is not known.
func (t *Trail) HostPath(e *audit.Entry) string {
	root, ok := t.Roots[e.Root]
	if !ok || root.Dir == "" || e.PathHash != "" {
		return ""
	}
	return filepath.Join(root.Dir, e.Name().Raw())
}

// EndedRoot finds the root that has ended and contained path. path is a path on the host, or the
// name of a root, with or without a path below the root. If several such roots contained a path on
// the host, EndedRoot returns the innermost one.
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

// EndedSince returns the sorted names of the roots that ended after a moment.
func (t *Trail) EndedSince(moment time.Time) (list []string) {
	for name, r := range t.Roots {
		if r.End.After(moment) {
			list = append(list, name.Raw())
		}
	}
	slices.Sort(list)
	return list
}
