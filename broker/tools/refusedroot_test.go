package tools_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If only one root remains, a path may leave out the root's name. The name of a root that has ended
// is not taken for a path in the remaining root: a file that was meant for the ended root is not
// created in the remaining root.
func TestEndedRootIsNoPathInAnother_R070(t *testing.T) {
	b := start(t, nil, nil).connect("")
	b.root("code", guard.ReadWrite)
	left := b.root("left", guard.ReadWrite, "a=left")
	_, err := b.reg.Revoke(context.Background(), "code")
	testkit.Must(t, err)
	const why = "access to the root was revoked"
	for _, path := range []string{"code/new", "./code/new"} {
		b.refused("create_directory", m{"path": path}, why)
		b.refused("write_file", m{"path": path, "content": "x"}, why)
		b.refused("copy_file", m{"source": "a", "destination": path}, why)
	}
	if _, err := os.Lstat(filepath.Join(left, "code")); err == nil {
		t.Error("created in the remaining root")
	}
	if text := b.ok("read_text_file", m{"path": "a"}); text != "left" {
		t.Errorf("read %q", text)
	}
	b.root("code", guard.ReadWrite, "f=again")
	if text := b.ok("read_text_file", m{"path": "code/f"}); text != "again" {
		t.Errorf("read %q from the root that was granted again", text)
	}
}

// A call with a root that does not exist, or that has ended, is refused, and the record of the
// refusal names the root. The refusal of a tool that no root allows is recorded, too.
func TestRefusalsAreOnRecord_R084(t *testing.T) {
	for way, connect := range map[string]func(*bench){"memory": inMemory, "stdio": func(b *bench) { b.overStdio("") }} {
		t.Run(way, func(t *testing.T) {
			b := start(t, func(cfg *tools.Config) { cfg.Subject = "reader" }, nil)
			b.root("docs", guard.ReadOnly, "a=")
			b.root("more", guard.ReadOnly)
			b.root("gone", guard.ReadOnly)
			_, err := b.reg.Revoke(context.Background(), "gone")
			testkit.Must(t, err)
			connect(b)
			b.refused("read_text_file", m{"path": "other/a"}, "nobody approved this")
			b.refused("read_text_file", m{"path": "gone/a"}, "access to the root was revoked")
			b.refused("write_file", m{"path": "docs/a", "content": "x"}, "is not offered")
			for _, want := range []struct {
				root guard.RootName
				kind guard.Kind
			}{{"other", names.NoConsent}, {"gone", names.Revoked}, {"", names.Permission}} {
				if !slices.ContainsFunc(b.recs.All(), func(r guard.Record) bool {
					return r.Verdict == guard.Refused && r.Subject == "reader" && r.Path.Root == want.root && r.Kind == want.kind
				}) {
					t.Errorf("no record of the refusal %v in the root %q: %+v", want.kind, want.root, b.recs.All())
				}
			}
		})
	}
}
