package auditview

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A trail is about the newest session of a name in which something was refused. The trail's refusal
// was caused by a program's own call.
func TestTrail(t *testing.T) {
	at := time.Now()
	next := func(e audit.Entry) *audit.Entry {
		at = at.Add(time.Second)
		e.Time = at
		return &e
	}
	control := func(op, root, rights, dir string) *audit.Entry {
		return next(audit.Entry{Via: "control", Op: names.Foreign(op), Root: names.Foreign(root), Rights: names.Foreign(rights), Verdict: "allowed", Dir: names.Foreign(dir)})
	}
	refused := func(op, path, kind string) *audit.Entry {
		return next(audit.Entry{Via: "fuse", Op: names.Foreign(op), Root: "code", Path: names.Foreign(path), Verdict: "refused", Kind: names.Foreign(kind)})
	}
	run := func(list ...*audit.Entry) *Trail {
		tr := &Trail{Session: "s", Roots: map[names.Foreign]TrailRoot{}}
		for _, e := range list {
			tr.add(e, nil)
		}
		result := tr.result()
		return &result
	}
	grant := control("grant", "code", "ro", "/home/me/my (code)")
	mount := control("mount", "", "", "")
	mount.Point = "/home/me/a --b"
	started := control("run", "", "", "")
	started.Level = "namespaces"
	create := refused("create", "new", "ReadOnly")
	revoke := control("revoke", "code", "ro", "/home/me/my (code)")
	first := []*audit.Entry{
		grant, mount, control("mount", "", "", ""), started, create,
		revoke, refused("getattr", "written", "Revoked"), control("unmount", "", "", ""), refused("read", "late", "Revoked"),
	}
	tr := run(first...)
	if tr.Refused == nil || tr.Refused.Op != "create" || !tr.Ended || tr.Level != "namespaces" || tr.StartedBy() != "run" || tr.Older {
		t.Errorf("%+v", tr)
	}
	if tr.Point != "/home/me/a --b" {
		t.Error(tr.Point)
	}
	if got := tr.HostPath(tr.Refused); got != "/home/me/my (code)/new" {
		t.Error(got)
	}
	if name, root, found := tr.EndedRoot("/home/me/my (code)/a"); !found || name != "code" || root.EndOp != "revoke" || !root.End.Equal(revoke.Time) {
		t.Error(name, root, found)
	}
	if name, _, found := tr.EndedRoot("code/a"); !found || name != "code" {
		t.Error(name, found)
	}
	if _, _, found := tr.EndedRoot("/home/me/other"); found {
		t.Error("a path outside of the root was found in the root")
	}
	if list := tr.EndedSince(create.Time); len(list) != 1 || list[0] != "code" {
		t.Error(list)
	}

	// While the session lives, a getattr in an ended root counts as a program's refusal.
	if tr := run(append(first[:6:6], refused("getattr", "", "Revoked"))...); tr.Refused == nil || tr.Refused.Op != "getattr" || tr.Ended {
		t.Errorf("%+v", tr)
	}

	// A later session of this name that was refused nothing leaves the trail as it is. A later
	// session that was refused something has a trail of its own.
	later := append(first, control("grant", "code", "rw", "/b"))
	if tr := run(later...); tr.Refused == nil || tr.Refused.Op != "create" || tr.Roots["code"].Mode != "ro" {
		t.Errorf("%+v", tr)
	}
	later = append(later, refused("read", "held", "Revoked"))
	if tr := run(later...); tr.Refused == nil || tr.Refused.Path != "held" || tr.Roots["code"].Dir != "/b" || tr.Ended {
		t.Errorf("%+v", tr)
	}
}

// A killed session leaves no record of its end. The trail of the next session of this name has
// nothing of it, and the trail of the killed session nothing of the next.
func TestTrailAfterKilledSession(t *testing.T) {
	dir := t.TempDir()
	session := func(records ...guard.Record) {
		log, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), Session: "s", Anchor: filepath.Join(dir, "anchor"), Paths: audit.PathsFull})
		testkit.Must(t, err)
		for _, r := range records {
			r.Time = time.Now()
			testkit.Must(t, log.Record(r))
		}
		testkit.Must(t, log.Close())
	}
	root := func(op names.Op, name guard.RootName, at string) guard.Record {
		return guard.Record{Op: op, Via: guard.ViaControl, Verdict: guard.Allowed, Path: guard.Path{Root: name}, Facts: guard.Facts{Dir: at}}
	}
	mount := func(point string) guard.Record {
		return guard.Record{Op: names.OpMount, Via: guard.ViaControl, Verdict: guard.Allowed, Facts: guard.Facts{Point: point}}
	}
	refused := guard.Record{Op: names.OpCreate, Via: guard.ViaFUSE, Verdict: guard.Refused, Kind: names.ReadOnly, Path: guard.Path{Root: "code"}}
	store := &Store{Dir: filepath.Join(dir, "audit")}
	trail := func() Trail {
		tr, err := store.Trail(t.Context(), "s", nil)
		testkit.Must(t, err)
		return tr
	}
	session(root(names.OpGrant, "old", "/old"), root(names.OpGrant, "code", "/a"), mount("/mnt/a"), refused)
	session(root(names.OpGrant, "code", "/b"), mount("/mnt/b"))
	if tr := trail(); tr.Refused == nil || tr.Roots["code"].Dir != "/a" || tr.Point != "/mnt/a" || !tr.Ended {
		t.Errorf("the killed session: %+v", tr)
	}
	session(root(names.OpGrant, "code", "/c"), mount("/mnt/c"), refused)
	if tr := trail(); tr.Refused == nil || len(tr.Roots) != 1 || tr.Roots["code"].Dir != "/c" || tr.Point != "/mnt/c" || tr.Ended {
		t.Errorf("the session after it: %+v", tr)
	}
	session(refused)
	if tr := trail(); tr.Refused == nil || len(tr.Roots) != 0 {
		t.Errorf("a session without roots: %+v", tr)
	}
}

// Records about hosts concern no root: after a host has ended, no path counts as a path in an ended
// root.
func TestHostsAreNoRoots(t *testing.T) {
	tr := &Trail{Session: "s", Roots: map[names.Foreign]TrailRoot{}}
	for _, op := range []string{"grant", "revoke", "expire"} {
		tr.add(&audit.Entry{Time: time.Now(), Via: "control", Op: names.Foreign(op), Verdict: "allowed", Host: "a.test:443", Detail: "network a.test:443"}, nil)
	}
	if name, root, found := tr.EndedRoot("/etc/passwd"); found || len(tr.Roots) != 0 {
		t.Errorf("%q %+v, %v", name, root, tr.Roots)
	}
}

// StartedBy recognises the command that started a session by what the records have shown.
func TestStartedBy(t *testing.T) {
	for want, tr := range map[string]Trail{
		"run":   {Ran: true, Mounted: true, Point: "/run/x"},
		"mount": {Mounted: true, Point: "/mnt"},
		"serve": {Mounted: true},
	} {
		if got := tr.StartedBy(); got != want {
			t.Errorf("%+v: %s", tr, got)
		}
	}
}
