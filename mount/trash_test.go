package mount

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// Files that programs remove, replace or truncate in the mount are in the trash. Programs
// cannot see, make or enter the trash. A file that was open when it was removed can still be read,
// and a restored file is in its place again.
func TestTrash(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		tree := vfs.New(reg)
		front := mountFront(t, Options{Level: level, Tree: tree}, reg)
		src := t.TempDir()
		for _, f := range []string{"removed", "replaced", "emptied", "new"} {
			if err := childfs.WriteFile(filepath.Join(src, f), []byte(f), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		ctx := context.Background()
		_, err := reg.Grant(ctx, guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite, Trash: rules.Trash{On: true}}})
		if err != nil {
			t.Fatal(err)
		}
		inMount := front.Host
		f, err := childfs.Open(inMount("r/removed"))
		testkit.Must(t, err)
		defer f.Close()
		testkit.Must(t, childfs.Remove(inMount("r/removed")))
		buf := make([]byte, 7)
		if n, err := f.ReadAt(buf, 0); n != 7 || err != nil {
			t.Errorf("the open file: %d, %v", n, err)
		}
		testkit.Must(t, childfs.Rename(inMount("r/new"), inMount("r/replaced")))
		testkit.Must(t, childfs.WriteFile(inMount("r/emptied"), []byte("x"), 0o644))
		if got := contents(inMount("r/emptied")) + contents(inMount("r/replaced")); got != "xnew" {
			t.Errorf("afterwards: %q", got)
		}
		list, err := tree.TrashList(ctx, "r")
		testkit.Must(t, err)
		var kept []string
		for _, e := range list {
			kept = append(kept, e.Path.Raw()+"="+contents(filepath.Join(src, rules.TrashName, e.ID)))
		}
		if want := []string{"removed=removed", "replaced=replaced", "emptied=emptied"}; !slices.Equal(kept, want) {
			t.Errorf("kept %q, want %q", kept, want)
		}
		if got, err := front.List("r"); err != nil || !slices.Equal(got, []string{"emptied", "replaced"}) {
			t.Errorf("seen: %q, %v", got, err)
		}
		for what, err := range map[string]error{
			"stat":  second(childfs.Stat(inMount("r/" + rules.TrashName))),
			"open":  second(childfs.Open(inMount("r/" + rules.TrashName + "/" + list[0].ID))),
			"chdir": childfs.Chdir(inMount("r/" + rules.TrashName)),
		} {
			if !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s: %v, want ENOENT", what, err)
			}
		}
		if err := childfs.Mkdir(inMount("r/"+rules.TrashName), 0o700); !errors.Is(err, unix.EACCES) {
			t.Errorf("mkdir: %v, want EACCES", err)
		}
		if _, err := tree.TrashRestore(ctx, "r", list[0].ID, ""); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the restored file", func() bool { return contents(inMount("r/removed")) == "removed" })
	})
}

func second[T any](_ T, err error) error { return err }
