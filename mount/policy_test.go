package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// Once a change of the patterns has returned, the new patterns apply to everything that a
// program holds and the kernel had cached: open files, listings, names that existed and names
// that did not. R110, R162.
func TestPatternsChange(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		src := t.TempDir()
		for _, f := range []string{"a", "b", "c"} {
			if err := childfs.WriteFile(filepath.Join(src, f), []byte("text"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		front := mountFront(t, Options{Level: level}, reg)
		set := func(p guard.Patterns) {
			t.Helper()
			p.NoDefaults = true
			if err := reg.SetPatterns(context.Background(), "r", p); err != nil {
				t.Fatal(err)
			}
		}
		_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test",
			Policy: guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: true, Hide: guard.Texts("c")}}})
		if err != nil {
			t.Fatal(err)
		}
		host := front.Host
		names := func(want ...string) {
			t.Helper()
			if got, err := front.List("r"); err != nil || !slices.Equal(got, want) {
				t.Errorf("names %q, %v, want %q", got, err, want)
			}
		}
		a, err := childfs.OpenFile(host("r/a"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := childfs.OpenFile(host("r/b"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if err := mapFile(t, b, 4, unix.PROT_READ|unix.PROT_WRITE).store("mapp"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		if _, err := a.ReadAt(buf, 0); err != nil {
			t.Fatal(err)
		}
		names("a", "b")
		if _, err := front.Stat("r/c"); err == nil {
			t.Error("the hidden c is there")
		}

		set(guard.Patterns{Hide: guard.Texts("a"), Protect: guard.Texts("b")})
		names("b", "c")
		if n, err := a.ReadAt(buf, 0); err == nil {
			t.Errorf("%d bytes are read of what is hidden", n)
		}
		if _, err := b.WriteAt([]byte("xxxx"), 0); err == nil {
			t.Error("what is protected is written through an open file")
		}
		if _, err := b.ReadAt(buf, 0); err != nil {
			t.Errorf("what is protected is not read: %v", err)
		}
		if _, err := front.ReadFile("r/c"); err != nil {
			t.Errorf("what was hidden is not there: %v", err)
		}
		if got, err := childfs.ReadFile(filepath.Join(src, "b")); err != nil || string(got) != "mapp" {
			t.Errorf("b holds %q, %v, want only what was stored through the mapping before the change", got, err)
		}

		set(guard.Patterns{})
		names("a", "b", "c")
		if _, err := a.ReadAt(buf, 0); err != nil {
			t.Errorf("what is shown again is not read: %v", err)
		}
		if _, err := b.WriteAt([]byte("more"), 0); err != nil {
			t.Errorf("what is free again is not written: %v", err)
		}
	})
}

// If the host writes a token into a file, programs that have the file open do not see the token: no
// read returns it, and the attributes do not show the new size. When the token is gone, the programs
// can read the file again. R110.
func TestTokenComesToAnOpenFile(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		src := t.TempDir()
		rc := filepath.Join(src, ".npmrc")
		if err := childfs.WriteFile(rc, []byte("save-exact=true\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		front := mountFront(t, Options{Level: level}, reg)
		_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test",
			Policy: guard.Policy{Rights: guard.ReadWrite}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := childfs.Open(front.Host("r/.npmrc"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		buf := make([]byte, 100)
		if n, _ := f.ReadAt(buf, 0); string(buf[:n]) != "save-exact=true\n" {
			t.Fatalf("before there is a token: %q", buf[:n])
		}
		if err := childfs.WriteFile(rc, []byte("//r/:_authToken=secret\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		// The kernel keeps a page until the source watch has reported the change. The kept page
		// has no token.
		until := func(what string, done func(text string, err error) bool) {
			t.Helper()
			testkit.Until(t, what, func() bool {
				n, err := f.ReadAt(buf, 0)
				if strings.Contains(string(buf[:n]), "secret") {
					t.Fatalf("the token is read: %q", buf[:n])
				}
				return done(string(buf[:n]), err)
			})
		}
		until("the open file is hidden", func(_ string, err error) bool { return errors.Is(err, unix.ENOENT) })
		if info, err := f.Stat(); err == nil && info.Size() == int64(len("//r/:_authToken=secret\n")) {
			t.Error("its size is given away")
		}

		if err := childfs.WriteFile(rc, []byte("save-exact=false\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		until("the file without a token is read", func(text string, _ error) bool { return text == "save-exact=false\n" })
	})
}

// If the host gives a protected name to a file that a program has open, the file takes no more
// writes, neither through the descriptor nor through a mapping. It can still be read. R110.
func TestOpenFileBecomesProtected(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		src := t.TempDir()
		tmp, final := filepath.Join(src, "mcp.tmp"), filepath.Join(src, ".mcp.json")
		if err := childfs.WriteFile(tmp, []byte("the host's"), 0o644); err != nil {
			t.Fatal(err)
		}
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		front := mountFront(t, Options{Level: level}, reg)
		_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := childfs.OpenFile(front.Host("r/mcp.tmp"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		page := mapFile(t, f, 4, unix.PROT_READ|unix.PROT_WRITE)
		if _, err := f.WriteAt([]byte("THE"), 0); err != nil {
			t.Fatal(err)
		}
		if err := childfs.Rename(tmp, final); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // for 10 ms the tree still judges the file by its old name
		if _, err := f.WriteAt([]byte("evil"), 0); err == nil {
			err = f.Sync()
			if err == nil {
				t.Error("it is written through the descriptor")
			}
		}
		if err := page.store("EVIL"); err == nil && f.Sync() == nil {
			t.Error("it is written through a mapping")
		}
		buf := make([]byte, 10)
		if _, err := f.ReadAt(buf, 0); err != nil {
			t.Errorf("it is not read any more: %v", err)
		}
		if got, err := childfs.ReadFile(final); err != nil || string(got) != "THE host's" {
			t.Errorf("the file holds %q, %v", got, err)
		}
	})
}

// A mount whose options do not suit a staged root refuses the root, and says which option to
// change.
func TestStagedRefused(t *testing.T) {
	staged := guard.Policy{Rights: guard.ReadWrite | guard.Stage}
	for _, tt := range []struct {
		opt  Options
		want string // part of the error; "": none
	}{
		{Options{Level: Audit}, ""},
		{Options{Level: Strict}, ""},
		{Options{Level: Audit, Locks: LocksHost}, "use --locks local"},
		{Options{Level: Max}, "use --cache audit"},
	} {
		err := checkPolicy(tt.opt, nil, staged)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("cache %v, locks %v: %v", tt.opt.Level, tt.opt.Locks, err)
		}
	}
}
