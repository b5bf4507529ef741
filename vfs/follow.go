package vfs

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// The kernel follows the links of a mount. For peers that send paths the tree follows them.
// First the kernel resolves a path in one call that refuses links. Only if it meets a link, the
// path is walked here: one element at a time, each judged and opened beneath the last, and a
// link is replaced by its target. The result is a path without links. It is resolved from the
// root again by a call that refuses links. So no link is followed that was not judged, even if
// names were exchanged meanwhile.

const (
	// maxLinks bounds the links of one path, as the kernel does (MAXSYMLINKS).
	maxLinks = 40
	// maxClimbs bounds how many elements may be resolved again because a
	// target climbs: long targets full of ".." in a deep tree would otherwise
	// make one request cost minutes.
	maxClimbs = 100_000
	// maxExchanges bounds how often an operation looks a name up again because a link or another
	// file has appeared there meanwhile. After that the operation fails.
	maxExchanges = 16
)

// Follow returns the path to which a path leads when its links are followed. A link in the
// last element is followed only if last is set. The path returned has no links before its
// last element, which need not exist. A link whose text leaves the root is refused (Escaped),
// even if it comes back. Following a link needs the right to read.
func (t *Tree) Follow(ctx context.Context, c guard.Caller, p guard.Path, last bool) (guard.Path, error) {
	req := guard.Request{Caller: c, Op: names.OpLookup, Path: p}
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (guard.Path, int64, error) {
		q, err := follow(ctx, l, p, last)
		return q, 0, err
	})
}

// withFollowed runs f on the path that p leads to, within an operation that has been admitted. f
// accepts only paths without links: if it meets one, it returns ELOOP before it has changed
// anything. Unless last is set, f also accepts a link in the last element.
func withFollowed[T any](ctx context.Context, l *guard.Lease, p guard.Path, last bool, f func(q guard.Path) (T, error)) (T, error) {
	v, err := f(p)
	for range maxExchanges {
		if err != unix.ELOOP { //nolint:errorlint // bare errno
			break
		}
		q, ferr := follow(ctx, l, p, last)
		if ferr != nil {
			return v, ferr
		}
		l.Notes().Resolved(p, q)
		v, err = f(q)
	}
	return v, err
}

// doFollowed is withFollowed for an f without a result.
func doFollowed(ctx context.Context, l *guard.Lease, p guard.Path, last bool, f func(q guard.Path) error) error {
	return errOnly(withFollowed(ctx, l, p, last, func(q guard.Path) (struct{}, error) { return struct{}{}, f(q) }))
}

// step is an element still to be walked.
type step struct {
	name     string
	fromLink bool // the element comes from a link's target, not from the path that was asked for
}

// follower walks one path.
type follower struct {
	ctx   context.Context
	l     *guard.Lease
	at    []string // where the walk is: real directories, no links
	d     beneath.Dir
	todo  []step // in reverse: the next is the last
	links int
	climb int
	link  *guard.MetLink // the last link on the path; only set in a dry run
	// fromLink: the element that was walked last comes from a link's target.
	fromLink bool
}

func follow(ctx context.Context, l *guard.Lease, p guard.Path, last bool) (guard.Path, error) {
	w := follower{ctx: ctx, l: l}
	defer func() { w.d.Close() }()
	if err := w.walk(p, last); err != nil {
		return guard.Path{}, err
	}
	for i := len(w.todo) - 1; i >= 0; i-- { // the last element
		w.at = append(w.at, w.todo[i].name)
	}
	return guard.NewPath(p.Root, strings.Join(w.at, "/"))
}

// walk goes as far as the path leads through directories. Unless last is set, the last element
// stays in todo. If last is set, it stays there only if it is missing or neither a directory nor a
// link. On ENOENT, the next element in todo is the first missing one.
func (w *follower) walk(p guard.Path, last bool) error {
	if w.l.Source().File() != "" {
		return w.fileRoot(p)
	}
	w.d = beneath.Root(w.l)
	w.push(p.Rel(), false)
	return w.run(last)
}

