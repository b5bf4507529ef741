package vfs

import (
	"bytes"
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// checkXattr refuses attributes other than user.* and the POSIX ACLs, unless the root's policy has
// PosixFull. Attributes of security.* and trusted.* also steer the kernel outside our mount
// (capabilities, overlayfs), so they need PosixFull.
func checkXattr(l *guard.Lease, name string, change bool) error {
	if strings.HasPrefix(name, userAttr) || aclNames[name] || l.PosixFull() {
		return nil
	}
	if change {
		return &guard.Error{Kind: names.Permission, Err: unix.EPERM}
	}
	return unix.ENODATA
}

// userAttr is the prefix of the attributes that users may set on their own files.
const userAttr = "user."

// aclNames are the attributes that hold an ACL.
var aclNames = map[string]bool{"system.posix_acl_access": true, "system.posix_acl_default": true}

// Getxattr reads an attribute into buf; with an empty buf it returns the size. On a file
// system without attributes the error is EOPNOTSUPP, so that callers can stop asking.
func (t *Tree) Getxattr(ctx context.Context, c guard.Caller, at At, f *File, name string, buf []byte) (int, error) {
	req := at.request(c, names.OpGetxattr, at.Path)
	// Attributes of the system say what a file is and who may read it, as its mode does, and
	// "ls -l" reads them. Those of the user count as contents.
	req.AttributesOnly = !strings.HasPrefix(name, userAttr)
	type value struct {
		n   int
		buf []byte
	}
	get := func(l *guard.Lease, n *node) (v value, err error) {
		if err := checkXattr(l, name, false); err != nil {
			return v, err
		}
		v.buf = buf
		if l.Source().Remote() {
			v.buf = make([]byte, len(buf)) // the kernel may still write to it after we have answered
		}
		v.n, err = beneath.Getxattr(n.fd, name, v.buf)
		return v, err
	}
	v, err := onNodeUnless(ctx, t, req, at, f, func(l *guard.Lease) error { return checkXattr(l, name, false) }, get)
	if err != nil {
		return 0, err
	}
	if len(buf) > 0 {
		copy(buf, v.buf[:v.n])
	}
	return v.n, nil
}

// Listxattr returns the names of the attributes that may be seen, each ending
// in NUL.
func (t *Tree) Listxattr(ctx context.Context, c guard.Caller, at At, f *File) ([]byte, error) {
	req := at.request(c, names.OpListxattr, at.Path)
	return onNode(ctx, t, req, at, f, func(l *guard.Lease, n *node) (list []byte, err error) {
		all, err := beneath.Listxattr(n.fd)
		if err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(all), "\x00"), "\x00") {
			if name != "" && checkXattr(l, name, false) == nil {
				list = append(append(list, name...), 0)
			}
		}
		return list, nil
	})
}

// Setxattr sets an attribute; flags are those of setxattr(2).
func (t *Tree) Setxattr(ctx context.Context, c guard.Caller, at At, f *File, name string, value []byte, flags int) error {
	req := at.request(c, names.OpSetxattr, at.Path)
	value = bytes.Clone(value) // the front end's buffer may be reused while a detached call still runs
	_, err := onNode(ctx, t, req, at, f, func(l *guard.Lease, n *node) (none struct{}, err error) {
		if err := checkXattr(l, name, true); err != nil {
			return none, err
		}
		w, err := n.changeable(l)
		if err != nil {
			return none, err
		}
		if err := beneath.Setxattr(l, w, name, value, flags); err != nil {
			return none, err
		}
		if name == "system.posix_acl_access" && n.info.Mode&unix.S_ISGID != 0 && !c.InGroup(n.info.GID) {
			// Clear the set-group-ID bit, as chmod(2) does for an owner outside
			// the file's group. The kernel would ask for this only through an
			// extension of SETXATTR that go-fuse does not support.
			return none, killSetgid(l, w)
		}
		return none, nil
	})
	return err
}

func killSetgid(l *guard.Lease, w beneath.Changeable) error {
	info, err := beneath.Stat(l, w.FD())
	if err != nil {
		return err
	}
	return beneath.Chmod(l, w, info.Mode&07777&^unix.S_ISGID)
}

// Removexattr removes an attribute.
func (t *Tree) Removexattr(ctx context.Context, c guard.Caller, at At, f *File, name string) error {
	req := at.request(c, names.OpRemovexattr, at.Path)
	_, err := onNode(ctx, t, req, at, f, func(l *guard.Lease, n *node) (none struct{}, err error) {
		if err := checkXattr(l, name, true); err != nil {
			return none, err
		}
		w, err := n.changeable(l)
		if err != nil {
			return none, err
		}
		return none, beneath.Removexattr(l, w, name)
	})
	return err
}
