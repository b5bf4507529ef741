package beneath

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// A checkpoint freezes the files of the upper directory: each gets another name in the store's
// directory of objects. Before a frozen file is changed, a copy replaces its object, and the
// file is no longer frozen. So the file keeps its identity and its open descriptors.

// frozen has the files of the upper directory that are objects, too.
type frozen struct {
	// writes is held for reading while an operation checks whether a file is frozen and then
	// changes its contents. (A change of the file's attributes holds staged.mu instead.) writes is
	// held for writing while files are being frozen, and while Stage.Readable has changed a mode.
	writes sync.RWMutex
	// generation grows each time that files may have become frozen; 0: no file was ever frozen.
	generation atomic.Uint64
	mu         sync.RWMutex // guards files
	files      map[inode]*object
	// checkpointMu is held while checkpoints are made and removed. It is locked before staged.mu.
	checkpointMu sync.Mutex
	isSwept      bool // guarded by checkpointMu: see prune
}

// object is the object of a frozen file.
type object struct {
	number uint64
	mu     sync.Mutex // held while a copy replaces the object
	// isApart is set shortly before the object stops being a name of the file.
	isApart atomic.Bool
}

// loadFrozen finds the objects of a store that was opened.
func (st *staged) loadFrozen() error {
	st.frozen.files = map[inode]*object{}
	inodes, err := st.store.ObjectInodes()
	for number, ino := range inodes {
		st.frozen.files[inode{st.ids.upperDev, ino}] = &object{number: number}
		st.frozen.generation.Store(1)
	}
	return err
}

// objectOf returns the object of a file, and nil if the file is not frozen.
func (f *frozen) objectOf(id rules.Identity) *object {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.files[inodeOf(id)]
}

func (f *frozen) add(id inode, o *object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[id] = o
}

func (f *frozen) drop(id inode, o *object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[id] == o {
		delete(f.files, id)
	}
}

// links returns how many names a file has, apart from its object.
func (st *staged) links(info *Info) uint32 {
	if st.frozen.generation.Load() == 0 || info.IsDir() || info.Nlink == 0 {
		return info.Nlink
	}
	if o := st.frozen.objectOf(info.ID()); o != nil && !o.isApart.Load() {
		return info.Nlink - 1
	}
	return info.Nlink
}

// show changes attributes to those that programs see.
func (st *staged) show(info *Info) {
	info.Nlink = st.links(info)
	st.ids.show(info)
}

// stage returns the stage of a kept or named file, nil for any other file.
func (w Changeable) stage() *staged {
	if w.tracked != nil {
		return w.tracked.st
	}
	return w.named
}

// write makes a system call that changes the contents of the file.
func (w Changeable) write(l *guard.Lease, call func() error) error {
	st := w.stage()
	if st == nil {
		return change(l, call)
	}
	for {
		if err := st.thaw(l, w); err != nil {
			return err
		}
		if done, err := st.writeThawed(l, w, call); done {
			return err
		}
	}
}

// writeThawed makes the call, unless the file was frozen meanwhile: then done is false.
func (st *staged) writeThawed(l *guard.Lease, w Changeable, call func() error) (done bool, err error) {
	st.frozen.writes.RLock()
	defer st.frozen.writes.RUnlock()
	if o, err := st.frozenFile(w, true); o != nil || err != nil {
		return err != nil, err
	}
	return true, change(l, call)
}

// frozenFile returns the object of a file that is about to be changed, nil if it is not frozen.
// isLocked says that the caller holds a lock that keeps files from being frozen. Without such a
// lock the answer may be out of date at once.
func (st *staged) frozenFile(w Changeable, isLocked bool) (*object, error) {
	generation := st.frozen.generation.Load()
	if generation == 0 || w.tracked != nil && w.tracked.thawed.Load() == generation {
		return nil, nil //nolint:nilnil // it is not frozen
	}
	info, err := stat(w.FD())
	if err != nil {
		return nil, err
	}
	o := st.frozen.objectOf(info.ID())
	if o == nil && w.tracked != nil && isLocked {
		w.tracked.thawed.Store(generation)
	}
	return o, nil
}

// thaw replaces the object of a frozen file by a copy. If the store has no room for the copy, thaw
// removes checkpoints until there is room, so that no program fails because of checkpoints.
func (st *staged) thaw(l *guard.Lease, w Changeable) error {
	o, err := st.frozenFile(w, false)
	if err != nil || o == nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		info, err := stat(w.FD())
		if err != nil || st.frozen.objectOf(info.ID()) != o {
			return err
		}
		err = st.copyObject(l, o, w.FD(), &info)
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		if dropped, dropErr := st.dropCheckpoint(l); dropErr != nil || !dropped {
			return errors.Join(dropErr, err)
		}
	}
}

