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

// staged is an opened root whose changes go to a store. Its descriptor, identity and location
// are those of the source. Its directories are unions of the source and the upper directory.
type staged struct {
	*source
	store     *draft.Store
	up        int // the upper directory
	tmp       int // the store's directory for copies in progress
	temps     atomic.Uint64
	ids       identities
	closing   sync.Once
	frozen    frozen
	followers followers
	top       *union // the root's top directory, which all operations share
	// lowered counts the files that the owner's apply dropped from the upper directory. It changes
	// while swaps is held.
	lowered atomic.Uint64

	// mu is held while names or attributes change in the upper directory, but not while a file is
	// copied up, so that the copy of a large file blocks no other operation. A checkpoint or an undo
	// that has to copy contents holds mu meanwhile. mu guards accesses.
	mu       sync.Mutex
	accesses map[rules.Identity]ctimes // by the file's own identity
	// swaps guards tracked. It is held while a name gets another file, until the descriptors
	// are moved. It is locked after mu, or alone.
	swaps   sync.Mutex
	tracked map[rules.Identity][]*trackedFile // by the file's own identity
	// hasEarlierChanges is set if the store had changes of earlier sessions when it was opened.
	hasEarlierChanges bool
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
	if o.Session != "" { // a command of the owner does not replace the patterns of the session
		meta.Patterns = &g.Policy.Patterns
	}
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
	changed, _ := store.Size()
	st.hasEarlierChanges = store.Continued() && changed > 0
	if g.Store == "" && store.Continued() {
		st.beginSession()
	}
	g.Store = store.Dir()
	return st, nil
}

// stage makes src the source of a staged root. On success the result owns src and the store.
func stage(src *source, store *draft.Store) (*staged, error) {
	st := &staged{source: src, store: store, up: store.Upper(), tmp: store.Tmp(), tracked: map[rules.Identity][]*trackedFile{}, accesses: map[rules.Identity]ctimes{}}
	st.top = &union{st: st, up: st.up, low: st.fd}
	up, err := stat(st.up)
	if err != nil {
		return nil, err
	}
	if err := st.probe(); err != nil {
		return nil, err
	}
	low, err := stat(src.fd)
	if err == nil && !store.Continued() {
		// Programs see the attributes of the upper directory's top as those of the root.
		err = copyAttributes(nil, src.fd, &low, changeable(st.up), low.Mode)
	}
	if err != nil {
		return nil, err
	}
	st.ids = identities{upperDev: up.Dev, lowerDev: low.Dev, shown: map[inode]shownID{}, copies: map[uint64]uint64{}}
	st.ids.recordCopy(up.ID(), st.id)
	if err := st.loadFrozen(); err != nil {
		return nil, err
	}
	if err := st.finishUndo(); err != nil {
		return nil, err
	}
	store.OnHide(func(rel string, isHidden bool) {
		st.followers.tell(func(f Follower) { f.Hidden(rel, isHidden) })
	})
	src.stage = st
	return st, nil
}

// probe refuses a store on a file system that cannot rename without replacing: there a copy
// could replace a file that a program has just made.
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
	return guard.StageStatus{Store: st.store.Dir(), Continued: st.hasEarlierChanges, Changed: changed, Bytes: bytes, Damaged: st.store.Damaged(), Checkpoints: len(st.store.Checkpoints())}
}

// Close implements guard.Source.
func (st *staged) Close() error {
	err := st.source.Close()
	st.closing.Do(func() { err = errors.Join(err, st.store.Close()) })
	return err
}
