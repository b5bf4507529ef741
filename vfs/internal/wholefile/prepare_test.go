package wholefile

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// If the file system cannot make files without a name, the prepared file has a temporary name from
// the beginning. The file becomes the new file, replaces the old one, or is removed. The journal
// has the temporary name until then.
func TestPreparedWithName(t *testing.T) {
	src := t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: beneath.Opener{}})
	if _, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}); err != nil {
		t.Fatal(err)
	}
	beneath.Prepare()
	var st Preparer
	open := map[string]bool{}
	st.SetJournal(journalFunc(func(p guard.Path) func() {
		open[p.Rel()] = true
		return func() { delete(open, p.Rel()) }
	}))
	root, err := guard.NewPath("r", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "old"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	req := guard.Request{Caller: guard.Caller{Via: guard.ViaFiles}, Op: names.OpGetattr, Path: root}
	for _, c := range []struct {
		base     string
		replaces bool
		want     error
	}{{"new", false, nil}, {"old", false, unix.EEXIST}, {"old", true, nil}} {
		_, err := gate.Do(context.Background(), reg, req, nil, func(l *guard.Lease) (struct{}, int64, error) {
			d, err := beneath.OpenDir(l, "")
			if err != nil {
				return struct{}{}, 0, err
			}
			s, err := st.prepareNamed(l, d, root, 0o600, beneath.Owner{})
			if err != nil {
				return struct{}{}, 0, err
			}
			if len(open) != 1 || !open[s.temp] || !strings.HasPrefix(s.temp, beneath.TempPrefix) {
				t.Errorf("%s: journalled %v for %q", c.base, open, s.temp)
			}
			if _, err := beneath.Pwritev(l, s.Changeable, [][]byte{[]byte("staged")}, 0, false); err != nil {
				return struct{}{}, 0, err
			}
			if err := st.Publish(l, s, d, root, c.base, c.replaces); err != c.want { //nolint:errorlint // bare errno
				t.Errorf("%s: %v, want %v", c.base, err, c.want)
			}
			s.Drop(l, d)
			return struct{}{}, 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "staged"
		if c.want != nil {
			want = "old"
		}
		if got, err := os.ReadFile(filepath.Join(src, c.base)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", c.base, got, err)
		}
		if left, _ := filepath.Glob(filepath.Join(src, beneath.TempPrefix+"*")); len(left) != 0 || len(open) != 0 {
			t.Errorf("%s: left %v, journal %v", c.base, left, open)
		}
	}
}

type journalFunc func(guard.Path) func()

func (f journalFunc) Begin(p guard.Path) func() { return f(p) }