// copyObject replaces an object by a copy of the file. The caller holds o.mu.
func (st *staged) copyObject(l *guard.Lease, o *object, fd int, info *Info) (err error) {
	if mode := info.Mode; info.IsRegular() && mode&0o400 == 0 && unix.Geteuid() != 0 {
		// The owner may write to the file, but not read it.
		if err := Chmod(l, changeable(fd), mode&0o7777|0o400); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, Chmod(l, changeable(fd), mode&0o7777)) }()
		now, err := stat(fd)
		if err != nil {
			return err
		}
		*info, info.Mode = now, mode
	}
	for range copyTries {
		c := &upCopy{st: st, l: l, name: st.tempName()}
		err := c.prepare(fd, info, false)
		if err == unix.ESTALE { //nolint:errorlint // bare errno: the file got another name
			c.drop()
			if *info, err = stat(fd); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = st.putObject(l, o, c, inodeOf(info.ID()))
		}
		c.drop()
		return err
	}
	return unix.ESTALE
}

// putObject gives a copy the name of an object. The file is then no longer frozen.
func (st *staged) putObject(l *guard.Lease, o *object, c *upCopy, of inode) error {
	if err := atStep("copied"); err != nil {
		return err
	}
	ref, err := open(st.tmp, c.name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(ref)
	made, err := stat(ref)
	if err != nil {
		return err
	}
	objects := st.store.Objects()
	st.frozen.add(inodeOf(made.ID()), &object{number: o.number})
	o.isApart.Store(true)
	if err := change(l, func() error { return unix.Renameat2(st.tmp, c.name, objects, draft.ObjectName(o.number), 0) }); err != nil {
		o.isApart.Store(false)
		return err
	}
	c.named = false
	st.frozen.drop(of, o)
	return nil
}

// freeze returns the object of a file of the upper directory, and makes it if there is none.
// dir and base are a name of the file. The caller holds staged.mu and frozen.writes.
func (st *staged) freeze(l *guard.Lease, dir int, base string, id inode) (uint64, error) {
	st.frozen.mu.RLock()
	o := st.frozen.files[id]
	st.frozen.mu.RUnlock()
	if o != nil {
		return o.number, nil
	}
	number, err := st.store.NewObject()
	if err != nil {
		return 0, err
	}
	objects := st.store.Objects()
	err = change(l, func() error { return unix.Linkat(dir, base, objects, draft.ObjectName(number), 0) })
	switch err { //nolint:errorlint // bare errnos
	case nil:
		st.frozen.add(id, &object{number: number})
		return number, atStep("freezing")
	case unix.EPERM, unix.EMLINK, unix.EOPNOTSUPP, unix.EXDEV, unix.ENOSYS:
		return number, st.freezeCopy(l, dir, base, number)
	}
	return 0, err
}

// freezeCopy makes an object that is a copy of the file. It is for a file that cannot be linked.
func (st *staged) freezeCopy(l *guard.Lease, dir int, base string, number uint64) error {
	fd, err := open(dir, base, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info, err := stat(fd)
	if err != nil {
		return err
	}
	c := &upCopy{st: st, l: l, name: st.tempName()}
	defer c.drop()
	if err := c.prepare(fd, &info, false); err != nil {
		return err
	}
	return st.nameObject(l, number, c)
}

// dropCheckpoint removes the checkpoint that is to be removed next (see draft.Store.Excess).
// dropped is false if there is no checkpoint.
func (st *staged) dropCheckpoint(l *guard.Lease) (dropped bool, err error) {
	st.frozen.checkpointMu.Lock()
	defer st.frozen.checkpointMu.Unlock()
	number, ok := st.store.Excess(0)
	if !ok {
		return false, nil
	}
	if err := st.store.Forget(number); err != nil {
		return false, err
	}
	return true, st.sweep(l)
}

// sweep removes objects that no checkpoint uses. The caller holds frozen.checkpointMu.
func (st *staged) sweep(l *guard.Lease) error {
	list, err := st.store.Unused()
	if err != nil || len(list) == 0 {
		return err
	}
	unused := map[uint64]bool{}
	for _, n := range list {
		unused[n] = true
	}
	st.frozen.mu.Lock()
	for id, o := range st.frozen.files {
		if unused[o.number] {
			delete(st.frozen.files, id) // before the name is removed: see links
		}
	}
	st.frozen.mu.Unlock()
	objects := st.store.Objects()
	for _, n := range list {
		err = errors.Join(err, IgnoreAbsent(change(l, func() error { return unix.Unlinkat(objects, draft.ObjectName(n), 0) })))
	}
	st.store.Freed()
	return err
}
