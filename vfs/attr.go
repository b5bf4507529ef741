package vfs

import (
	"bytes"
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Attrs are the attributes Setattr changes; nil ones stay.
type Attrs struct {
	Mode         *uint32 // permission bits
	UID, GID     *uint32
	Size         *int64
	Atime, Mtime *time.Time // nanoseconds
	AtimeNow     bool       // the source's clock, not ours
	MtimeNow     bool
	KillPriv     bool // with Size: the caller may not keep set-id bits alive
}

// Setattr changes attributes of what lies at a place, or of an open file if f
// is not nil (which may have no name any more), and returns the new ones. With
// the right to create, but not to write, that goes for files which were made
// under the same grant, see guard.Lease.MayChange.
func (t *Tree) Setattr(ctx context.Context, c guard.Caller, at At, f *File, a Attrs) (Info, error) {
	req := at.request(c, names.OpSetattr, at.Path)
	own := f != nil && f.made
	if a.Size != nil {
		req.Op, req.Size = names.OpTruncate, *a.Size
		if !own {
			req.Need = guard.Write
		}
	}
	return t.onNode(ctx, req, at, f, func(l *guard.Lease, fd int, open bool, before Info) (Info, error) {
		var err error
		switch {
		case !own:
			err = l.MayChange(before.ID())
		case a.Size != nil:
			err = behind(l, fd, *a.Size) // longer, as cp and tar make files with holes
		}
		if err != nil {
			return Info{}, err
		}
		if a.Size == nil {
			return setattr(l, fd, open, before, a)
		}
		if *a.Size == 0 && !own {
			rel := at.Path.Rel()
			if f != nil {
				rel = f.at.Path.Rel()
			}
			if err := t.keepEmptied(ctx, l, fd, rel); err != nil {
				return Info{}, err
			}
		}
		// Shortening is writing: nobody replaces the file meanwhile.
		if f != nil {
			done, err := f.countWhileUsed(ctx, l)
			if err != nil {
				return Info{}, err
			}
			defer done()
		} else {
			if err := t.claims.ResumeWriting(ctx, l, before.ID()); err != nil {
				return Info{}, err
			}
			defer t.claims.EndWriting(before.ID())
		}
		return setattr(l, fd, open, before, a)
	})
}

// nameless refuses a file that has a name.
func nameless(info *Info) error {
	if info.Nlink != 0 {
		return unix.ESTALE
	}
	return nil
}

// onNode runs an operation on the descriptor of a place, or of an open file.
func (t *Tree) onNode(ctx context.Context, req guard.Request, at At, f *File,
	g func(l *guard.Lease, fd int, open bool, info Info) (Info, error),
) (Info, error) {
	if f != nil {
		return onFile(ctx, f, req, func(l *guard.Lease, fd int) (Info, int64, error) {
			info, err := beneath.Stat(fd)
			if err == nil && at.Nameless {
				err = nameless(&info)
			}
			if err != nil {
				return Info{}, 0, err
			}
			info, err = g(l, fd, !f.ref, info)
			return info, 0, err
		})
	}
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (Info, int64, error) {
		d, info, err := nodeAt(l, at)
		if err != nil {
			return Info{}, 0, err
		}
		defer d.Close()
		info, err = g(l, d.FD, false, info)
		return info, 0, err
	})
}

// setattr applies owner before mode, because a change of owner clears the
// set-id bits that the mode may set, and times last, because everything else
// changes them.
func setattr(l *guard.Lease, fd int, open bool, before Info, a Attrs) (Info, error) {
	if a.UID != nil || a.GID != nil {
		if err := beneath.Chown(l, fd, id(a.UID), id(a.GID)); err != nil {
			return Info{}, err
		}
	}
	if a.Mode != nil {
		mode := *a.Mode & 07777
		if !before.IsDir() {
			mode = safeMode(l, mode)
		}
		if err := beneath.Chmod(l, fd, mode); err != nil {
			return Info{}, err
		}
	}
	if a.Size != nil {
		truncate := beneath.TruncatePath
		if open {
			truncate = beneath.Truncate
		}
		if a.KillPriv && a.Mode == nil {
			if err := killPriv(l, fd, &before); err != nil {
				return Info{}, err
			}
		}
		if err := truncate(l, fd, *a.Size); err != nil {
			return Info{}, err
		}
	}
	if a.Atime != nil || a.Mtime != nil || a.AtimeNow || a.MtimeNow {
		if err := beneath.Utimes(l, fd, stamp(a.Atime, a.AtimeNow), stamp(a.Mtime, a.MtimeNow)); err != nil {
			return Info{}, err
		}
	}
	info, err := beneath.Stat(fd)
	walk.HideCounts(l, &info)
	return info, err
}

