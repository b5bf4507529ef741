package vfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

const (
	// openLevels is how many of the innermost directories a removal keeps
	// open. The others are found again from below, by "..", and recognised by
	// their identity.
	openLevels = 24
	// dirBatch bounds the subdirectories remembered of each level, so that
	// memory grows with the depth and not with the width.
	dirBatch = 64
	// verifyPath is up to what length of path each reading of a directory
	// first looks the directory up again from the root; further down, where
	// that would cost more than the removal, only each verifyEach-th does.
	verifyPath = 512
	verifyEach = 64
	// maxPasses bounds how often a directory is read again because somebody
	// keeps filling it.
	maxPasses = 64
	removeBuf = 32 << 10
)

// Partial is the cause of the error when a recursive removal stops midway.
type Partial struct {
	Removed int64      // names that are gone
	At      guard.Path // which could not be removed
	Kind    guard.Kind
}

func (p *Partial) Error() string {
	return fmt.Sprintf("%d names were removed, then %s: %s",
		p.Removed, names.Escape(p.At.String()), (&guard.Error{Kind: p.Kind}).Text())
}

// remover is one recursive removal, depth first.
type remover struct {
	ctx     context.Context
	l       *guard.Lease
	root    guard.RootName
	rel     []byte // path of the innermost level, below the root
	buf     []byte
	levels  []removing
	removed int64
	tell    func(removed int64)
	reads   int
	bin     *bin
}

// removing is one directory on the way down.
type removing struct {
	d      beneath.Dir
	open   bool
	id     guard.Identity
	relLen int      // of remover.rel up to and including this level
	dirs   []string // subdirectories still to be removed, of what has been read
	gone   bool     // something was removed since the beginning was read
	passes int
}

// stopped is where and why a removal stopped.
type stopped struct {
	at  string
	err error
}

func (r *remover) run(top beneath.Dir, base string) error {
	defer func() {
		for i := range r.levels {
			r.shut(i)
		}
	}()
	s := r.remove(top, base)
	if s == nil {
		return nil
	}
	e := &guard.Error{Kind: names.Reason(s.err), Err: s.err}
	if r.removed == 0 {
		return s.err
	}
	if errors.Is(s.err, context.DeadlineExceeded) {
		e.Kind = names.Timeout
	}
	if e.Kind == names.Other {
		e.Kind = names.IO
	}
	at, err := guard.NewPath(r.root, s.at)
	if err != nil {
		return s.err
	}
	e.Err = &Partial{Removed: r.removed, At: at, Kind: e.Kind}
	return e
}

func (r *remover) remove(top beneath.Dir, base string) *stopped {
	if err := r.push(top, base, string(r.rel)); err != nil {
		return &stopped{string(r.rel), err}
	}
	for len(r.levels) > 0 {
		v := &r.levels[len(r.levels)-1]
		rel := string(r.rel)
		if n := len(v.dirs); n > 0 {
			name := v.dirs[n-1]
			v.dirs = v.dirs[:n-1]
			switch err := r.push(v.d, name, rel+"/"+name); err {
			case nil:
			case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
				v.gone = true // something else by now: the next reading tells
			default:
				return &stopped{rel + "/" + name, err}
			}
			continue
		}
		more, s := r.read(v, rel)
		if s != nil {
			return s
		}
		if more {
			continue
		}
		if s := r.finish(top, base, rel); s != nil {
			return s
		}
	}
	return nil
}

// push enters a directory.
func (r *remover) push(parent beneath.Dir, name, rel string) error {
	d, info, err := beneath.OpenForRemoval(parent, name)
	if err != nil {
		return err
	}
	domain, err := beneath.CrossChild(r.l, &info)
	if err == nil && domain != 0 {
		err = unix.EBUSY // it is a root itself
	}
	if err != nil {
		d.Close()
		return err
	}
	r.rel = append(r.rel[:0], rel...)
	r.levels = append(r.levels, removing{d: d, open: true, id: info.ID(), relLen: len(rel)})
	if far := len(r.levels) - 1 - openLevels; far >= 0 {
		r.shut(far)
	}
	return nil
}

func (r *remover) shut(i int) {
	if v := &r.levels[i]; v.open {
		v.d.Close()
		v.open = false
	}
}

// finish removes the innermost directory, which has been emptied, and goes up.
func (r *remover) finish(top beneath.Dir, base, rel string) *stopped {
	last := len(r.levels) - 1
	parent, name := top, base
	if last > 0 {
		up := &r.levels[last-1]
		if !up.open {
			if err := r.climb(up, &r.levels[last]); err != nil {
				return &stopped{rel, err}
			}
		}
		parent, name = up.d, rel[up.relLen+1:]
		up.gone = true
		r.rel = r.rel[:up.relLen]
	}
	r.shut(last)
	r.levels = r.levels[:last]
	if err := beneath.Rmdir(r.l, parent, name); err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
		return &stopped{rel, err}
	}
	r.l.RemovedName(rel)
	r.removed++
	r.tell(r.removed)
	return nil
}

