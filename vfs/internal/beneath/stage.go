package beneath

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// staged is an opened root whose changes are kept apart. Its descriptor, identity and location
// are those of the source; what is seen in it is the union of both.
type staged struct {
	*source
	store   *draft.Store
	up      int // the upper directory
	tmp     int // the store's directory for copies in progress
	temps   atomic.Uint64
	ids     identities
	closing sync.Once

	// mu is held while names change in the upper directory, and never while contents are
	// copied: a copy of a large file keeps nobody else waiting.
	mu sync.Mutex
	// swaps guards tracked, and is held from a copy's rename to the move of the descriptors.
	// It is taken with mu held, or alone.
	swaps   sync.Mutex
	tracked map[rules.Identity][]*lowerFile
}

// Stage implements guard.Opener.
func (o Opener) Stage(src guard.Source, g *guard.Grant) (guard.Source, error) {
	if o.Stages == "" && g.Store == "" {
		return nil, &guard.Error{Kind: names.Invalid, Err: errors.New("nothing can be staged here: use :rw")}
	}
	lower, ok := src.(*source)
	if !ok {
		return nil, &guard.Error{Kind: names.Internal, Err: errors.New("the root is staged already")}
	}
	meta := draft.Meta{Root: g.Root, Path: src.Resolved(), ID: src.ID(), Subject: g.Subject, Session: o.Session}
	var store *draft.Store
	var err error
	if g.Store != "" {
		store, err = draft.OpenIn(g.Store, meta)
	} else {
		store, err = draft.OpenFor(o.Stages, meta)
	}
	if err != nil {
		return nil, err
	}
	store.Limit(g.Policy.Limits.MaxStage)
	st, err := stage(lower, store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	g.Store = store.Dir()
	return st, nil
}

// stage makes src the source of a staged root. On success the result owns src and the store.
func stage(src *source, store *draft.Store) (*staged, error) {
	st := &staged{source: src, store: store, up: store.Upper(), tmp: store.Tmp(), tracked: map[rules.Identity][]*lowerFile{}}
	up, err := stat(st.up)
	if err != nil {
		return nil, err
	}
	if err := st.probe(); err != nil {
		return nil, err
	}
	low, err := stat(src.fd)
	if err == nil && !store.Continued() {
		// Programs see the top of the upper directory as the root itself.
		err = copyAttributes(nil, src.fd, &low, changeable(st.up), low.Mode)
	}
	if err != nil {
		return nil, err
	}
	st.ids = identities{upperDev: up.Dev, lowerDev: low.Dev, upper: map[uint64]copied{}, lower: map[uint64]uint64{}}
	st.ids.copy(up.ID(), st.id)
	src.stage = st
	return st, nil
}

// probe refuses a store on a file system that cannot rename without replacing: a copy could
// then take the place of what a program has just made.
func (st *staged) probe() error {
	const from, to = "probe", "probed"
	err := change(nil, func() error { return unix.Mkdirat(st.tmp, from, 0o700) })
	if err != nil {
		return err
	}
	last := from
	if err = change(nil, func() error { return unix.Renameat2(st.tmp, from, st.tmp, to, unix.RENAME_NOREPLACE) }); err == nil {
		last = to
	}
	if rerr := change(nil, func() error { return unix.Unlinkat(st.tmp, last, unix.AT_REMOVEDIR) }); err == nil {
		err = rerr
	}
	if err == unix.EINVAL { //nolint:errorlint // bare errno
		err = &guard.Error{Kind: names.Invalid, Err: errors.New("changes cannot be kept on the file system of the state directory: set XDG_STATE_HOME to a local disk, or use :rw")}
	}
	return err
}

// Staged implements guard.Staged.
func (st *staged) Staged() guard.StageStatus {
	changed, bytes := st.store.Size()
	return guard.StageStatus{Store: st.store.Dir(), Continued: st.store.Continued(), Changed: changed, Bytes: bytes, Damaged: st.store.Damaged()}
}

// Close implements guard.Source.
func (st *staged) Close() error {
	err := st.source.Close()
	st.closing.Do(func() { err = errors.Join(err, st.store.Close()) })
	return err
}

// lowerFile is a descriptor of the source's file that is kept. When the file is copied up, the
// descriptor is moved to the copy.
type lowerFile struct {
	st    *staged
	fd    int
	rel   string // where the file was seen
	id    rules.Identity
	moved atomic.Bool // to the copy
	gone  atomic.Bool // the file has lost the name in the stage
}

// track tracks a descriptor of the source's file that was seen at a path. If the file was
// copied meanwhile the descriptor is moved at once. The error is ESTALE, and fd is closed, if
// the path does not show the file any more.
func (st *staged) track(fd int, rel string) (Handle, error) {
	info, err := stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, err
	}
	f := &lowerFile{st: st, fd: fd, rel: rel, id: info.ID()}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	now, err := st.openUpper(rel)
	if err == unix.ENOENT && !st.isHidden(rel) { //nolint:errorlint // bare errno
		st.tracked[f.id] = append(st.tracked[f.id], f)
		return Handle{fd: fd, lower: f}, nil
	}
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, unix.ESTALE
	}
	defer unix.Close(now)
	up, err := stat(now)
	if err == nil && st.ids.id(up.ID()).Ino != f.id.Ino {
		err = unix.ESTALE
	}
	if err == nil {
		err = f.moveTo(now)
	}
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, err
	}
	return Handle{fd: fd}, nil
}

