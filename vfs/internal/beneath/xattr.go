package beneath

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// A copy of a file gets the file's ACL and its extended attributes of the namespace "user". All
// other attributes belong to the system: the kernel, or another program, gives the copy its own.

// copiedXattrs lists the attributes of a file that a copy of it gets.
func copiedXattrs(fd int) ([]string, error) {
	list, err := Listxattr(fd)
	if err == unix.EOPNOTSUPP { //nolint:errorlint // bare errno
		return nil, nil
	}
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return slices.DeleteFunc(strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00"), func(name string) bool {
		return !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "system.posix_acl_")
	}), nil
}

// holdsXattr reports whether the file system of a file supports the attribute called name. It
// assumes that a file system supports either all user.* attributes or none.
func holdsXattr(fd int, name string) bool {
	if strings.HasPrefix(name, "user.") {
		name = "user.rootsfs" // any name
	}
	_, err := Getxattr(fd, name, nil)
	return err != unix.EOPNOTSUPP //nolint:errorlint // bare errno
}

// CopyXattrs makes the ACL and the user.* attributes of a file the same as those of another file. It
// leaves alone the attributes that one of the two file systems does not support.
func CopyXattrs(l *guard.Lease, from int, to Changeable) error {
	want, err := copiedXattrs(from)
	if err != nil {
		return err
	}
	have, err := copiedXattrs(to.FD())
	if err != nil {
		return err
	}
	for _, name := range have {
		if slices.Contains(want, name) || !holdsXattr(from, name) {
			continue
		}
		if err := Removexattr(l, to, name); err != nil && err != unix.ENODATA { //nolint:errorlint // bare errno
			return err
		}
	}
	for _, name := range want {
		if err := CopyXattr(l, from, to, name); err != nil && err != unix.EOPNOTSUPP { //nolint:errorlint // bare errno
			return err
		}
	}
	return nil
}

// CopyUnsupportedXattrs copies from one file to another those attributes that the file system of third
// does not support. If third is a copy of from, the copy cannot have them.
func CopyUnsupportedXattrs(l *guard.Lease, from, third int, to Changeable) error {
	list, err := copiedXattrs(from)
	if err != nil {
		return err
	}
	for _, name := range list {
		if holdsXattr(third, name) {
			continue
		}
		if err := CopyXattr(l, from, to, name); err != nil {
			return err
		}
	}
	return nil
}

// attrsOf reads the attributes that a copy of a file gets. It returns nil if there are none, or if they
// cannot be listed.
func attrsOf(fd int) map[string][]byte {
	list, err := copiedXattrs(fd)
	if err != nil || len(list) == 0 {
		return nil
	}
	out := map[string][]byte{}
	for _, name := range list {
		buf := make([]byte, 1<<16)
		if n, err := Getxattr(fd, name, buf); err == nil {
			out[name] = buf[:n:n]
		}
	}
	return out
}

// SameXattrs reports whether two files have the same ACL and the same user.* attributes. It
// ignores the attributes that one of the two file systems does not support.
func SameXattrs(x, y int) bool {
	a, b := attrsOf(x), attrsOf(y)
	for _, list := range []map[string][]byte{a, b} {
		for name := range list {
			v, inA := a[name]
			w, inB := b[name]
			if (inA != inB || !bytes.Equal(v, w)) && holdsXattr(x, name) && holdsXattr(y, name) {
				return false
			}
		}
	}
	return true
}

// XattrsHash returns a hash of a file's ACL and user.* attributes, zero if the file has none.
func XattrsHash(fd int) (sum [sha256.Size]byte) {
	attrs := attrsOf(fd)
	if len(attrs) == 0 {
		return sum
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		fmt.Fprintf(h, "%s\x00%d\x00%s", name, len(attrs[name]), attrs[name])
	}
	return [sha256.Size]byte(h.Sum(nil))
}
