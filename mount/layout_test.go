package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// byPath mounts a read-only root in a layout by path. code is the root's directory on the host. It
// has a file f and a directory out.
func byPath(t *testing.T, change func(*Options, *guard.Grant)) (m *testMount, code string) {
	t.Helper()
	src, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	code = filepath.Join(src, "home/u/code")
	testkit.Must(t, childfs.MkdirAll(filepath.Join(code, "out"), 0o755))
	testkit.Must(t, childfs.WriteFile(filepath.Join(code, "f"), []byte("f"), 0o600))
	m = newTestMount(t, guard.ReadOnly, func(o *Options, g *guard.Grant) {
		o.Layout = Layout{ByPath: true, Tops: []string{"srv"}}
		g.Dir = names.Foreign(code)
		if change != nil {
			change(o, g)
		}
	})
	m.root = m.Point() + code
	return m, code
}

func (m *testMount) grant(t *testing.T, name, dir string, rights guard.Rights) {
	t.Helper()
	_, err := m.reg.Grant(context.Background(), guard.Grant{
		Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: rights}, Origin: "test",
	})
	testkit.Must(t, err)
}

func listed(t *testing.T, dir string) []string {
	t.Helper()
	list, err := childfs.ReadDir(dir)
	testkit.Must(t, err)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Name()
	}
	return out
}

// isUnchangeable reports whether err is the error of a change in a directory that no program can
// change: EROFS from the mount. Users other than root may get EACCES instead, because the kernel
// checks the directory's mode first.
func isUnchangeable(err error) bool {
	return errors.Is(err, unix.EROFS) || os.Geteuid() != 0 && errors.Is(err, unix.EACCES)
}

// A layout by path shows each root at its path on the host, and shows no other files of the host.
// No program can change the directories above the root.
func TestByPath(t *testing.T) {
	m, code := byPath(t, nil)
	if b, err := childfs.ReadFile(filepath.Join(m.root, "f")); err != nil || string(b) != "f" {
		t.Fatalf("read through the whole path: %q, %v", b, err)
	}
	top := strings.Split(code, "/")[1]
	if got := listed(t, m.Point()); !slices.Equal(got, []string{"srv", top}) && !slices.Equal(got, []string{top, "srv"}) {
		t.Errorf("at the top: %v", got)
	}
	dir := m.Point()
	for _, elem := range strings.Split(strings.Trim(code, "/"), "/") {
		if _, err := childfs.Stat(filepath.Join(dir, "other")); !os.IsNotExist(err) {
			t.Errorf("in %s there is something else: %v", dir, err)
		}
		for what, err := range map[string]error{
			"mkdir": childfs.Mkdir(filepath.Join(dir, "new"), 0o755), "rmdir": childfs.SysRmdir(filepath.Join(dir, elem)),
			"create": childfs.WriteFile(filepath.Join(dir, "new"), nil, 0o644), "rename": childfs.Rename(filepath.Join(dir, elem), filepath.Join(dir, "x")),
		} {
			if !isUnchangeable(err) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EXDEV) {
				t.Errorf("%s in %s: %v", what, dir, err)
			}
		}
		dir = filepath.Join(dir, elem)
		if st, err := childfs.Lstat(dir); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if got := listed(t, m.root); !slices.Equal(got, []string{"f", "out"}) {
		t.Errorf("in the root: %v", got)
	}
}

