package policy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
)

// The bypasses of a pattern in this file need more than one call, or calls that not every front end
// has. Other bypasses are cases of package guardtest, the conformance suite of the front ends.
// R110, R151.

// A protected file gets no second name, whether a call takes it by a path or by a descriptor. A
// file without a name gets no protected name.
func TestNoLinkToProtectedFile(t *testing.T) {
	w := newTwin(t, guard.Patterns{Protect: guard.Texts("kept")}, "kept=k", "free/")
	linkDescriptor := func(openFlags, linkFlags int) func(dir string) error {
		return func(dir string) error {
			fd, err := childfs.SysOpen(dir+"/kept", openFlags, 0)
			if err != nil {
				return err
			}
			defer childfs.SysClose(fd)
			from := "/proc/self/fd/" + strconv.Itoa(fd)
			if linkFlags == unix.AT_EMPTY_PATH {
				return childfs.SysLinkat(fd, "", unix.AT_FDCWD, dir+"/empty-path", linkFlags)
			}
			return childfs.SysLinkat(unix.AT_FDCWD, from, unix.AT_FDCWD, dir+"/by-descriptor"+strconv.Itoa(openFlags), linkFlags)
		}
	}
	w.checkMountBypass("by its path", unix.EACCES, func(dir string) error { return childfs.SysLink(dir+"/kept", dir+"/alias") })
	w.checkMountBypass("by a descriptor", unix.EACCES, linkDescriptor(unix.O_RDONLY, unix.AT_SYMLINK_FOLLOW))
	w.checkMountBypass("by an O_PATH descriptor", unix.EACCES, linkDescriptor(unix.O_PATH, unix.AT_SYMLINK_FOLLOW))
	w.checkMountBypass("by a descriptor with AT_EMPTY_PATH", unix.EACCES, linkDescriptor(unix.O_RDONLY, unix.AT_EMPTY_PATH))
	w.checkMountBypass("a file without a name", unix.EACCES, func(dir string) error {
		fd, err := childfs.SysOpen(dir, unix.O_TMPFILE|unix.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		defer childfs.SysClose(fd)
		return childfs.SysLinkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, dir+"/free/kept", unix.AT_SYMLINK_FOLLOW)
	})
	w.checkFile("on", "kept", "k")
	for _, name := range []string{"alias", "free/kept", "empty-path"} {
		if _, err := os.Lstat(filepath.Join(w.src["on"], name)); err == nil {
			t.Errorf("%s exists", name)
		}
	}
}

// A directory cannot be moved, exchanged or removed if that would move or remove a file in it
// that a pattern is about.
func TestNothingMovesOrRemovesMatchedFiles(t *testing.T) {
	w := newTwin(t, guard.Patterns{Protect: guard.Texts("kept"), Hide: guard.Texts("secret")},
		"a/in/kept=k", "b/in/kept=k", "c/in/kept=k", "d/in/secret=s", "e/in/secret=s", "f/kept=k", "g/secret=s", "x/", "y/", "z=z")
	w.checkMountBypass("rename", unix.EACCES, func(dir string) error { return childfs.SysRename(dir+"/a", dir+"/a2") })
	w.checkMountBypass("exchange", unix.EACCES, func(dir string) error {
		return childfs.SysRenameat2(unix.AT_FDCWD, dir+"/b", unix.AT_FDCWD, dir+"/x", unix.RENAME_EXCHANGE)
	})
	w.checkMountBypass("exchange with a file", unix.EACCES, func(dir string) error {
		return childfs.SysRenameat2(unix.AT_FDCWD, dir+"/z", unix.AT_FDCWD, dir+"/c", unix.RENAME_EXCHANGE)
	})
	w.checkMountBypass("rename of a directory that seems empty", unix.EACCES, func(dir string) error { return childfs.SysRename(dir+"/d", dir+"/y/d") })
	w.checkMountBypass("rm -r of a protected file's directory", unix.EACCES, func(dir string) error { return childfs.RemoveAll(dir + "/f") })
	w.checkMountBypass("rm -r of a directory that seems empty", unix.ENOTEMPTY, func(dir string) error { return childfs.RemoveAll(dir + "/g") })
	w.checkBypass("files/rename", names.Permission, func(root string) error {
		_, err := w.files.Rename(bg, root+"/e", root+"/e2", client.MoveOptions{})
		return err
	})
	for rel, text := range map[string]string{"a/in/kept": "k", "b/in/kept": "k", "c/in/kept": "k", "d/in/secret": "s", "e/in/secret": "s", "f/kept": "k", "g/secret": "s"} {
		w.checkFile("on", rel, text)
	}
	for _, c := range []struct {
		rel  string
		want names.Kind
	}{{"f", names.Permission}, {"g", names.NotEmpty}} {
		if err := w.files.Delete(bg, "on/"+c.rel, client.DeleteOptions{Recursive: true}); names.Reason(err) != c.want {
			t.Errorf("files/delete of %s: %v, want %v", c.rel, err, c.want)
		}
	}
	w.checkFile("on", "f/kept", "k")
	w.checkFile("on", "g/secret", "s")
}

