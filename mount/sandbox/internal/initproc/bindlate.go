package initproc

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// This file is the init's side of roots that are granted while the command runs. The init keeps
// the whole tree and a writable mount of the minimal root, and binds parts of the tree on request.

// lateAt is where the init keeps the whole tree.
const lateAt = scratch + "/tree"

// lateMounts holds the descriptors by which the init shows more of the tree later.
type lateMounts struct {
	tree int // the tree
	root int // the minimal root, through a writable mount
	// bound are the mounts that the caller has asked for, by their paths in the sandbox.
	bound map[string]*lateMount
}

type lateMount struct {
	target  int           // the file or directory under the mount
	created []createdName // names made for the mount, the outermost first
}

// createdName is a name that was created in a directory for a mount.
type createdName struct {
	dir    int
	name   string
	isFile bool
}

// keepTree binds the tree in a directory that the command cannot enter, and keeps it open, if the
// layout has spare directories.
func (b *builder) keepTree(from string) error {
	if len(b.layout.Spare) == 0 {
		return nil
	}
	if err := b.bindTree(from, lateAt); err != nil {
		return err
	}
	fd, err := b.open(lateAt)
	if err != nil {
		return step(err, "find the tree of roots")
	}
	b.late = &lateMounts{tree: fd, root: -1, bound: map[string]*lateMount{}}
	return nil
}

// keepRoot keeps a writable mount of the minimal root, before sealRoot makes the root read-only.
func (b *builder) keepRoot() (err error) {
	if b.late == nil {
		return nil
	}
	b.late.root, err = unix.OpenTree(b.root, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	return step(err, "copy the mount of the new root")
}

// bindLate binds or unbinds a path for the caller, and answers. It does not run on the confined
// thread, so it may mount: see confine.
func (p *initProc) bindLate(m Message) {
	err := errors.New("this confinement was not made for it")
	if p.late != nil {
		if m.From != "" {
			err = p.late.bind(m.From, m.At)
		} else {
			err = p.late.unbind(m.At)
		}
	}
	a := Message{Kind: KindDone, Code: m.Code}
	if err != nil {
		a.Error = err.Error()
	}
	_ = Send(controlFD, a) // a caller that is gone needs no answer
}

// bindTries is how often a mount is tried if its source or target vanishes between being
// found and being used: the tree's server may forget names at any time, and the command
// may remove its own files. Each try takes some microseconds.
const bindTries = 128

// bind shows a part of the tree. It uses descriptors, because the command may change the
// directories of the path meanwhile.
func (k *lateMounts) bind(from, at string) error {
	if k.bound[at] != nil {
		if err := k.unbind(at); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		again, err := k.bindOnce(from, at)
		if err == nil || !again || try == bindTries {
			return err
		}
	}
}

// bindOnce tries bind once. again reports whether another try may succeed.
func (k *lateMounts) bindOnce(from, at string) (again bool, err error) {
	src, err := unix.Openat2(k.tree, from, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return false, step(err, "find %s in the tree", from)
	}
	defer unix.Close(src)
	file, err := isFile(src)
	if err != nil {
		return isVanished(err), step(err, "look at %s in the tree", from)
	}
	s := &lateMount{}
	s.target, err = openOrCreate(at, file, openInside, func(parent int, at string, file bool) error { return k.create(parent, at, file, s) })
	if err == nil {
		// Not by open_tree: forbidNested has forbidden the mount namespace that it would need.
		err = step(unix.Mount(ownFD(src), ownFD(s.target), "", unix.MS_BIND, ""), "mount %s", at)
		again = isVanished(err)
	}
	if err != nil {
		s.remove()
		return again, err
	}
	k.bound[at] = s
	return false, nil
}

// isVanished reports whether an error means that a name found before is gone.
func isVanished(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) }

func ownFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// openInside opens a path as the command would see it, but follows no link.
func openInside(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
}

// create makes an empty file or directory in a directory of the minimal root, which is
// read-only for the command, or in a directory of the command's own. It records the name in s.
func (k *lateMounts) create(parent int, at string, file bool, s *lateMount) error {
	var here, root unix.Stat_t
	if err := errors.Join(unix.Fstat(parent, &here), unix.Fstat(k.root, &root)); err != nil {
		return err
	}
	dir := "."
	if here.Dev == root.Dev {
		// The directory lies on the minimal root's own file system, where it has the same path.
		// (Apart from such directories, only the binds in /proc lie on that file system.)
		parent, dir = k.root, filepath.Dir(at)
	}
	own, err := unix.Openat2(parent, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	name := filepath.Base(at)
	if err := createAt(own, name, file); err != nil {
		unix.Close(own)
		return err
	}
	s.created = append(s.created, createdName{own, name, file})
	return nil
}

// remove closes the mount's target, and removes the names made for it. A directory that has been
// filled since stays.
func (s *lateMount) remove() {
	if s.target > 0 {
		unix.Close(s.target)
	}
	for _, m := range slices.Backward(s.created) {
		flags := unix.AT_REMOVEDIR
		if m.isFile {
			flags = 0
		}
		_ = unix.Unlinkat(m.dir, m.name, flags)
		unix.Close(m.dir)
	}
}

// unbind unmounts whatever is shown at a path.
func (k *lateMounts) unbind(at string) error {
	s := k.bound[at]
	if s == nil { // it was bound at the start
		fd, err := openInside(at)
		if err != nil {
			return step(err, "find %s", at)
		}
		s = &lateMount{target: fd}
	}
	// A process whose working directory is in the mount keeps the mount, and the tree's server
	// answers the process's calls.
	err := unix.Unmount(ownFD(s.target), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: nothing is mounted there any more
		return step(err, "unmount %s", at)
	}
	delete(k.bound, at)
	s.remove()
	return nil
}
