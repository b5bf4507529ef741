package records

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
)

// A trail is of a session's newest run that was refused something, and its refusal is one
// that a program's own call caused.
func TestTrail(t *testing.T) {
	at := time.Now()
	next := func(e audit.Entry) *audit.Entry {
		at = at.Add(time.Second)
		e.Time = at
		return &e
	}
	control := func(op, root, rights, detail string) *audit.Entry {
		return next(audit.Entry{Via: "control", Op: op, Root: root, Rights: rights, Verdict: "allowed", Detail: detail})
	}
	refused := func(op, path, kind string) *audit.Entry {
		return next(audit.Entry{Via: "fuse", Op: op, Root: "code", Path: path, Verdict: "refused", Kind: kind})
	}
	run := func(list ...*audit.Entry) *Trail {
		tr := &Trail{Session: "s", Roots: map[string]TrailRoot{}}
		for _, e := range list {
			tr.add(e, nil)
		}
		whole := tr.whole()
		return &whole
	}
	grant := control("grant", "code", "ro", `/home/me/my (code) (command line); built-in protections lifted for "a (b", ".env"`)
	create := refused("create", "new", "ReadOnly")
	revoke := control("revoke", "code", "ro", "/home/me/my (code)")
	first := []*audit.Entry{
		grant, control("mount", "", "", "/home/me/a --b --cache=audit --locks=local"), control("mount", "", "", "/mnt for the server \"x\""), control("run", "", "", "confined by namespaces, uid 1"), create,
		revoke, refused("getattr", "written", "Revoked"), control("unmount", "", "", "detached"), refused("read", "late", "Revoked"),
	}
	tr := run(first...)
	if tr.Refused == nil || tr.Refused.Op != "create" || !tr.Ended || tr.Command != "confined by namespaces, uid 1" {
		t.Errorf("%+v", tr)
	}
	if tr.Place != "/home/me/a --b" {
		t.Error(tr.Place)
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
		t.Error("another path is found")
	}
	if list := tr.EndedSince(create.Time); len(list) != 1 || list[0] != "code" {
		t.Error(list)
	}

	// While the session lives, a program that looks at a root which has ended is told so.
	if tr := run(append(first[:6:6], refused("getattr", "", "Revoked"))...); tr.Refused == nil || tr.Refused.Op != "getattr" || tr.Ended {
		t.Errorf("%+v", tr)
	}

	// A later session of this name that was refused nothing leaves the trail as it is; one
	// that was refused something has a trail of its own.
	later := append(first, control("grant", "code", "rw", "/b (command line)"))
	if tr := run(later...); tr.Refused == nil || tr.Refused.Op != "create" || tr.Roots["code"].Mode != "ro" {
		t.Errorf("%+v", tr)
	}
	later = append(later, refused("read", "held", "Revoked"))
	if tr := run(later...); tr.Refused == nil || tr.Refused.Path != "held" || tr.Roots["code"].Dir != "/b" || tr.Ended {
		t.Errorf("%+v", tr)
	}
}