// A control file tells a tool, such as git, an editor or a shell, what to execute. No call that
// creates a name can create a control file at a path where the tool reads it.
func TestNoControlFileCanBeCreated(t *testing.T) {
	for _, to := range []string{".git/config", ".git/commondir", ".git/config.worktree", ".git/hooks/pre-commit",
		".git/modules/m/config", ".git/modules/m/hooks/post-checkout", ".git/worktrees/w/commondir", ".mcp.json", ".vscode/tasks.json",
		".github/workflows/ci.yml", ".envrc", ".bashrc", ".gitconfig", ".hgrc"} {
		t.Run(to, func(t *testing.T) {
			dir, base := filepath.Split(to)
			tree := []string{"x=x", "y=y", ".git/HEAD=ref: refs/heads/main", ".git/hooks/", ".git/modules/m/hooks/", ".git/worktrees/w/", ".github/workflows/", ".vscode/", "evil/" + base + "=e"}
			w := newTwin(t, guard.Patterns{}, tree...)
			remove := func(root string) {
				if err := os.Remove(filepath.Join(w.src[root], to)); err != nil && root == "off" {
					t.Error(err)
				}
			}
			try := func(name string, f func(root string) error) {
				t.Helper()
				w.checkBypass(name, unix.EACCES, func(root string) error { return f(w.at(root, "")) })
				remove("on")
				remove("off")
				w.checkFile("on", to, "")
			}
			try("creat", func(d string) error { return childfs.WriteFile(d+"/"+to, []byte("e"), 0o755) })
			try("rename", func(d string) error { return childfs.SysRename(d+"/x", d+"/"+to) })
			try("link", func(d string) error { return childfs.SysLink(d+"/y", d+"/"+to) })
			try("symlink", func(d string) error { return childfs.SysSymlink("x", d+"/"+to) })
			try("mknod", func(d string) error { return childfs.SysMknod(d+"/"+to, unix.S_IFREG|0o644, 0) })
			try("mkdir", func(d string) error { return childfs.SysMkdir(d+"/"+to, 0o755) })
			requests := map[string]func(root string) error{
				"files/write": func(r string) error {
					_, err := w.files.WriteFile(bg, r+"/"+to, []byte("e"), client.WriteOptions{Create: true})
					return err
				},
				"files/create": func(r string) error { _, err := w.files.Create(bg, r+"/"+to, true); return err },
				"files/copy": func(r string) error {
					_, err := w.files.Copy(bg, r+"/y", r+"/"+to, client.MoveOptions{})
					return err
				},
				"files/rename": func(r string) error {
					_, err := w.files.Rename(bg, r+"/y", r+"/"+to, client.MoveOptions{})
					return err
				},
			}
			for _, name := range []string{"files/write", "files/create", "files/copy", "files/rename"} {
				w.checkBypass(name, names.Permission, requests[name])
				remove("on")
				remove("off")
				w.checkFile("on", to, "")
			}
			if dir == "" || dir == ".git/" {
				return
			}
			// A directory that contains the control file cannot take the place of dir either.
			for _, root := range []string{"on", "off"} {
				if err := os.RemoveAll(filepath.Join(w.src[root], dir)); err != nil {
					t.Fatal(err)
				}
			}
			w.checkMountBypass("a directory with the control file", syscall.EACCES, func(d string) error { return childfs.SysRename(d+"/evil", d+"/"+filepath.Clean(dir)) })
			w.checkFile("on", to, "")
		})
	}
}

