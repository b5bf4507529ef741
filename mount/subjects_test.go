package mount

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// R004, R006, R008, R127: two mounts share one registry, and show the same directory to two
// subjects with two policies. Each mount shows only its subject's root. One subject reads what the
// other writes, and the records name the subject. Revoking one root does not affect the other.
func TestTwoMountsOfOneDirectory(t *testing.T) {
	for _, level := range []Level{Strict, Audit} {
		t.Run(level.String(), func(t *testing.T) {
			rec := &guardtest.Recorder{}
			reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: rec})
			src, tree := t.TempDir(), vfs.New(reg)
			points := map[guard.Subject]string{}
			for who, rights := range map[guard.Subject]guard.Rights{"editor": guard.ReadWrite, "reviewer": guard.ReadOnly} {
				front := mountFront(t, Options{Level: level, Subject: who, Tree: tree}, reg)
				points[who] = filepath.Dir(front.Host(""))
				_, err := reg.Grant(context.Background(), guard.Grant{Root: guard.RootName(who) + "s", Dir: names.Foreign(src), Subject: who,
					Policy: guard.Policy{Rights: rights}, Origin: "test"})
				if err != nil {
					t.Fatal(err)
				}
			}
			at := func(who guard.Subject, rel string) string { return filepath.Join(points[who], string(who)+"s", rel) }
			for who := range points {
				list, err := childfs.ReadDir(points[who])
				if err != nil || len(list) != 1 || list[0].Name() != string(who)+"s" {
					t.Errorf("%s sees %v, %v", who, list, err)
				}
			}
			if _, err := childfs.Stat(filepath.Join(points["reviewer"], "editors")); !errors.Is(err, unix.ENOENT) {
				t.Errorf("another subject's root: %v, want ENOENT", err)
			}
			for _, text := range []string{"one", "two"} {
				if err := childfs.WriteFile(at("editor", "f"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				testkit.Until(t, text, func() bool { return contents(at("reviewer", "f")) == text })
			}
			if err := childfs.WriteFile(at("reviewer", "f"), []byte("x"), 0o644); !errors.Is(err, unix.EROFS) {
				t.Errorf("the reviewer writes: %v, want EROFS", err)
			}
			if err := childfs.Remove(at("reviewer", "f")); !errors.Is(err, unix.EROFS) {
				t.Errorf("the reviewer removes: %v, want EROFS", err)
			}
			var wrote, refused bool
			for _, r := range rec.All() {
				wrote = wrote || r.Subject == "editor" && r.Op == names.OpCreate && r.Path.String() == "editors/f"
				refused = refused || r.Subject == "reviewer" && r.Verdict == guard.Refused && r.Path.String() == "reviewers/f"
			}
			if !wrote || !refused {
				t.Errorf("the records do not say who did what: wrote %v, refused %v", wrote, refused)
			}
			f, err := childfs.Open(at("editor", "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := reg.Revoke(context.Background(), "editors"); err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReadAt(make([]byte, 3), 0); err == nil {
				t.Error("a file of the revoked root can be read")
			}
			if got := contents(at("reviewer", "f")); got != "two" {
				t.Errorf("the reviewer reads %q afterwards", got)
			}
		})
	}
}

// contents returns the contents of a file, or the error.
func contents(name string) string {
	b, err := childfs.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