// climb opens the directory above again. If that is not the one the removal came
// from, somebody has moved what it is in.
func (r *remover) climb(up, from *removing) error {
	d, info, err := beneath.ParentForRemoval(from.d)
	if err != nil {
		return err
	}
	if info.ID() != up.id {
		d.Close()
		return &guard.Error{Kind: names.Conflict}
	}
	up.d, up.open = d, true
	return nil
}

// read removes the next names of a directory and remembers its subdirectories;
// more is false when there is nothing left that could be removed.
func (r *remover) read(v *removing, rel string) (more bool, s *stopped) {
	if err := r.verify(v, rel); err != nil {
		return false, &stopped{rel, err}
	}
	n, err := beneath.Getdents(v.d.FD, r.buf)
	if err != nil {
		return false, &stopped{rel, err}
	}
	if n == 0 {
		if v.passes++; !v.gone || v.passes > maxPasses {
			return false, nil
		}
		// Some file systems leave out names when others are removed while
		// they are read.
		v.gone = false
		if err := beneath.SeekDir(v.d.FD, 0); err != nil {
			return false, &stopped{rel, err}
		}
		return true, nil
	}
	last := int64(0)
	buf := r.buf[:n]
	for reclen := direntLen(buf); reclen > 0; reclen = direntLen(buf) {
		name, _, _ := bytes.Cut(buf[direntHead:reclen], []byte{0})
		typ := uint32(buf[18]) << 12
		if len(v.dirs) == dirBatch {
			return true, r.rewind(v, last, rel)
		}
		last = int64(binary.NativeEndian.Uint64(buf[8:]))
		buf = buf[reclen:]
		if string(name) == "." || string(name) == ".." {
			continue
		}
		if err := r.entry(v, rel, string(name), typ); err != nil {
			return false, &stopped{rel + "/" + string(name), err}
		}
	}
	return true, nil
}

// rewind goes back to where a reading was broken off because enough
// subdirectories are remembered.
func (r *remover) rewind(v *removing, off int64, rel string) *stopped {
	if err := beneath.SeekDir(v.d.FD, off); err != nil {
		return &stopped{rel, err}
	}
	return nil
}

// entry removes one name, or remembers it if it is a directory.
func (r *remover) entry(v *removing, rel, name string, typ uint32) error {
	if err := ended(r.ctx, r.l); err != nil {
		return err
	}
	if err := r.l.JudgeAs(guard.ToChange, rel, name, typeOf(typ)); err != nil {
		if errors.Is(err, names.Hidden) {
			return nil
		}
		return err
	}
	if typ != unix.S_IFREG && typ != unix.S_IFLNK && typ != unix.S_IFDIR {
		info, err := beneath.StatIn(v.d, name)
		if err != nil {
			return absent(err)
		}
		if visible(r.l, &info) != nil {
			return nil
		}
		typ = info.Type()
	}
	if typ == unix.S_IFDIR {
		v.dirs = append(v.dirs, name)
		return nil
	}
	err := unlinkUnlocked(r.l, v.d, name, typ, func() error { return r.bin.unlink(r.l, v.d, name, rel+"/"+name) })
	switch err {
	case nil:
		r.l.RemovedName(rel + "/" + name)
		v.gone = true
		r.removed++
		r.tell(r.removed)
		return nil
	case unix.EISDIR, unix.EPERM:
		// A directory by now? Then the next reading tells.
		if info, serr := beneath.StatIn(v.d, name); serr == nil && info.IsDir() {
			v.gone = true
			return nil
		}
	}
	if err == unix.ELOOP || names.Reason(err) == names.Conflict { //nolint:errorlint // bare errno
		v.gone = true // exchanged just now
		return nil
	}
	return absent(err)
}

// verify makes sure that the directory still lies where the removal thinks it
// is: a descriptor keeps serving one that was moved out of the root.
func (r *remover) verify(v *removing, rel string) error {
	if r.reads++; len(rel) > verifyPath && r.reads%verifyEach != 0 {
		return nil
	}
	d, err := beneath.OpenDir(r.l, rel)
	if err != nil {
		return At{ID: v.id}.stale(err)
	}
	defer d.Close()
	info, err := beneath.Stat(d.FD)
	if err == nil && info.ID() != v.id {
		err = unix.ESTALE
	}
	return err
}
