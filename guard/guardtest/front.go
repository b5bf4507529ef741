package guardtest

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// Info describes a file. A front end that does not know a field leaves it zero.
type Info struct {
	Size int64
	Mode uint32 // type and permission bits, as of stat(2)
}

// Front is one front end of a registry's roots. A path is the name of a root, a slash, and a path
// in the root ("root/a/b"). The path is not cleaned: it may contain "..", for instance. Links are
// followed as for the front end's users, except that Stat, Readlink, Remove, Rename, Link and
// Symlink do not follow a link in the last element. Errors are a syscall.Errno or a *guard.Error,
// or wrap one of them.
type Front interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile truncates or creates the file, and writes data.
	WriteFile(path string, data []byte) error
	// Append writes at the end of the file, which it creates if necessary.
	Append(path string, data []byte) error
	Mkdir(path string) error
	Remove(path string) error // a file's name or an empty directory
	Rename(oldPath, newPath string) error
	Link(oldPath, newPath string) error
	Symlink(target, path string) error
	Readlink(path string) (string, error)
	Stat(path string) (Info, error)
	List(path string) ([]string, error) // names, sorted
	Chmod(path string, mode uint32) error
	Truncate(path string, size int64) error
	Setxattr(path, name string, value []byte) error
	Getxattr(path, name string) ([]byte, error)
}

// Can describes the abilities and the differences of a front end.
type Can struct {
	// ParsesPaths: the front end parses paths itself, and has to handle ".", ".." and "//" in
	// them. A mount does not: the kernel resolves these elements first.
	ParsesPaths bool
	// Attributes: Chmod, Setxattr and Getxattr work, and Stat returns the mode.
	Attributes bool
	// Links: Symlink, Readlink and Link work.
	Links bool
	// FixedSize: only writing contents changes the size of a file, so Truncate does not work.
	FixedSize bool
	// RawNames: names that are not UTF-8 can be written in a path.
	RawNames bool
	// LearnsLater: when the host has replaced a file, the front end may answer for the old
	// one for a moment.
	LearnsLater bool
	// ReadOnlyByKernel: the kernel refuses changes itself, so package guard does not see them.
	ReadOnlyByKernel bool
	// GoneIsAbsent: for a root that has ended, the front end reports ENOENT instead of a
	// refusal.
	GoneIsAbsent bool
	// KindsOnly: errors have a kind and no errno, and the kind for hidden names is NotExist.
	KindsOnly bool
}

// Maker makes a front end for a registry. Roots are granted to the registry later.
type Maker func(t testing.TB, reg *guard.Registry) Front

// prefixed is a Front that puts p before each root's name, so that the roots of different
// cases have different names in the registry.
type prefixed struct {
	f Front
	p string
}

func (x prefixed) ReadFile(p string) ([]byte, error)       { return x.f.ReadFile(x.path(p)) }
func (x prefixed) WriteFile(p string, data []byte) error   { return x.f.WriteFile(x.path(p), data) }
func (x prefixed) Append(p string, data []byte) error      { return x.f.Append(x.path(p), data) }
func (x prefixed) Mkdir(p string) error                    { return x.f.Mkdir(x.path(p)) }
func (x prefixed) Remove(p string) error                   { return x.f.Remove(x.path(p)) }
func (x prefixed) Rename(p, q string) error                { return x.f.Rename(x.path(p), x.path(q)) }
func (x prefixed) Link(p, q string) error                  { return x.f.Link(x.path(p), x.path(q)) }
func (x prefixed) Symlink(target, p string) error          { return x.f.Symlink(target, x.path(p)) }
func (x prefixed) Readlink(p string) (string, error)       { return x.f.Readlink(x.path(p)) }
func (x prefixed) Stat(p string) (Info, error)             { return x.f.Stat(x.path(p)) }
func (x prefixed) List(p string) ([]string, error)         { return x.f.List(x.path(p)) }
func (x prefixed) Chmod(p string, mode uint32) error       { return x.f.Chmod(x.path(p), mode) }
func (x prefixed) Truncate(p string, n int64) error        { return x.f.Truncate(x.path(p), n) }
func (x prefixed) Setxattr(p, name string, v []byte) error { return x.f.Setxattr(x.path(p), name, v) }
func (x prefixed) Getxattr(p, name string) ([]byte, error) { return x.f.Getxattr(x.path(p), name) }

func (x prefixed) path(p string) string {
	if p == "" || p[0] == '.' || p[0] == '/' {
		return p // p names no root
	}
	return x.p + p
}
