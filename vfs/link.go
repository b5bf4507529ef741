package vfs

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Symlink makes a symbolic link. The target can be any text. The target is judged only when the
// link is read or followed.
func (t *Tree) Symlink(ctx context.Context, c guard.Caller, target string, dir At, name string) (Info, error) {
	return t.createName(ctx, c, names.OpSymlink, dir, name, func(l *guard.Lease, d beneath.Dir, name string) (Info, error) {
		return beneath.Symlink(l, target, d, name, owner(c))
	})
}

// Link gives a file another name. f is an open descriptor of the file, or nil. A file without a
// name (O_TMPFILE) can only be linked through f.
func (t *Tree) Link(ctx context.Context, c guard.Caller, old At, f *File, dir At, name string) (Info, error) {
	p, err := t.child(names.OpLink, dir, name)
	if err != nil {
		return Info{}, err
	}
	req := guard.Request{Caller: c, Op: names.OpLink, Path: p, Epoch: dir.Epoch, Path2: old.Path, Names: 1}
	if f != nil {
		if err := f.refreshHold(ctx, c); err != nil {
			return Info{}, err
		}
		req.HeldTarget = f.hold.Load()
	}
	return whileMaking(ctx, t, req, func(l *guard.Lease) (Info, error) {
		d, err := parentAt(l, dir, name, l.Judge().Access())
		if err != nil {
			return Info{}, err
		}
		defer d.Close()
		if f != nil {
			if req.HeldTarget.Domain() != d.Domain {
				return Info{}, unix.EXDEV
			}
			if _, err := f.enter(); err != nil {
				return Info{}, err
			}
			defer f.leave()
			if old.Nameless {
				info, err := f.h.Stat(l)
				if err == nil {
					err = requireNameless(&info)
				}
				if err != nil {
					return Info{}, err
				}
			}
			w, err := f.changeable(l)
			if err != nil {
				return Info{}, err
			}
			return linkAndStat(l, w, d, dir, name)
		}
		src, info, err := nodeAt(l, old, rules.ToChange)
		if err != nil {
			return Info{}, err
		}
		defer src.Close()
		if info.Type() == unix.S_IFLNK {
			err = l.Judge().As(rules.ToMake, d.Rel(dir.Path.Rel()), name, pattern.Link)
		}
		if err != nil {
			return Info{}, err
		}
		if src.Domain != d.Domain {
			return Info{}, unix.EXDEV
		}
		w, err := src.Change(l)
		if err != nil {
			return Info{}, err
		}
		return linkAndStat(l, w, d, dir, name)
	})
}

// linkAndStat gives a file another name, and returns the file's attributes.
func linkAndStat(l *guard.Lease, w beneath.Changeable, d beneath.Dir, dir At, name string) (Info, error) {
	if err := beneath.Link(l, w, d, name); err != nil {
		return Info{}, err
	}
	l.Notes().NewName(d.Rel(dir.Path.Rel()), name)
	return beneath.StatIn(d, name)
}

// Readlink returns a link's target. f is a reference to the link if it has no name any more,
// else nil. Readlink refuses a target that leaves the root or could leave the root: the kernel
// would walk the target in the caller's namespace, outside of the root.
func (t *Tree) Readlink(ctx context.Context, c guard.Caller, at At, f *File) (string, error) {
	return t.ReadlinkFor(ctx, c, at, f, LinkUse{})
}

// LinkUse says from which directories a front end's users walk a link, and which targets that
// leave the root are shown to them.
type LinkUse struct {
	// Holders returns the directories of the names by which the users know the link. nil: they
	// know the link only by the path given to ReadlinkFor.
	Holders func() []guard.Path
	// Shows reports whether a target that leaves the root is shown as it is, for users in a
	// namespace of their own. dir is the directory in the root that holds the link. nil: no
	// such target is shown.
	Shows func(dir guard.Path, target string) bool
}

// ReadlinkFor is Readlink for a front end whose users walk the target themselves.
func (t *Tree) ReadlinkFor(ctx context.Context, c guard.Caller, at At, f *File, where LinkUse) (string, error) {
	req := at.request(c, names.OpReadlink, at.Path)
	return onNode(ctx, t, req, at, f, func(l *guard.Lease, n *node) (string, error) {
		if n.info.Type() != unix.S_IFLNK {
			return "", unix.EINVAL
		}
		text, err := beneath.Readlink(n.fd)
		if err != nil {
			return "", err
		}
		dir, _ := at.Path.Split()
		holders := []guard.Path{dir}
		if n.info.Nlink > 1 && where.Holders != nil {
			// The kernel may be walking the link by another name, in a directory that lies less deep.
			holders = append(holders, where.Holders()...)
		}
		for _, dir := range holders {
			err := staysInside(ctx, l, dir, text)
			if err == nil || names.Reason(err) == names.Escaped && where.Shows != nil && where.Shows(dir, text) {
				continue
			}
			if names.Reason(err) == names.Escaped {
				l.Notes().RefusedLink(text)
			}
			return "", err
		}
		return text, nil
	})
}

// staysInside refuses a link's target, in the directory dir of the root, if it leads out of
// the root (Escaped). Leading ".." elements climb real directories, so counting them is exact.
// A ".." that comes after a name leaves the directory that the name leads to. The name may be a
// link, so staysInside follows all names before the last "..". The names after the last ".."
// stay inside, or are links that are judged when they are read.
func staysInside(ctx context.Context, l *guard.Lease, dir guard.Path, target string) error {
	leaves := &guard.Error{Kind: names.Escaped}
	if strings.HasPrefix(target, "/") {
		return leaves
	}
	depth := 0
	if !dir.IsRoot() {
		depth = 1 + strings.Count(dir.Rel(), "/")
	}
	climbs, climbsLater := findClimbs(target, depth)
	if climbsLater {
		// The names after the last ".." do not climb.
		err := followClimbs(ctx, l, dir, target[:strings.LastIndex(target, "..")+2])
		if err == nil || names.Reason(err) == names.Escaped {
			return err
		}
		// The kernel cannot walk the target either, at this moment. The name that stopped the
		// walk may become a directory, so it counts as a directory.
	}
	if climbs {
		return leaves
	}
	return nil
}

// findClimbs reports whether a target climbs out of the root (out), and whether it has ".." after
// a name (later). The target is that of a link in a directory depth names below the root, and
// every name in the target counts as a directory.
func findClimbs(target string, depth int) (out, later bool) {
	named := false
	for e := range strings.SplitSeq(target, "/") {
		switch e {
		case "", ".":
		case "..":
			later = later || named
			depth--
			out = out || depth < 0
		default:
			named = true
			depth++
		}
	}
	return out, later
}

// followClimbs walks a target that ends in "..", from a directory of the root.
func followClimbs(ctx context.Context, l *guard.Lease, dir guard.Path, target string) error {
	w := follower{ctx: ctx, l: l}
	if !dir.IsRoot() {
		w.at = strings.Split(dir.Rel(), "/")
	}
	d, err := beneath.OpenDir(l, dir.Rel())
	if err != nil {
		return err
	}
	w.d = d
	defer func() { w.d.Close() }()
	w.push(target, true)
	return w.run(true)
}
