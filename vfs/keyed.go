package vfs

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// nameKey identifies a name by the directory it lies in, so that a file is
// locked under one key through whatever root, link or nesting it is reached. Two
// hard links of a file are two names, and have two keys.
type nameKey struct {
	dir  guard.Identity
	base string
}

func keyOf(d beneath.Dir, base string) (nameKey, error) {
	info, err := beneath.Stat(d.FD)
	return nameKey{info.ID(), base}, err
}

// keyed excludes holders of the same key from each other.
type keyed struct {
	mu   sync.Mutex // guards the fields below
	held map[nameKey]*keyHeld
}

type keyHeld struct {
	sem   chan struct{} // full while somebody holds the key
	users int
}

// lock waits for the keys of names, until ctx or the root ends. Several are
// taken in one order by everybody.
func (k *keyed) lock(ctx context.Context, l *guard.Lease, keys ...nameKey) (unlock func(), err error) {
	slices.SortFunc(keys, compareKeys)
	keys = slices.Compact(keys)
	for i, key := range keys {
		if err := k.take(ctx, l, key); err != nil {
			k.give(keys[:i])
			return nil, err
		}
	}
	return func() { k.give(keys) }, nil
}

// growing lets a file become longer by n bytes from its end, wherever that is:
// where files can be too large, one such operation on the file at a time, because
// only the source knows the end, and only until another moves it. room, unless
// nil, is asked with the size the file will have.
func (t *Tree) growing(ctx context.Context, l *guard.Lease, fd int, n int64, room func(size int64) error) (unlock func(), err error) {
	if !l.BoundsFiles() && room == nil {
		return func() {}, nil
	}
	now, err := beneath.Stat(fd)
	if err != nil {
		return nil, err
	}
	// A file's identity is no directory's, so the key is nobody else's.
	if unlock, err = t.locks.lock(ctx, l, nameKey{dir: now.ID()}); err != nil {
		return nil, err
	}
	if now, err = beneath.Stat(fd); err == nil {
		err = l.Charge(0, now.Size+n, 0)
	}
	if err == nil && room != nil {
		err = room(now.Size + n)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lockIfHeld takes the key of a name, unless nobody holds any key: then there is
// nothing to wait for.
func (k *keyed) lockIfHeld(ctx context.Context, l *guard.Lease, d beneath.Dir, base string) (unlock func(), err error) {
	k.mu.Lock()
	none := len(k.held) == 0
	k.mu.Unlock()
	if none {
		return func() {}, nil // as nearly always
	}
	key, err := keyOf(d, base)
	if err != nil {
		return nil, err
	}
	return k.lock(ctx, l, key)
}

func compareKeys(a, b nameKey) int {
	switch {
	case a.dir.Dev != b.dir.Dev:
		return order(a.dir.Dev < b.dir.Dev)
	case a.dir.Ino != b.dir.Ino:
		return order(a.dir.Ino < b.dir.Ino)
	case a.dir.Birth != b.dir.Birth:
		return order(a.dir.Birth < b.dir.Birth)
	}
	return strings.Compare(a.base, b.base)
}

func order(less bool) int {
	if less {
		return -1
	}
	return 1
}

func (k *keyed) take(ctx context.Context, l *guard.Lease, key nameKey) error {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[nameKey]*keyHeld{}
	}
	h := k.held[key]
	if h == nil {
		h = &keyHeld{sem: make(chan struct{}, 1)}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	var err error
	select {
	case h.sem <- struct{}{}:
		return nil
	case <-l.Dead():
		err = &guard.Error{Kind: names.Revoked}
	case <-ctx.Done():
		err = ctx.Err()
	}
	k.forget(key, h)
	return err
}

func (k *keyed) give(keys []nameKey) {
	for _, key := range keys {
		k.mu.Lock()
		h := k.held[key]
		k.mu.Unlock()
		<-h.sem
		k.forget(key, h)
	}
}

// forget drops one user of a key, and the key with the last.
func (k *keyed) forget(key nameKey, h *keyHeld) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(k.held, key)
	}
}
