package childfs

import "github.com/rootsfs/rootsfs/guard/guardtest"

// Front is a mount as the conformance suite uses it: guardtest.Bare, in the child.
type Front struct {
	Point string // the mountpoint
}

// Host turns "root/a/b" into a path for system calls.
func (f Front) Host(path string) string {
	if path == "" {
		path = "nothing"
	}
	return f.Point + "/" + path
}

func (f Front) bare() guardtest.Bare { return guardtest.Bare{Host: f.Host} }

var (
	frontReadFile  = In("Front.ReadFile", func(f Front, path string) ([]byte, error) { return f.bare().ReadFile(path) })
	frontWriteFile = In("Front.WriteFile", func(f Front, path string, data []byte) error { return f.bare().WriteFile(path, data) })
	frontAppend    = In("Front.Append", func(f Front, path string, data []byte) error { return f.bare().Append(path, data) })
	frontMkdir     = In("Front.Mkdir", func(f Front, path string) error { return f.bare().Mkdir(path) })
	frontRemove    = In("Front.Remove", func(f Front, path string) error { return f.bare().Remove(path) })
	frontRename    = In("Front.Rename", func(f Front, from, to string) error { return f.bare().Rename(from, to) })
	frontLink      = In("Front.Link", func(f Front, from, to string) error { return f.bare().Link(from, to) })
	frontSymlink   = In("Front.Symlink", func(f Front, target, path string) error { return f.bare().Symlink(target, path) })
	frontReadlink  = In("Front.Readlink", func(f Front, path string) (string, error) { return f.bare().Readlink(path) })
	frontStat      = In("Front.Stat", func(f Front, path string) (guardtest.Info, error) { return f.bare().Stat(path) })
	frontList      = In("Front.List", func(f Front, path string) ([]string, error) { return f.bare().List(path) })
	frontChmod     = In("Front.Chmod", func(f Front, path string, mode uint32) error { return f.bare().Chmod(path, mode) })
	frontTruncate  = In("Front.Truncate", func(f Front, path string, size int64) error { return f.bare().Truncate(path, size) })
	frontSetxattr  = In("Front.Setxattr", func(f Front, path, name string, value []byte) error { return f.bare().Setxattr(path, name, value) })
	frontGetxattr  = In("Front.Getxattr", func(f Front, path, name string) ([]byte, error) { return f.bare().Getxattr(path, name) })
)

// The methods implement guardtest.Front.

func (f Front) ReadFile(path string) ([]byte, error)     { return frontReadFile(f, path) }
func (f Front) WriteFile(path string, data []byte) error { return frontWriteFile(f, path, data) }
func (f Front) Append(path string, data []byte) error    { return frontAppend(f, path, data) }
func (f Front) Mkdir(path string) error                  { return frontMkdir(f, path) }
func (f Front) Remove(path string) error                 { return frontRemove(f, path) }
func (f Front) Rename(from, to string) error             { return frontRename(f, from, to) }
func (f Front) Link(from, to string) error               { return frontLink(f, from, to) }
func (f Front) Symlink(target, path string) error        { return frontSymlink(f, target, path) }
func (f Front) Readlink(path string) (string, error)     { return frontReadlink(f, path) }
func (f Front) Stat(path string) (guardtest.Info, error) { return frontStat(f, path) }
func (f Front) List(path string) ([]string, error)       { return frontList(f, path) }
func (f Front) Chmod(path string, mode uint32) error     { return frontChmod(f, path, mode) }
func (f Front) Truncate(path string, size int64) error   { return frontTruncate(f, path, size) }
func (f Front) Setxattr(path, name string, value []byte) error {
	return frontSetxattr(f, path, name, value)
}
func (f Front) Getxattr(path, name string) ([]byte, error) { return frontGetxattr(f, path, name) }
