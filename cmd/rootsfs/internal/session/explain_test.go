package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// newExplainer returns an Explainer of two roots: "code" is writable, "lib" read-only. Outside the
// roots, programs see only /etc.
func newExplainer(t *testing.T) (x Explainer, code, lib string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	code, lib = filepath.Join(top, "code"), filepath.Join(top, "lib")
	for _, dir := range []string{code + "/sub", lib + "/deep", top + "/outside"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"lib": lib, "sub/up": "../../lib", "etc": "/etc", "out": top + "/outside", "own": code + "/sub", "in": "sub",
	} {
		if err := os.Symlink(target, filepath.Join(code, link)); err != nil {
			t.Fatal(err)
		}
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	for name, p := range map[string]guard.Policy{"code": {Rights: guard.ReadWrite}, "lib": {Rights: guard.ReadOnly}} {
		if _, err := reg.Grant(t.Context(), guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(filepath.Join(top, name)), Policy: p, Origin: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	visible := func(dest string, _ bool) bool { return dest == "" || names.Under(dest, "/etc") }
	return Explainer{Registry: reg, Tree: vfs.New(reg), Mount: &mount.Options{Layout: mount.Layout{ByPath: true}, Visible: visible}}, code, lib
}

// An operation through a link that leaves its root is judged at the target of the link: in another
// root, in a directory of the system, or outside both. A mount that does not show such links
// refuses the operation.
func TestExplainLinks(t *testing.T) {
	x, code, _ := newExplainer(t)
	for _, c := range []struct {
		path, op           string
		allowed            bool
		reason, root, link string
		lacks              string
	}{
		{"code/in/new", "create", true, "", "code", "", ""},
		{"code/lib/deep", "list", true, "", "lib", code + "/lib", ""},
		{"code/lib/deep/x", "create", false, names.ReadOnly.String(), "lib", "", "create"},
		{"code/in/up/deep/x", "mkdir", false, names.ReadOnly.String(), "lib", "", "create"},
		{"code/own/x", "create", true, "", "code", code + "/own", ""},
		{"code/etc/hostname", "read", true, "", "", code + "/etc", ""},
		{"code/etc/hostname", "write", false, names.NoConsent.String(), "", code + "/etc", ""},
		{"code/out/x", "read", false, names.Escaped.String(), "code", code + "/out", ""},
		{"code/out", "delete", true, "", "code", "", ""}, // the link itself
	} {
		a, err := x.Check(t.Context(), control.CheckRequest{Path: c.path, Op: c.op})
		link := ""
		if a.Link != nil {
			link = a.Link.At.Raw()
		}
		if err != nil || a.Allowed != c.allowed || a.Reason != c.reason || a.Root.Raw() != c.root || link != c.link || a.Lacks != c.lacks {
			t.Errorf("%s %s: %+v, link %q, %v", c.op, c.path, a, link, err)
		}
	}
	x.Mount = &mount.Options{}
	for _, path := range []string{"code/lib/deep", "code/sub/up/deep", "code/etc", "code/own"} {
		if a, err := x.Check(t.Context(), control.CheckRequest{Path: path, Op: "list"}); err != nil || a.Allowed || a.Reason != names.Escaped.String() || a.Link == nil {
			t.Errorf("a mount that shows no such link: %s: %+v, %v", path, a, err)
		}
	}
}

// A path may begin with a root's name or the mountpoint, may be absolute, or may be relative to
// the working directory if the path then lies in a root or below the mountpoint.
func TestExplainLocates(t *testing.T) {
	x, code, _ := newExplainer(t)
	x.Point = "/mnt/point"
	for _, c := range []struct{ path, dir, root, want string }{
		{"code/a", code, "", "code/a"},
		{"./code/a", code, "", code + "/code/a"},
		{"sub/a", code, "", code + "/sub/a"},
		{"sub/a", "/nowhere", "", "sub/a"},
		{"sub/a", "", "", "sub/a"},
		{"../lib", code, "", filepath.Join(filepath.Dir(code), "lib")},
		{"/mnt/point/code/a", "", "", "code/a"},
		{"code/a", "/mnt/point", "", "code/a"},
		{"a", "/mnt/point/code", "", "code/a"},
		{"/sub/a", "", "code", "code/sub/a"},
		{"file:///x", code, "", "file:///x"},
		{"/etc/passwd", code, "", "/etc/passwd"},
	} {
		if got := x.Locate(&control.CheckRequest{Path: c.path, Dir: c.dir, Root: c.root}); got != c.want {
			t.Errorf("%q in %q: %q, want %q", c.path, c.dir, got, c.want)
		}
	}
}
