package vfs

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Symlink makes a symbolic link. Its target is a text, which is judged when it is read.
func (t *Tree) Symlink(ctx context.Context, c guard.Caller, target string, dir At, name string) (Info, error) {
	return t.make(ctx, c, names.OpSymlink, dir, name, func(l *guard.Lease, d beneath.Dir, name string) (Info, error) {
		return beneath.Symlink(l, target, d, name, owner(c))
	})
}

// Link gives a file another name. f is an open file for it, or nil; a file
// without a name (O_TMPFILE) can only be linked through f.
func (t *Tree) Link(ctx context.Context, c guard.Caller, old At, f *File, dir At, name string) (Info, error) {
	p, err := t.child(names.OpLink, dir, name)
	if err != nil {
		return Info{}, err
	}
	req := guard.Request{Caller: c, Op: names.OpLink, Path: p, Epoch: dir.Epoch, Path2: old.Path, Names: 1}
	if f != nil {
		if err := f.fresh(ctx, c); err != nil {
			return Info{}, err
		}
		req.HeldTarget = f.hold.Load()
	}
	return whileMaking(ctx, t, req, func(l *guard.Lease) (Info, error) {
		d, err := parentAt(l, dir, name, l.Access())
		if err != nil {
			return Info{}, err
		}
		defer d.Close()
		if f != nil {
			if req.HeldTarget.Domain() != d.Domain {
				return Info{}, unix.EXDEV
			}
			fd, err := f.enter()
			if err != nil {
				return Info{}, err
			}
			defer f.leave()
			if old.Nameless {
				info, err := beneath.Stat(fd)
				if err == nil {
					err = nameless(&info)
				}
				if err != nil {
					return Info{}, err
				}
			}
			return linked(l, fd, d, dir, name)
		}
		src, info, err := nodeAt(l, old, guard.ToChange)
		if err != nil {
			return Info{}, err
		}
		defer src.Close()
		if info.Type() == unix.S_IFLNK {
			err = l.JudgeAs(guard.ToMake, d.Rel(dir.Path.Rel()), name, pattern.Link)
		}
		if err != nil {
			return Info{}, err
		}
		if src.Domain != d.Domain {
			return Info{}, unix.EXDEV
		}
		return linked(l, src.FD, d, dir, name)
	})
}

// linked makes a second name of an open file.
func linked(l *guard.Lease, fd int, d beneath.Dir, dir At, name string) (Info, error) {
	if err := beneath.Link(l, fd, d, name); err != nil {
		return Info{}, err
	}
	l.NoteNewName(d.Rel(dir.Path.Rel()), name)
	return beneath.StatIn(d, name)
}

// Readlink returns a link's target; f is a reference to the link if it has no
// name any more, else nil. A target that leaves the root, or could, is refused:
// the kernel would walk it in the caller's namespace, outside.
func (t *Tree) Readlink(ctx context.Context, c guard.Caller, at At, f *File) (string, error) {
	return t.ReadlinkWhere(ctx, c, at, f, nil)
}

// Shows reports whether a target that leaves the root is shown as it is. dir is the
// directory in the root that holds the link. several says that the link has other names,
// too, which may lie in other directories.
type Shows func(dir guard.Path, target string, several bool) bool

// ReadlinkWhere is Readlink for a caller in a namespace of its own, in which shows
// says where a target may lead. nil: nowhere out of the root.
func (t *Tree) ReadlinkWhere(ctx context.Context, c guard.Caller, at At, f *File, shows Shows) (string, error) {
	req := at.request(c, names.OpReadlink, at.Path)
	return onNode(ctx, t, req, at, f, func(l *guard.Lease, fd int, _ bool, info Info) (string, error) {
		if info.Type() != unix.S_IFLNK {
			return "", unix.EINVAL
		}
		text, err := beneath.Readlink(fd)
		if err == nil && !l.PosixFull() {
			dir, _ := at.Path.Split()
			holder := dir
			if info.Nlink > 1 {
				// The link has other names, and the kernel may be walking
				// from one that lies less deep: judged from the top.
				dir = guard.Path{Root: at.Path.Root}
			}
			err = staysInside(l, dir, text)
			if names.Reason(err) == names.Escaped {
				if shows != nil && shows(holder, text, info.Nlink > 1) {
					err = nil
				} else {
					l.NoteRefusedLink(text)
				}
			}
		}
		return text, err
	})
}

// staysInside judges a link's target by its text. Leading ".." elements climb
// real directories, so counting them is exact. A later ".." undoes a name,
// which is exact too as long as that name is a directory and not a link to a
// shallower place; so those names are looked at.
func staysInside(l *guard.Lease, dir guard.Path, target string) error {
	leaves := &guard.Error{Kind: names.Escaped}
	if strings.HasPrefix(target, "/") {
		return leaves
	}
	var at []string
	if !dir.IsRoot() {
		at = strings.Split(dir.Rel(), "/")
	}
	elems := strings.Split(target, "/")
	climbsLater := false
	for i, named := 0, false; i < len(elems); i++ {
		switch elems[i] {
		case "", ".":
		case "..":
			climbsLater = climbsLater || named
		default:
			named = true
		}
	}
	for i, e := range elems {
		switch e {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return leaves
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(at, e)
		if climbsLater && i < len(elems)-1 && isLink(l, strings.Join(at, "/")) {
			return leaves
		}
	}
	return nil
}

// isLink reports whether rel is, or passes through, a symbolic link.
func isLink(l *guard.Lease, rel string) bool {
	d, err := beneath.OpenDir(l, rel)
	if err != nil {
		return err != unix.ENOENT //nolint:errorlint // bare errno
	}
	d.Close()
	return false
}