// --respect-gitignore hides the names that the .gitignore files list when the root is granted. A
// program that changes these files later cannot make the names visible. The owner can: when the
// patterns are set again, the files are read again.
func TestGitignoreIsReadAtTheGrant(t *testing.T) {
	p := guard.Patterns{NoDefaults: true, Gitignore: true}
	w := newTwin(t, p, ".gitignore=*.log\nbuild/\n", "a.log=a", "build/x=b", "sub/.gitignore=local\n", "sub/local=l", "local=seen")
	read := func(rel string) func(dir string) error {
		return func(dir string) error { _, err := childfs.ReadFile(dir + "/" + rel); return err }
	}
	for _, rel := range []string{"a.log", "build/x", "sub/local"} {
		w.checkMountBypass(rel, unix.ENOENT, read(rel))
	}
	if err := read("local")(w.at("on", "")); err != nil {
		t.Errorf("a name that only the .gitignore of a subdirectory lists: %v", err)
	}
	if err := childfs.WriteFile(w.at("on", ".gitignore"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.checkMountBypass("a.log, after a program has emptied .gitignore", unix.ENOENT, read("a.log"))
	if _, err := w.files.ReadFile(bg, "on/build/x"); names.Reason(err) != names.NotExist {
		t.Errorf("files/read: %v", err)
	}
	if err := w.reg.SetPatterns(bg, "on", p); err != nil {
		t.Fatal(err)
	}
	if err := read("a.log")(w.at("on", "")); err != nil {
		t.Errorf("a.log, after the owner has set the patterns again: %v", err)
	}
}

// The patterns of a nested root hold for paths in the nested root and for the same files by their
// paths in the outer root. The patterns of the outer root hold for paths in the outer root only.
func TestPatternsOfNestedRoots(t *testing.T) {
	w := newTwin(t, guard.Patterns{Hide: guard.Texts("outer.hid")}, "in/outer.hid=o", "in/inner.hid=i", "in/kept=k", "in/d/kept=k", "d/")
	for _, root := range []string{"on", "off"} {
		inner := guard.Patterns{NoDefaults: true}
		if root == "on" {
			inner = guard.Patterns{Hide: guard.Texts("inner.hid"), Protect: guard.Texts("kept")}
		}
		w.grant(root+"-in", filepath.Join(w.src[root], "in"), inner)
	}
	read := func(root, rel string) error { _, err := childfs.ReadFile(w.at(root, rel)); return err }
	w.checkBypass("a pattern of the inner root, by the outer path", unix.ENOENT, func(root string) error { return read(root, "in/inner.hid") })
	w.checkBypass("a pattern of the inner root, by the inner path", unix.ENOENT, func(root string) error { return read(root+"-in", "inner.hid") })
	w.checkBypass("a pattern of the outer root, by the outer path", unix.ENOENT, func(root string) error { return read(root, "in/outer.hid") })
	for _, root := range []string{"on", "off"} {
		if err := read(root+"-in", "outer.hid"); err != nil {
			t.Errorf("a pattern of the outer root, by the inner path: %v", err)
		}
	}
	w.checkBypass("a write by the outer path", unix.EACCES, func(root string) error { return childfs.WriteFile(w.at(root, "in/kept"), nil, 0o644) })
	w.checkBypass("a rename by the outer path", unix.EACCES, func(root string) error { return childfs.SysRename(w.at(root, "in/d"), w.at(root, "in/e")) })
	w.checkBypass("files/write by the outer path", names.Permission, func(root string) error {
		_, err := w.files.WriteFile(bg, root+"/in/kept", []byte("x"), client.WriteOptions{})
		return err
	})
}

// fileHandle is a unix.FileHandle as encoding/gob can send it to and from the child process.
type fileHandle struct {
	Type  int32
	Bytes []byte
}

// takeHandle returns the handle of the file at path.
var takeHandle = childfs.In("takeHandle", func(path string) (fileHandle, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return fileHandle{}, err
	}
	return fileHandle{h.Type(), h.Bytes()}, nil
})

// openHandle opens the file of a handle in the mount at point, and reads from the file.
var openHandle = childfs.In("openHandle", func(point string, h fileHandle) error {
	dir, err := unix.Open(point, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, unix.NewFileHandle(h.Type, h.Bytes), unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Read(fd, make([]byte, 1))
	return err
})

// O_PATH descriptors and handles of files give no more access than the path.
func TestDescriptorsAndHandles(t *testing.T) {
	w := newTwin(t, guard.Patterns{Deny: guard.Texts("closed"), Hide: guard.Texts("secret")}, "closed=c", "secret=s", "later=l")
	path := func(name string) func(dir string) error {
		return func(dir string) error {
			fd, err := childfs.SysOpen(dir+"/"+name, unix.O_PATH, 0)
			if err != nil {
				return err
			}
			defer childfs.SysClose(fd)
			again, err := childfs.SysOpen("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY, 0)
			if err == nil {
				childfs.SysClose(again)
			}
			return err
		}
	}
	w.checkMountBypass("an O_PATH descriptor of a denied file, opened again", unix.EACCES, path("closed"))
	w.checkMountBypass("an O_PATH descriptor of a hidden file", unix.ENOENT, path("secret"))
	handle := func(dir, name string) error { _, err := takeHandle(dir + "/" + name); return err }
	w.checkMountBypass("a handle of a hidden file", unix.ENOENT, func(dir string) error { return handle(dir, "secret") })

	// A handle that was taken before the rule does not work once the rule is in force.
	got := map[string]fileHandle{}
	for _, root := range []string{"on", "off"} {
		h, err := takeHandle(w.at(root, "later"))
		if err != nil {
			t.Fatal(err)
		}
		got[root] = h
	}
	if err := w.reg.SetPatterns(bg, "on", guard.Patterns{Hide: guard.Texts("later")}); err != nil {
		t.Fatal(err)
	}
	open := func(root string) error { return openHandle(w.point, got[root]) }
	if err := open("on"); err == nil {
		t.Error("a hidden file can be read by a handle that was taken before the rule")
	}
	// Without CAP_DAC_READ_SEARCH a process may not open any handle.
	if err := open("off"); err != nil && (os.Geteuid() == 0 || !errors.Is(err, unix.EPERM)) {
		t.Errorf("the handle of a file that is not hidden: %v", err)
	}
}

// A denied file looks like a file whose mode permits no access: "ls -l", which asks for the file's
// ACL, reports no error. Other extended attributes count as contents, and are refused.
func TestDeniedIsListedWithoutComplaint(t *testing.T) {
	w := newTwin(t, guard.Patterns{NoDefaults: true, Deny: guard.Texts("closed", "shut/")}, "closed=c", "shut/in=s", "x=x")
	for _, name := range []string{"closed", "shut"} {
		acl := func(root string) error {
			_, err := childfs.SysLgetxattr(w.at(root, name), "system.posix_acl_access", nil)
			return err
		}
		if on, off := acl("on"), acl("off"); on != off { //nolint:errorlint // bare errnos
			t.Errorf("the ACL of %s: %v, without the rule %v", name, on, off)
		}
		if err := childfs.SysSetxattr(filepath.Join(w.src["on"], name), "user.note", []byte("n"), 0); err != nil {
			t.Logf("%s: %v", name, err) // the file system has none
			continue
		}
		if _, err := childfs.SysLgetxattr(w.at("on", name), "user.note", make([]byte, 9)); err != unix.EACCES { //nolint:errorlint // a bare errno
			t.Errorf("an attribute of %s: %v", name, err)
		}
	}
	out, err := exec.Command("ls", "-l", w.at("on", "")).CombinedOutput()
	if text := string(out); err != nil || strings.Contains(text, "denied") || !strings.Contains(text, "closed") {
		t.Errorf("ls -l: %v\n%s", err, text)
	}
}