// run is walk for the elements in todo, from the directory that has been reached.
func (w *follower) run(last bool) error {
	for len(w.todo) > 0 {
		if err := w.l.Life().Ended(w.ctx); err != nil {
			return err
		}
		next := w.todo[len(w.todo)-1]
		switch next.name {
		case "", ".":
			w.pop()
		case "..":
			w.pop()
			if err := w.up(); err != nil {
				return err
			}
		default:
			final := len(w.todo) == 1
			if final && !last {
				return nil
			}
			done, err := w.enter(next, final)
			if done || err != nil {
				return err
			}
		}
	}
	return nil
}

// fileRoot is walk for a single-file root. Nothing lies below it, and if its own name has
// become a link, the link leads away from the one file that the root consists of.
func (w *follower) fileRoot(p guard.Path) error {
	if !p.IsRoot() {
		return unix.ENOTDIR
	}
	d, err := beneath.Node(w.l, p, w.l.Judge().Access())
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.Stat(w.l)
	if err == nil && info.Type() == unix.S_IFLNK {
		err = &guard.Error{Kind: names.Escaped}
	}
	return err
}

func (w *follower) pop() { w.todo = w.todo[:len(w.todo)-1] }

func (w *follower) push(rel string, fromLink bool) {
	if rel == "" {
		return
	}
	elems := strings.Split(rel, "/")
	for i := len(elems) - 1; i >= 0; i-- {
		w.todo = append(w.todo, step{elems[i], fromLink})
	}
}

// rest returns the part of the path that is still to be walked.
func (w *follower) rest() string {
	elems := make([]string, 0, len(w.todo))
	for _, s := range slices.Backward(w.todo) {
		elems = append(elems, s.name)
	}
	return strings.Join(elems, "/")
}

func (w *follower) rel() string { return strings.Join(w.at, "/") }

// up moves to the parent directory. It resolves the parent from the root: ".." could lead out
// of the root if somebody moves the directory meanwhile.
func (w *follower) up() error {
	if len(w.at) == 0 {
		if w.link != nil {
			w.l.Notes().Link(*w.link, true)
		}
		return &guard.Error{Kind: names.Escaped}
	}
	w.at = w.at[:len(w.at)-1]
	if w.climb += len(w.at) + 1; w.climb > maxClimbs {
		return unix.ELOOP
	}
	d, err := beneath.OpenDir(w.l, w.rel())
	if err != nil {
		return err
	}
	w.d.Close()
	w.d = d
	return nil
}

// enter walks the next element. done means that the element is the path's last one, and that it
// is missing or neither a link nor a directory. The element then stays in todo.
func (w *follower) enter(next step, final bool) (done bool, err error) {
	w.fromLink = next.fromLink
	rel := w.rel()
	// Each name before the last has to be readable. The last name is judged by the operation
	// itself, for its own access, unless it is a link.
	judgeRead := func() error { return beneath.Judge(w.l, w.d, rel, next.name, rules.ToRead) }
	if !final {
		if err := judgeRead(); err != nil {
			return false, err
		}
	}
	d, info, err := beneath.Step(w.l, w.d, next.name)
	if err == unix.ENOENT && final { //nolint:errorlint // bare errno
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case info.IsDir():
		w.pop()
		w.at = append(w.at, next.name)
		w.d.Close()
		w.d = d
		return false, nil
	case info.Type() == unix.S_IFLNK:
		defer d.Close()
		if err := judgeRead(); err != nil {
			return false, err
		}
		w.pop()
		return false, w.expand(d.FD(), next.name)
	}
	d.Close()
	if final {
		return true, nil
	}
	if err := walk.Visible(w.l, &info); err != nil {
		return false, err
	}
	return false, unix.ENOTDIR
}

// expand puts the elements of the link's target into todo. fd is a reference to the link, name
// its name.
func (w *follower) expand(fd int, name string) error {
	if w.l.Narrowest()&guard.Read == 0 {
		// As for READLINK in the mount: a target counts as contents.
		return &guard.Error{Kind: names.Permission}
	}
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	target, err := beneath.Readlink(fd)
	if err != nil {
		return err
	}
	isAbsolute := strings.HasPrefix(target, "/")
	if w.l.IsDry() {
		w.link = &guard.MetLink{At: strings.Join(append(slices.Clone(w.at), name), "/"), Target: target, Rest: w.rest()}
		w.l.Notes().Link(*w.link, isAbsolute)
	}
	if isAbsolute {
		return &guard.Error{Kind: names.Escaped}
	}
	w.push(target, true)
	return nil
}
