package childfs

import (
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Functions of os that run in the child.
var (
	Chdir     = In("os.Chdir", os.Chdir)
	Chmod     = In("os.Chmod", os.Chmod)
	Chown     = In("os.Chown", os.Chown)
	Chtimes   = In("os.Chtimes", os.Chtimes)
	Lchown    = In("os.Lchown", os.Lchown)
	Link      = In("os.Link", os.Link)
	Mkdir     = In("os.Mkdir", os.Mkdir)
	MkdirAll  = In("os.MkdirAll", os.MkdirAll)
	ReadFile  = In("os.ReadFile", os.ReadFile)
	Readlink  = In("os.Readlink", os.Readlink)
	Remove    = In("os.Remove", os.Remove)
	RemoveAll = In("os.RemoveAll", os.RemoveAll)
	Rename    = In("os.Rename", os.Rename)
	Symlink   = In("os.Symlink", os.Symlink)
	Truncate  = In("os.Truncate", os.Truncate)
	WriteFile = In("os.WriteFile", os.WriteFile)
)

// info is a file's attributes, as the child sees them. Its fields are sent.
type info struct {
	N  string
	S  int64
	M  fs.FileMode
	T  time.Time
	St syscall.Stat_t
}

func (i *info) Name() string       { return i.N }
func (i *info) Size() int64        { return i.S }
func (i *info) Mode() fs.FileMode  { return i.M }
func (i *info) ModTime() time.Time { return i.T }
func (i *info) IsDir() bool        { return i.M.IsDir() }
func (i *info) Sys() any           { return &i.St }

func newInfo(fi fs.FileInfo, err error) (info, error) {
	if err != nil {
		return info{}, err
	}
	i := info{N: fi.Name(), S: fi.Size(), M: fi.Mode(), T: fi.ModTime()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		i.St = *st
	}
	return i, nil
}

func asFileInfo(i info, err error) (fs.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	return &i, nil
}

// SameFile is os.SameFile for the results of this package.
func SameFile(a, b fs.FileInfo) bool {
	x, y := a.Sys().(*syscall.Stat_t), b.Sys().(*syscall.Stat_t)
	return x.Dev == y.Dev && x.Ino == y.Ino
}

var (
	stat  = In("os.Stat", func(name string) (info, error) { return newInfo(os.Stat(name)) })
	lstat = In("os.Lstat", func(name string) (info, error) { return newInfo(os.Lstat(name)) })
)

func Stat(name string) (fs.FileInfo, error)  { return asFileInfo(stat(name)) }
func Lstat(name string) (fs.FileInfo, error) { return asFileInfo(lstat(name)) }

// entry is an entry of a directory, as the child sees it. Its fields are sent.
type entry struct {
	Dir, N string
	M      fs.FileMode
}

func (e entry) Name() string               { return e.N }
func (e entry) IsDir() bool                { return e.M.IsDir() }
func (e entry) Type() fs.FileMode          { return e.M }
func (e entry) Info() (fs.FileInfo, error) { return Lstat(e.Dir + "/" + e.N) }
func (e entry) String() string             { return fs.FormatDirEntry(e) }

var readDir = In("os.ReadDir", func(name string) (all []entry, err error) {
	list, err := os.ReadDir(name)
	for _, e := range list {
		all = append(all, entry{name, e.Name(), e.Type()})
	}
	return all, err
})

// ReadDir is os.ReadDir. The method Info of an entry reads the attributes when it is called.
func ReadDir(name string) (list []fs.DirEntry, err error) {
	all, err := readDir(name)
	for _, e := range all {
		list = append(list, e)
	}
	return list, err
}

// File is a file that is open in the child.
type File struct {
	name string
	fd   int
}

// files are the open files in the child, by descriptor.
var files sync.Map

func file(fd int) *os.File {
	f, ok := files.Load(fd)
	if !ok {
		return nil // the methods of a nil *os.File return fs.ErrInvalid
	}
	return f.(*os.File)
}

var openFile = In("os.OpenFile", func(name string, flag int, perm fs.FileMode) (int, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return -1, err
	}
	fd := int(f.Fd())
	files.Store(fd, f)
	return fd, nil
})

// Open is os.Open.
func Open(name string) (*File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Create is os.Create.
func Create(name string) (*File, error) {
	return OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile is os.OpenFile.
func OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	fd, err := openFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &File{name, fd}, nil
}

var (
	fileRead     = In("File.Read", func(fd int, b []byte) (int, error) { return file(fd).Read(b) })
	fileReadAt   = In("File.ReadAt", func(fd int, b []byte, off int64) (int, error) { return file(fd).ReadAt(b, off) })
	fileWrite    = In("File.Write", func(fd int, b []byte) (int, error) { return file(fd).Write(b) })
	fileWriteAt  = In("File.WriteAt", func(fd int, b []byte, off int64) (int, error) { return file(fd).WriteAt(b, off) })
	fileSeek     = In("File.Seek", func(fd int, off int64, whence int) (int64, error) { return file(fd).Seek(off, whence) })
	fileStat     = In("File.Stat", func(fd int) (info, error) { return newInfo(file(fd).Stat()) })
	fileTruncate = In("File.Truncate", func(fd int, size int64) error { return file(fd).Truncate(size) })
	fileChmod    = In("File.Chmod", func(fd int, mode fs.FileMode) error { return file(fd).Chmod(mode) })
	fileSync     = In("File.Sync", func(fd int) error { return file(fd).Sync() })
	fileNames    = In("File.Readdirnames", func(fd, n int) ([]string, error) { return file(fd).Readdirnames(n) })
	fileClose    = In("File.Close", func(fd int) error {
		f := file(fd)
		files.Delete(fd) // before another file gets the number
		return f.Close()
	})
)

// Name returns the name that the file was opened with.
func (f *File) Name() string { return f.name }

// Fd returns the file's descriptor in the child, for the functions of this package.
func (f *File) Fd() uintptr { return uintptr(f.fd) }

func (f *File) Read(b []byte) (int, error)                { return fileRead(f.fd, b) }
func (f *File) ReadAt(b []byte, off int64) (int, error)   { return fileReadAt(f.fd, b, off) }
func (f *File) Write(b []byte) (int, error)               { return fileWrite(f.fd, b) }
func (f *File) WriteString(s string) (int, error)         { return fileWrite(f.fd, []byte(s)) }
func (f *File) WriteAt(b []byte, off int64) (int, error)  { return fileWriteAt(f.fd, b, off) }
func (f *File) Seek(off int64, whence int) (int64, error) { return fileSeek(f.fd, off, whence) }
func (f *File) Stat() (fs.FileInfo, error)                { return asFileInfo(fileStat(f.fd)) }
func (f *File) Truncate(size int64) error                 { return fileTruncate(f.fd, size) }
func (f *File) Chmod(mode fs.FileMode) error              { return fileChmod(f.fd, mode) }
func (f *File) Sync() error                               { return fileSync(f.fd) }
func (f *File) Readdirnames(n int) ([]string, error)      { return fileNames(f.fd, n) }

// Close closes the file. A second call returns an error, as in package os.
func (f *File) Close() error {
	if f.fd < 0 {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	fd := f.fd
	f.fd = -1
	return fileClose(fd)
}
