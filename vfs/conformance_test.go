package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The tree itself is the first front end of the conformance suite. R063, R064,
// R110.
func TestConformance(t *testing.T) {
	guardtest.Run(t, guardtest.Suite{
		Opener: vfs.Opener(), Subject: peer.Subject,
		Can: guardtest.Can{ParsesPaths: true, Attributes: true, Links: true, RawNames: true},
		Make: func(_ testing.TB, reg *guard.Registry) guardtest.Front {
			return &treeFront{reg, vfs.New(reg), peer}
		},
		AtLeast: 300,
	})
}

// A single case of the suite can be run by its name: the check that enough cases run applies
// only when all were selected.
func TestOneCaseAlone(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestConformance$/^plain$/^read$")
	out, err := cmd.CombinedOutput()
	if n := strings.Count(string(out), "--- PASS: TestConformance/"); err != nil || n != 1 {
		t.Errorf("%d cases, %v\n%s", n, err, out)
	}
}

// A root that keeps changes apart gives the same answers, and its source stays as it was.
func TestConformanceStaged(t *testing.T) {
	var tree *vfs.Tree
	guardtest.Run(t, guardtest.Suite{
		Opener: vfs.StagingOpener(t.TempDir(), "test"), Subject: peer.Subject, Staged: true,
		Can: guardtest.Can{ParsesPaths: true, Attributes: true, Links: true, RawNames: true},
		Make: func(_ testing.TB, reg *guard.Registry) guardtest.Front {
			tree = vfs.New(reg)
			return &treeFront{reg, tree, peer}
		},
		Apply: func(root guard.RootName) error {
			got, err := tree.StageApply(bg, root, vfs.StageApply{Links: true})
			if err == nil && len(got.Left) > 0 {
				err = fmt.Errorf("left: %v", got.Left)
			}
			return err
		},
		AtLeast: 200,
	})
}

// treeFront calls the operations of the tree that the mount calls. It follows links itself, as the
// kernel does for the mount, one judged component at a time.
type treeFront struct {
	reg *guard.Registry
	t   *vfs.Tree
	who guard.Caller
}

// peer is the suite's caller.
var peer = guard.Caller{Via: guard.ViaFiles, Subject: "peer"}

var (
	bg  = context.Background()
	who = guard.Caller{Via: guard.ViaFiles}
)

// resolve follows the links of a path. It follows a link that is the last element only if follow
// is set.
func (f *treeFront) resolve(s string, follow bool) (vfs.At, error) {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return vfs.At{}, err
	}
	at, err := guard.NewPath(p.Root, "")
	if err != nil {
		return vfs.At{}, err
	}
	if p.IsRoot() && follow {
		// A single-file root's own name may have become a link.
		if info, err := f.t.Lstat(bg, f.who, vfs.At{Path: at}); err == nil && info.Type() == unix.S_IFLNK {
			if _, err := f.t.Readlink(bg, f.who, vfs.At{Path: at}, nil); err != nil {
				return vfs.At{}, err
			}
		}
	}
	todo := []string{}
	if p.Rel() != "" {
		todo = strings.Split(p.Rel(), "/")
	}
	for links := 0; len(todo) > 0; {
		elem := todo[0]
		todo = todo[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			at, _ = at.Split()
			continue
		}
		next, err := at.Join(elem)
		if err != nil {
			return vfs.At{}, err
		}
		info, err := f.t.Lookup(bg, f.who, vfs.At{Path: at}, elem)
		if err != nil && (len(todo) > 0 || names.Errno(err) != unix.ENOENT || !follow && errors.Is(err, names.Hidden)) {
			return vfs.At{}, err
		}
		if err != nil || info.Type() != unix.S_IFLNK || len(todo) == 0 && !follow {
			at = next
			continue
		}
		if links++; links > 40 {
			return vfs.At{}, unix.ELOOP
		}
		target, err := f.t.Readlink(bg, f.who, vfs.At{Path: next}, nil)
		if err != nil {
			return vfs.At{}, err
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return vfs.At{Path: at}, nil
}

// resolveDir resolves the directory of a path's last element, and returns it with that element.
func (f *treeFront) resolveDir(s string) (vfs.At, string, error) {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return vfs.At{}, "", err
	}
	dir, base := p.Split()
	at, err := f.resolve(dir.String(), true)
	return at, base, err
}

