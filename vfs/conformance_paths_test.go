package vfs_test

import (
	"bytes"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The operations on whole files and paths are a second front end of the suite: they follow
// links themselves, and have the same verdicts. Contents are written by WriteRange, by Replace and
// by an upload. R063, R064, R065, R066, R067.
func TestConformanceOfPaths(t *testing.T) {
	for name, put := range map[string]func(f *pathFront, p guard.Path, data []byte) error{
		"range": func(f *pathFront, p guard.Path, data []byte) error {
			_, _, err := f.t.WriteRange(bg, f.who, p, data, vfs.WriteOptions{Create: true, Truncate: true, Mode: 0o644})
			return err
		},
		"replace": func(f *pathFront, p guard.Path, data []byte) error {
			return second(f.t.Replace(bg, f.who, vfs.At{Path: p}, bytes.NewReader(data), vfs.IfMatch{Follow: true, Mode: 0o644}))
		},
		"upload": func(f *pathFront, p guard.Path, data []byte) error {
			u, err := f.t.BeginUpload(bg, f.who, p, vfs.IfMatch{Mode: 0o644})
			if err != nil {
				return err
			}
			defer u.Abort()
			if _, err := u.WriteAt(bg, f.who, data, 0); err != nil {
				return err
			}
			return second(u.Commit(bg, f.who))
		},
	} {
		t.Run(name, func(t *testing.T) {
			guardtest.Run(t, guardtest.Suite{
				Opener: vfs.Opener(), Subject: peer.Subject,
				Can: guardtest.Can{ParsesPaths: true, Attributes: true, Links: true, RawNames: true},
				Make: func(_ testing.TB, reg *guard.Registry) guardtest.Front {
					return &pathFront{treeFront{reg, vfs.New(reg), peer}, put}
				},
				AtLeast: 300,
			})
		})
	}
}

// pathFront is a treeFront that uses the tree's operations on whole files and on paths, where the
// tree has them.
type pathFront struct {
	treeFront
	put func(f *pathFront, p guard.Path, data []byte) error
}

func (f *pathFront) ReadFile(s string) ([]byte, error) {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return nil, err
	}
	got, _, err := f.t.ReadChunk(bg, f.who, p, 0, 1<<10, "", func(n int64) ([]byte, error) { return make([]byte, n), nil })
	return got, err
}

func (f *pathFront) WriteFile(s string, data []byte) error {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return err
	}
	return f.put(f, p, data)
}

func (f *pathFront) Append(s string, data []byte) error {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return err
	}
	_, _, err = f.t.WriteRange(bg, f.who, p, data, vfs.WriteOptions{Create: true, Append: true, Mode: 0o644})
	return err
}

func (f *pathFront) Mkdir(s string) error {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return err
	}
	_, made, err := f.t.MkdirAll(bg, f.who, p, 0o755)
	if err == nil && !made {
		err = &guard.Error{Kind: names.Exist}
	}
	return err
}

func (f *pathFront) Remove(s string) error {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return err
	}
	return f.t.RemovePath(bg, f.who, p, vfs.RemoveOptions{})
}

func (f *pathFront) Rename(s, s2 string) error {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return err
	}
	q, err := f.reg.Parse(f.who.Subject, s2)
	if err != nil {
		return err
	}
	return f.t.RenamePath(bg, f.who, p, q, true, "")
}

// resolve uses the tree's walk instead of the test's own.
func (f *pathFront) resolve(s string, last bool) (vfs.At, error) {
	p, err := f.reg.Parse(f.who.Subject, s)
	if err != nil {
		return vfs.At{}, err
	}
	q, err := f.t.Follow(bg, f.who, p, last)
	return vfs.At{Path: q}, err
}

func (f *pathFront) Stat(s string) (guardtest.Info, error) {
	at, err := f.resolve(s, false)
	if err != nil {
		return guardtest.Info{}, err
	}
	info, err := f.t.Lstat(bg, f.who, at)
	return guardtest.Info{Size: info.Size, Mode: info.Mode}, err
}

func (f *pathFront) Readlink(s string) (string, error) {
	at, err := f.resolve(s, false)
	if err != nil {
		return "", err
	}
	return f.t.Readlink(bg, f.who, at, nil)
}

func (f *pathFront) setattr(s string, a vfs.Attrs) error {
	at, err := f.resolve(s, true)
	if err == nil {
		_, err = f.t.Setattr(bg, f.who, at, nil, a)
	}
	return err
}

func (f *pathFront) Chmod(s string, mode uint32) error { return f.setattr(s, vfs.Attrs{Mode: &mode}) }
func (f *pathFront) Truncate(s string, n int64) error  { return f.setattr(s, vfs.Attrs{Size: &n}) }

func (f *pathFront) Symlink(target, s string) error {
	at, err := f.resolve(s, false)
	if err != nil {
		return err
	}
	dir, base := at.Path.Split()
	_, err = f.t.Symlink(bg, f.who, target, vfs.At{Path: dir}, base)
	return err
}