func id(p *uint32) int {
	if p == nil {
		return -1
	}
	return int(*p)
}

func stamp(t *time.Time, now bool) beneath.Stamp {
	switch {
	case now:
		return beneath.Now
	case t == nil:
		return beneath.Omit
	}
	return beneath.At(*t)
}

// Xattr names that pass: the user's own and the POSIX ACLs. Those of security.*
// and trusted.* steer the kernel outside our mount too (capabilities, overlayfs),
// so they take full POSIX.
func xattrAllowed(l *guard.Lease, name string, change bool) error {
	if strings.HasPrefix(name, userAttr) || aclNames[name] || l.PosixFull() {
		return nil
	}
	if change {
		return &guard.Error{Kind: names.Permission, Err: unix.EPERM}
	}
	return unix.ENODATA
}

// userAttr begins the names of attributes that are anybody's.
const userAttr = "user."

// aclNames are the attributes that hold an ACL.
var aclNames = map[string]bool{"system.posix_acl_access": true, "system.posix_acl_default": true}

// Getxattr reads an attribute into buf; with an empty buf it returns the size.
// A file system without attributes has none (EOPNOTSUPP stays, so that callers
// may stop asking).
func (t *Tree) Getxattr(ctx context.Context, c guard.Caller, at At, f *File, name string, buf []byte) (int, error) {
	req := at.request(c, names.OpGetxattr, at.Path)
	// Those of the system say what a file is and who may read it, as its mode does:
	// "ls -l" asks. The user's are contents.
	req.AttributesOnly = !strings.HasPrefix(name, userAttr)
	own := buf
	n := 0
	_, err := t.onNode(ctx, req, at, f, func(l *guard.Lease, fd int, _ bool, _ Info) (Info, error) {
		if err := xattrAllowed(l, name, false); err != nil {
			return Info{}, err
		}
		if l.Remote() {
			own = make([]byte, len(buf)) // the kernel may still write to it after we have answered
		}
		var err error
		n, err = beneath.Getxattr(fd, name, own)
		return Info{}, err
	})
	if err != nil {
		return 0, err
	}
	if len(buf) > 0 && len(own) > 0 && &own[0] != &buf[0] {
		copy(buf, own[:n])
	}
	return n, nil
}

// Listxattr returns the names of the attributes that may be seen, each ending
// in NUL.
func (t *Tree) Listxattr(ctx context.Context, c guard.Caller, at At, f *File) ([]byte, error) {
	req := at.request(c, names.OpListxattr, at.Path)
	var list []byte
	_, err := t.onNode(ctx, req, at, f, func(l *guard.Lease, fd int, _ bool, _ Info) (Info, error) {
		all, err := beneath.Listxattr(fd)
		if err != nil {
			return Info{}, err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(all), "\x00"), "\x00") {
			if name != "" && xattrAllowed(l, name, false) == nil {
				list = append(append(list, name...), 0)
			}
		}
		return Info{}, nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Setxattr sets an attribute; flags are those of setxattr(2).
func (t *Tree) Setxattr(ctx context.Context, c guard.Caller, at At, f *File, name string, value []byte, flags int) error {
	req := at.request(c, names.OpSetxattr, at.Path)
	value = bytes.Clone(value) // the front end's buffer may be reused before a detached call is through
	_, err := t.onNode(ctx, req, at, f, func(l *guard.Lease, fd int, _ bool, info Info) (Info, error) {
		if err := xattrAllowed(l, name, true); err != nil {
			return Info{}, err
		}
		if err := beneath.Setxattr(l, fd, name, value, flags); err != nil {
			return Info{}, err
		}
		if name == "system.posix_acl_access" && !c.InGroup(info.GID) && info.Mode&unix.S_ISGID != 0 && info.IsRegular() {
			// As chmod(2) does for an owner outside the file's group; the
			// kernel would tell us only through an extension of SETXATTR
			// that go-fuse does not speak.
			return Info{}, killSetgid(l, fd)
		}
		return Info{}, nil
	})
	return err
}

func killSetgid(l *guard.Lease, fd int) error {
	info, err := beneath.Stat(fd)
	if err != nil {
		return err
	}
	return beneath.Chmod(l, fd, info.Mode&07777&^unix.S_ISGID)
}

// Removexattr removes an attribute.
func (t *Tree) Removexattr(ctx context.Context, c guard.Caller, at At, f *File, name string) error {
	req := at.request(c, names.OpRemovexattr, at.Path)
	_, err := t.onNode(ctx, req, at, f, func(l *guard.Lease, fd int, _ bool, _ Info) (Info, error) {
		if err := xattrAllowed(l, name, true); err != nil {
			return Info{}, err
		}
		return Info{}, beneath.Removexattr(l, fd, name)
	})
	return err
}