func (f *treeFront) open(s string, flags int, create bool) (*vfs.File, error) {
	at, err := f.resolve(s, true)
	if err != nil {
		return nil, err
	}
	if !create || at.Path.IsRoot() {
		file, _, err := f.t.Open(bg, f.who, at, flags)
		return file, err
	}
	dir, base := at.Path.Split()
	// Like open(2) with O_CREAT, this opens an existing file and creates a missing one.
	if _, err := f.t.Lookup(bg, f.who, vfs.At{Path: dir}, base); err == nil {
		file, _, err := f.t.Open(bg, f.who, at, flags)
		return file, err
	}
	file, _, _, err := f.t.Create(bg, f.who, vfs.At{Path: dir}, base, flags, 0o644)
	return file, err
}

func (f *treeFront) ReadFile(p string) ([]byte, error) {
	file, err := f.open(p, unix.O_RDONLY, false)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	buf := make([]byte, 1<<10)
	n, err := file.ReadAt(bg, f.who, buf, 0)
	return buf[:n], err
}

func (f *treeFront) put(p string, flags int, data []byte) error {
	file, err := f.open(p, unix.O_WRONLY|flags, true)
	if err != nil {
		return err
	}
	defer file.Close()
	if len(data) == 0 {
		return nil
	}
	_, err = file.WriteAt(bg, f.who, [][]byte{data}, 0, vfs.WriteAtOptions{})
	return err
}

func (f *treeFront) WriteFile(p string, data []byte) error { return f.put(p, unix.O_TRUNC, data) }
func (f *treeFront) Append(p string, data []byte) error    { return f.put(p, unix.O_APPEND, data) }

func (f *treeFront) Mkdir(p string) error {
	dir, base, err := f.resolveDir(p)
	if err == nil {
		_, err = f.t.Mkdir(bg, f.who, dir, base, 0o755)
	}
	return err
}

func (f *treeFront) Remove(p string) error {
	dir, base, err := f.resolveDir(p)
	if err != nil {
		return err
	}
	if info, err := f.t.Lookup(bg, f.who, dir, base); err == nil && info.IsDir() {
		return f.t.Rmdir(bg, f.who, dir, base)
	}
	return f.t.Unlink(bg, f.who, dir, base)
}

func (f *treeFront) Rename(p, q string) error {
	from, oldName, err := f.resolveDir(p)
	if err != nil {
		return err
	}
	to, newName, err := f.resolveDir(q)
	if err != nil {
		return err
	}
	return f.t.Rename(bg, f.who, from, oldName, to, newName, 0)
}

func (f *treeFront) Link(p, q string) error {
	old, err := f.resolve(p, false)
	if err != nil {
		return err
	}
	dir, base, err := f.resolveDir(q)
	if err == nil {
		_, err = f.t.Link(bg, f.who, old, nil, dir, base)
	}
	return err
}

func (f *treeFront) Symlink(target, p string) error {
	dir, base, err := f.resolveDir(p)
	if err == nil {
		_, err = f.t.Symlink(bg, f.who, target, dir, base)
	}
	return err
}

func (f *treeFront) Readlink(p string) (string, error) {
	at, err := f.resolve(p, false)
	if err != nil {
		return "", err
	}
	return f.t.Readlink(bg, f.who, at, nil)
}

func (f *treeFront) Stat(p string) (guardtest.Info, error) {
	at, err := f.resolve(p, false)
	if err != nil {
		return guardtest.Info{}, err
	}
	info, err := f.t.Lstat(bg, f.who, at)
	return guardtest.Info{Size: info.Size, Mode: info.Mode}, err
}

func (f *treeFront) List(p string) ([]string, error) {
	at, err := f.resolve(p, true)
	if err != nil {
		return nil, err
	}
	d, err := f.t.Opendir(bg, f.who, at)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	list := []string{}
	for {
		entries, err := d.ReadDir(bg, f.who, at)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			slices.Sort(list)
			return list, nil
		}
		for _, e := range entries {
			if e.Name != "." && e.Name != ".." {
				list = append(list, e.Name)
			}
		}
	}
}

func (f *treeFront) setattr(p string, a vfs.Attrs) error {
	at, err := f.resolve(p, true)
	if err == nil {
		_, err = f.t.Setattr(bg, f.who, at, nil, a)
	}
	return err
}

func (f *treeFront) Chmod(p string, mode uint32) error { return f.setattr(p, vfs.Attrs{Mode: &mode}) }
func (f *treeFront) Truncate(p string, n int64) error  { return f.setattr(p, vfs.Attrs{Size: &n}) }

func (f *treeFront) Setxattr(p, name string, value []byte) error {
	at, err := f.resolve(p, false)
	if err == nil {
		err = f.t.Setxattr(bg, f.who, at, nil, name, value, 0)
	}
	return err
}

func (f *treeFront) Getxattr(p, name string) ([]byte, error) {
	at, err := f.resolve(p, false)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 256)
	n, err := f.t.Getxattr(bg, f.who, at, nil, name, buf)
	return buf[:n], err
}