// A root that is granted inside another root has its own rights below the outer root's path.
// Revoking either root ends access to its files, and granting the root again shows it at once.
func TestByPathNested(t *testing.T) {
	m, code := byPath(t, nil)
	out := filepath.Join(m.root, "out")
	write := func(name string) error { return childfs.WriteFile(filepath.Join(out, name), []byte("x"), 0o644) }
	if err := write("a"); !errors.Is(err, unix.EROFS) {
		t.Errorf("before: %v", err)
	}
	for round := range 3 {
		m.grant(t, "out", filepath.Join(code, "out"), guard.ReadWrite)
		testkit.Must(t, write("a"))
		for range 2 { // by READDIRPLUS, too
			if got := listed(t, out); !slices.Equal(got, []string{"a"}) {
				t.Errorf("in the inner root: %v", got)
			}
			listed(t, m.root)
		}
		if err := childfs.WriteFile(filepath.Join(m.root, "f"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("the outer root: %v", err)
		}
		if err := childfs.Rename(out, filepath.Join(m.root, "x")); err == nil {
			t.Error("the inner root was moved")
		}
		held, err := childfs.Open(filepath.Join(out, "a"))
		testkit.Must(t, err)
		_, err = m.reg.Revoke(context.Background(), "out")
		testkit.Must(t, err)
		if _, err := held.Read(make([]byte, 1)); err == nil {
			t.Errorf("round %d: an open file works after revocation", round)
		}
		held.Close()
		if err := write("a"); !errors.Is(err, unix.EACCES) {
			t.Errorf("after: %v", err)
		}
		if _, err := childfs.ReadDir(out); !errors.Is(err, unix.EACCES) {
			t.Errorf("listing after: %v", err)
		}
	}
	_, err := m.reg.Revoke(context.Background(), "code")
	testkit.Must(t, err)
	if _, err := childfs.Stat(filepath.Join(m.root, "f")); err == nil {
		t.Error("the outer root works after its revocation")
	}
	m.grant(t, "code", code, guard.ReadOnly)
	if _, err := childfs.Stat(filepath.Join(m.root, "f")); err != nil {
		t.Errorf("granted again: %v", err)
	}
}

// A root that is granted around an existing root appears at its own path. The inner root keeps its
// rights, and stays when the outer root ends.
func TestByPathOuterLater(t *testing.T) {
	m, code := byPath(t, nil)
	home := filepath.Dir(code)
	testkit.Must(t, childfs.WriteFile(filepath.Join(home, "note"), nil, 0o644))
	if _, err := childfs.Stat(filepath.Join(m.Point()+home, "note")); !os.IsNotExist(err) {
		t.Fatalf("before: %v", err)
	}
	_, err := childfs.Stat(m.root)
	testkit.Must(t, err)
	m.grant(t, "home", home, guard.ReadWrite)
	testkit.Must(t, childfs.WriteFile(filepath.Join(m.Point()+home, "note"), []byte("x"), 0o644))
	if err := childfs.WriteFile(filepath.Join(m.root, "f"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("the inner root is read-only: %v", err)
	}
	_, err = m.reg.Revoke(context.Background(), "home")
	testkit.Must(t, err)
	if _, err := childfs.Stat(filepath.Join(m.root, "f")); err != nil {
		t.Errorf("the inner root after the end of the outer root: %v", err)
	}
	if _, err := childfs.Stat(filepath.Join(m.Point()+home, "note")); err == nil {
		t.Error("the outer root works after its revocation")
	}
}

// A root that was granted through a link appears at its resolved path, and its granted path is a
// link to the resolved path. A root that is a single file appears in a directory of the mount's
// own.
func TestByPathLinkAndFile(t *testing.T) {
	m, code := byPath(t, nil)
	base := filepath.Dir(filepath.Dir(code))
	testkit.Must(t, childfs.MkdirAll(filepath.Join(base, "data/d"), 0o755))
	testkit.Must(t, childfs.WriteFile(filepath.Join(base, "data/d/g"), []byte("g"), 0o644))
	testkit.Must(t, childfs.Symlink(filepath.Join(base, "data"), filepath.Join(base, "link")))
	m.grant(t, "d", filepath.Join(base, "link/d"), guard.ReadOnly)
	if target, err := childfs.Readlink(m.Point() + filepath.Join(base, "link/d")); err != nil || target != filepath.Join(base, "data/d") {
		t.Errorf("the link: %q, %v", target, err)
	}
	if b, err := childfs.ReadFile(m.Point() + filepath.Join(base, "data/d/g")); err != nil || string(b) != "g" {
		t.Errorf("at the resolved path: %q, %v", b, err)
	}
	testkit.Must(t, childfs.WriteFile(filepath.Join(base, "note"), []byte("n"), 0o644))
	m.grant(t, "note", filepath.Join(base, "note"), guard.ReadOnly)
	if b, err := childfs.ReadFile(m.Point() + filepath.Join(base, "note")); err != nil || string(b) != "n" {
		t.Errorf("a single file: %q, %v", b, err)
	}
	if got := listed(t, m.Point()+base); !slices.Equal(got, []string{"data", "link", "note", "u"}) {
		t.Errorf("listed: %v", got)
	}
}

// A link of Layout.Links leads to the same root as on the host. A link in a root may have a target
// that passes through such a link. A root that is granted by a path through such a link appears
// at its resolved path.
func TestByPathLinks(t *testing.T) {
	var base string
	m, code := byPath(t, func(o *Options, g *guard.Grant) {
		base = filepath.Dir(filepath.Dir(g.Dir.Raw()))
		o.Layout.Links = map[string]string{base + "/home": "u", base + "/u/current": base + "/home/code"}
		o.Visible = func(dest string, _ bool) bool { return dest == "" }
	})
	testkit.Must(t, childfs.Symlink("u", base+"/home"))
	testkit.Must(t, childfs.MkdirAll(base+"/u/late", 0o755))
	testkit.Must(t, childfs.WriteFile(code+"/f", []byte("f"), 0o644))
	testkit.Must(t, childfs.Symlink(base+"/home/code/f", code+"/leads"))
	m.grant(t, "late", base+"/home/late", guard.ReadOnly)
	for at, want := range map[string]string{"/home": "u", "/u/current": base + "/home/code", "/u/code/leads": base + "/home/code/f"} {
		if got, err := childfs.Readlink(m.Point() + base + at); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", at, got, err, want)
		}
	}
	if b, err := childfs.ReadFile(m.Point() + base + "/home/code/f"); err != nil || string(b) != "f" {
		t.Errorf("through a link: %q, %v", b, err)
	}
	if got := listed(t, m.Point()+base+"/home"); !slices.Equal(got, []string{"code", "current", "late"}) {
		t.Errorf("listed: %v", got)
	}
}

// With an Owner all files seem to belong to that user, who can therefore do what only the owner of
// a file may do. On the source, new files belong to the daemon's user. A write by the Owner clears
// the set-user-ID bit of a file.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's rights need root")
	}
	guardtest.ShareTemp(t)
	const server = 61999
	m, code := byPath(t, func(o *Options, g *guard.Grant) {
		o.Owner, o.AllowOther = &rules.User{UID: server, GID: server}, true
		g.Policy.Rights = guard.ReadWrite
	})
	testkit.Must(t, childfs.Chmod(filepath.Dir(m.Point()), 0o755)) // so that the other user can reach the mount
	for path := m.root + "/f"; len(path) >= len(m.Point()); path = filepath.Dir(path) {
		st, err := childfs.Lstat(path)
		testkit.Must(t, err)
		if sys := st.Sys().(*syscall.Stat_t); sys.Uid != server || sys.Gid != server {
			t.Errorf("%s seems to belong to %d:%d", path, sys.Uid, sys.Gid)
		}
	}
	suid := filepath.Join(code, "suid")
	testkit.Must(t, childfs.WriteFile(suid, []byte("old"), 0o755))
	testkit.Must(t, childfs.Chmod(suid, 0o755|os.ModeSetuid))
	testkit.Must(t, useAsUser(server, m.root))
	var st unix.Stat_t
	testkit.Must(t, childfs.SysStat(filepath.Join(code, "new"), &st))
	if st.Uid != 0 {
		t.Errorf("the new file belongs to user %d on the source", st.Uid)
	}
	testkit.Must(t, childfs.SysStat(suid, &st))
	if st.Mode&unix.S_ISUID != 0 {
		t.Error("a set-uid file kept its bit when the server wrote it")
	}
}

// useAsUser changes files of a mount in the child process, as the user to whom all files of the
// mount seem to belong.
var useAsUser = childfs.In("useAsUser", func(uid int, root string) error {
	return asUser(uid, func() error {
		err := errors.Join(
			os.WriteFile(root+"/new", []byte("x"), 0o644),
			os.WriteFile(root+"/suid", []byte("evil"), 0),
			os.Chown(root+"/new", uid, uid),
			os.Chmod(root+"/f", 0o400))
		if refusal := os.WriteFile(root+"/f", nil, 0); !errors.Is(refusal, unix.EACCES) {
			err = errors.Join(err, fmt.Errorf("writing to a file without write permission: %v", refusal))
		}
		return err
	})
})

// asUser runs f on a new thread that becomes another user, and returns the error of f. The thread
// ends after f.
func asUser(uid int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, call := range []uintptr{unix.SYS_SETGROUPS, unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			a := uintptr(uid)
			if call == unix.SYS_SETGROUPS {
				a = 0
			}
			if _, _, errno := unix.RawSyscall(call, a, a, a); errno != 0 {
				done <- errno
				return
			}
		}
		done <- f()
	}()
	return <-done
}
