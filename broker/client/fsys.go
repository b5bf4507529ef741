package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// FS is the client's files as an fs.FS, read-only. FS refuses the names that fs.ValidPath refuses,
// as package fs demands, and below a Windows path also names with a backslash. Permissions are
// made up, because the protocol carries none: 0555 for directories, 0777 for symbolic links and
// 0444 for other files.
type FS struct {
	f    *Files
	ctx  context.Context
	root string
}

// FS returns the tree below root, which is the path of a directory in any form that Files
// accepts; "" is the directory of all roots. ctx is the context of all requests of the tree,
// because the methods of package fs take no context.
func (f *Files) FS(ctx context.Context, root string) *FS {
	if root != "/" && !isFileURI(root) {
		root = strings.TrimSuffix(root, "/")
	}
	return &FS{f: f, ctx: ctx, root: root}
}

func (t *FS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) || isWindows(t.root) && strings.Contains(name, `\`) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	switch {
	case name == ".":
		return t.root, nil
	case t.root == "" || t.root == "/":
		return t.root + name, nil
	case isFileURI(t.root):
		return strings.TrimSuffix(t.root, "/") + strings.TrimPrefix(names.FormatURI("/"+name), "file://"), nil
	}
	return t.root + "/" + name, nil
}

// pathError wraps err in an fs.PathError. It does not wrap io.EOF, because readers compare their
// error with io.EOF by ==.
func pathError(op, name string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS.
func (t *FS) Open(name string) (fs.File, error) {
	info, err := t.stat("open", name)
	if err != nil {
		return nil, err
	}
	p, _ := t.path("open", name)
	if info.IsDir() {
		return &openDir{t: t, name: name, info: info}, nil
	}
	file, err := t.f.Open(t.ctx, p)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	info.size = file.size
	return &openFile{File: file, name: name, info: info}, nil
}

// Stat implements fs.StatFS.
func (t *FS) Stat(name string) (fs.FileInfo, error) {
	info, err := t.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (t *FS) stat(op, name string) (*info, error) {
	p, err := t.path(op, name)
	if err != nil {
		return nil, err
	}
	s, err := t.f.Stat(t.ctx, p)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	if !isAbsolute(p) && !strings.Contains(p, "/") {
		s.MTime = "" // a root: the listing of the roots has no times
	}
	return newInfo(path.Base(name), s.Type, s.Size, s.MTime), nil
}

// ReadFile implements fs.ReadFileFS.
func (t *FS) ReadFile(name string) ([]byte, error) {
	p, err := t.path("read", name)
	if err != nil {
		return nil, err
	}
	b, err := t.f.ReadFile(t.ctx, p)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return b, nil
}

// ReadDir implements fs.ReadDirFS. It returns the entries sorted by name.
func (t *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := t.path("readdir", name)
	if err != nil {
		return nil, err
	}
	var all []fs.DirEntry
	for e, err := range t.f.List(t.ctx, p, ListOptions{Hidden: true}) {
		if err != nil {
			return all, pathError("readdir", name, err)
		}
		// Leave out a name that is not valid in package fs (fs.ValidPath): it could not be
		// opened.
		if e.RawName != "" || strings.Contains(e.Name, "/") || !fs.ValidPath(e.Name) || e.Name == "." {
			continue
		}
		if p == "" {
			e.MTime = ""
		}
		all = append(all, fs.FileInfoToDirEntry(newInfo(e.Name, e.Type, e.Size, e.MTime)))
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// info is an fs.FileInfo.
type info struct {
	name string
	mode fs.FileMode
	size int64
	time time.Time
}

func newInfo(name, typ string, size int64, mtime string) *info {
	i := &info{name: name, mode: 0o444, size: size, time: parseTime(mtime)}
	switch typ {
	case wire.TypeDirectory:
		i.mode, i.size = fs.ModeDir|0o555, 0
	case wire.TypeSymlink:
		i.mode = fs.ModeSymlink | 0o777
	case wire.TypeOther:
		i.mode = fs.ModeIrregular | 0o444
	}
	return i
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.time }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return nil }
func (i *info) String() string     { return fs.FormatFileInfo(i) }

type openFile struct {
	*File
	name string
	info *info
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.info, nil }

func (o *openFile) Read(p []byte) (int, error) {
	n, err := o.File.Read(p)
	return n, pathError("read", o.name, err)
}

func (o *openFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.File.ReadAt(p, off)
	return n, pathError("read", o.name, err)
}

type openDir struct {
	t      *FS
	name   string
	info   *info
	list   []fs.DirEntry
	listed bool
	closed bool
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, pathError("read", d.name, errors.New("is a directory"))
}

func (d *openDir) Close() error {
	if d.closed {
		return pathError("close", d.name, fs.ErrClosed)
	}
	d.closed = true
	return nil
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, pathError("readdir", d.name, fs.ErrClosed)
	}
	if !d.listed {
		list, err := d.t.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.list, d.listed = list, true
	}
	if n <= 0 {
		n = len(d.list)
	} else if len(d.list) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.list))
	out := slices.Clone(d.list[:n])
	d.list = d.list[n:]
	return out, nil
}

var (
	_ fs.ReadDirFS   = (*FS)(nil)
	_ fs.ReadFileFS  = (*FS)(nil)
	_ fs.StatFS      = (*FS)(nil)
	_ fs.ReadDirFile = (*openDir)(nil)
	_ io.ReaderAt    = (*openFile)(nil)
)