// swap moves the descriptors of a file of the source to its copy, of which fd is a reference.
// One for which the copy cannot be opened becomes a reference: a program then gets an error, and
// not contents that nobody else sees. The caller holds st.swaps.
func (st *staged) swap(id rules.Identity, fd int) {
	for _, f := range st.tracked[id] {
		if f.moveTo(fd) != nil {
			_ = unix.Dup3(fd, f.fd, unix.O_CLOEXEC)
		}
		f.moved.Store(true)
	}
	delete(st.tracked, id)
}

// openUpper opens what the upper directory has at a path, without a system call if that cannot
// be anything.
func (st *staged) openUpper(rel string) (int, error) {
	parent, _ := splitRel(rel)
	if upper, _ := st.store.Locate(rel); upper != parent && upper != rel {
		return -1, unix.ENOENT
	}
	return openLong(st.up, rel, unix.O_PATH|unix.O_NOFOLLOW)
}

// loseName notes that the source's file is not seen at a path any more.
func (st *staged) loseName(id rules.Identity, rel string) {
	st.swaps.Lock()
	defer st.swaps.Unlock()
	for _, f := range st.tracked[id] {
		if f.rel == rel {
			f.gone.Store(true)
		}
	}
}

// moveTo makes the descriptor refer to another file, of which to is a reference.
func (f *lowerFile) moveTo(to int) error {
	flags, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_PATH != 0 {
		return unix.Dup3(to, f.fd, unix.O_CLOEXEC)
	}
	fd, err := Reopen(to, flags&^unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, f.fd, unix.O_CLOEXEC)
}

// untrack ends the tracking. It waits for a swap that is under way, so the number of the
// descriptor, once closed, is nobody's whom a swap could hit.
func (f *lowerFile) untrack() {
	st := f.st
	st.swaps.Lock()
	defer st.swaps.Unlock()
	list := st.tracked[f.id]
	for i, other := range list {
		if other == f {
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(st.tracked, f.id)
		return
	}
	st.tracked[f.id] = list
}

// toUpper copies the file up, so that the descriptor refers to the copy. A file that has lost
// its name gets a copy without a name.
func (f *lowerFile) toUpper(l *guard.Lease) error {
	if f.moved.Load() {
		return nil
	}
	fd, lower, err := f.st.open(f.rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err == nil {
		info, serr := stat(fd)
		_ = unix.Close(fd)
		if serr == nil && lower && info.ID() == f.id {
			if err := f.st.mayChange(f.rel, false); err != nil {
				return err
			}
			if err := f.st.copyUp(l, f.rel, false); err != nil {
				return err
			}
		}
	}
	if f.moved.Load() {
		return nil
	}
	return f.copyNameless(l)
}

func (f *lowerFile) copyNameless(l *guard.Lease) error {
	st := f.st
	info, err := stat(f.fd)
	if err != nil {
		return err
	}
	if !info.IsRegular() {
		return unix.EROFS
	}
	c := &upCopy{st: st, l: l, name: st.tempName()}
	defer c.drop()
	if err := c.prepareFile(f.fd, &info, false); err != nil {
		return err
	}
	fd, err := open(st.tmp, c.name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := stat(fd)
	if err != nil {
		return err
	}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	if f.moved.Load() {
		return nil
	}
	st.ids.copy(up.ID(), f.id)
	st.swap(f.id, fd)
	if !f.moved.Load() {
		return unix.EIO
	}
	return nil
}
