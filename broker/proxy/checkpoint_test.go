package proxy_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// Before the server gets a tool call, the changes that are staged in its roots are saved in a
// checkpoint, if there are new changes since the latest checkpoint. A tool's name that is invalid
// for a checkpoint is left out.
func TestToolCallsMakeCheckpoints(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(filepath.Join(t.TempDir(), "stages"), "test")})
	tree := vfs.New(reg)
	for _, root := range []guard.Grant{{Root: "mine", Subject: "server"}, {Root: "others", Subject: "another"}} {
		root.Dir, root.Origin, root.Policy = names.Foreign(t.TempDir()), "test", guard.Policy{Rights: guard.ReadWrite | guard.Stage}
		_, err := reg.Grant(t.Context(), root)
		testkit.Must(t, err)
	}
	t.Cleanup(func() {
		_, err := reg.RevokeAll(context.Background())
		testkit.Must(t, err)
		reg.AwaitStages(context.Background())
	})
	create := func(root guard.RootName, who guard.Subject, name string) {
		t.Helper()
		at, err := guard.NewPath(root, "")
		testkit.Must(t, err)
		f, _, _, err := tree.Create(t.Context(), guard.Caller{Via: guard.ViaFiles, Subject: who}, vfs.At{Path: at}, name, unix.O_WRONLY, 0o644)
		testkit.Must(t, err)
		f.Close()
	}
	l := newLab(t, func(c *broker.Config) { c.Registry, c.Tree = reg, tree })
	n := l.connect(nil)
	n.handshake(`{"roots":{}}`)
	call := func(params string) {
		t.Helper()
		n.host.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}` + "\n")
		n.server.message()
	}
	create("mine", "server", "f")
	create("others", "another", "f")
	call(`{"name":"edit"}`)
	call(`{"name":"edit"}`)
	create("mine", "server", "g")
	call(`{"name":"a\u001bb"}`)
	create("mine", "server", "h")
	call(`{}`)
	for root, want := range map[guard.RootName][]string{"mine": {"tool call edit", "tool call", "tool call"}, "others": nil} {
		list, err := tree.StageCheckpoints(t.Context(), root)
		var got []string
		for _, c := range list {
			got = append(got, c.Cause)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the checkpoints of %s are %q (%v), want %q", root, got, err, want)
		}
	}
}
