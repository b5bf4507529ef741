// Package claims makes operations of one vfs.Tree exclude each other if they would otherwise
// lose each other's updates.
//
// If a file is replaced while a program has it open for writing, the program's later writes are
// lost silently. So a replacement is refused (Locked) while the file is open for writing
// through the same Tree. An opening that begins during a replacement waits for its end and then
// finds the new file. A mount learns of the closing of a descriptor only a little after close(2) has
// returned, because nobody waits for the answer to FUSE_RELEASE: Table.SetPatience is for this
// delay.
//
// Writing in place (WriteRange) replaces nothing. It is claimed, too, so that concurrent
// readers learn that their etag is not final (Info.Writing).
//
// # Promises
//
// Within one Table the exclusion is exact, whatever the timing. Claims are granted in the order
// of the requests. Waiting ends when the root or the context does.
//
// # Not promised
//
// Two Trees do not exclude each other, nor does a Tree exclude processes of the host. A
// replacement may never succeed while programs open the file for writing again and again.
package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Name identifies a name by its directory, so that a file has the same Name through every root,
// link or nesting. Two hard links of a file are two names.
type Name struct {
	dir  rules.Identity
	base string
}

// NameOf is the Name of base in an open directory.
func NameOf(l *guard.Lease, d beneath.Dir, base string) (Name, error) {
	id, err := d.ID(l)
	return Name{id, base}, err
}

// kind is the kind of a claim's key.
type kind uint8

const (
	ofName   kind = iota // to change which file has a name
	ofUpload             // to upload to a name
	ofFile               // to write a file, or to replace it
	ofGrowth             // to make a file longer from its end
)

// key identifies a claimed name or file; a file has a Name without a base.
type key struct {
	Name
	kind kind
}

func fileKey(id rules.Identity) key { return key{Name{dir: id}, ofFile} }

// claim has the holders and the waiters of one key.
type claim struct {
	exclusive bool   // one holder has it alone
	open      int32  // descriptors that are open for writing
	inPlace   int32  // runs of WriteRange; a replacement waits for them by the claim of the name
	begun     uint64 // how many writers have begun since the claim was created
	waiting   []*waiter
}

// waiter is a caller that waits for a claim. try acquires the claim and returns true, or does
// nothing. It is called with Table.mu held.
type waiter struct {
	try     func(*claim) bool
	granted chan struct{} // closed when try has returned true
}

// Table holds the claims of a Tree. The zero value is ready to use.
type Table struct {
	patience atomic.Int64 // nanoseconds; see SetPatience

	mu       sync.Mutex // guards the fields below
	held     map[key]*claim
	names    int // claims of the kind ofName
	replaced recentFiles
}

// getLocked returns the claim of a key. The caller holds mu, and calls settleLocked.
func (t *Table) getLocked(k key) *claim {
	c := t.held[k]
	if c != nil {
		return c
	}
	if t.held == nil {
		t.held = map[key]*claim{}
	}
	c = &claim{}
	t.held[k] = c
	if k.kind == ofName {
		t.names++
	}
	return c
}

// settleLocked grants the claim to the waiters that can have it now. It forgets a claim without
// holders and waiters.
func (t *Table) settleLocked(k key, c *claim) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w *waiter) bool {
		if !w.try(c) {
			return false
		}
		close(w.granted)
		return true
	})
	if c.exclusive || c.open > 0 || c.inPlace > 0 || len(c.waiting) > 0 {
		return
	}
	delete(t.held, k)
	if k.kind == ofName {
		t.names--
	}
}

// acquire waits until try takes the claim.
func (t *Table) acquire(ctx context.Context, l *guard.Lease, k key, try func(*claim) bool) error {
	t.mu.Lock()
	c := t.getLocked(k)
	if try(c) {
		t.settleLocked(k, c)
		t.mu.Unlock()
		return nil
	}
	w := &waiter{try, make(chan struct{})}
	c.waiting = append(c.waiting, w)
	t.mu.Unlock()
	err := l.Life().Wait(ctx, w.granted)
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(c.waiting, w)
	if i < 0 {
		return nil // granted just now
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	t.settleLocked(k, c)
	return err
}

// change applies f to the claim of a key. If there is no claim yet, change creates one.
func (t *Table) change(k key, f func(*claim)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.getLocked(k)
	f(c)
	t.settleLocked(k, c)
}

func tryExclusive(c *claim) bool {
	if c.exclusive {
		return false
	}
	c.exclusive = true
	return true
}

func release(c *claim) { c.exclusive = false }

// LockNames waits until it has locked all names of list, which unlock releases. Every caller locks
// several names in the same order.
func (t *Table) LockNames(ctx context.Context, l *guard.Lease, list ...Name) (unlock func(), err error) {
	slices.SortFunc(list, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.dir.Dev, b.dir.Dev), cmp.Compare(a.dir.Ino, b.dir.Ino),
			cmp.Compare(a.dir.Birth, b.dir.Birth), cmp.Compare(a.base, b.base))
	})
	list = slices.Compact(list)
	taken := 0
	unlock = func() {
		for _, n := range list[:taken] {
			t.change(key{n, ofName}, release)
		}
	}
	for _, n := range list {
		if err := t.acquire(ctx, l, key{n, ofName}, tryExclusive); err != nil {
			unlock()
			return nil, err
		}
		taken++
	}
	return unlock, nil
}

// LockName is LockNames for one name.
func (t *Table) LockName(ctx context.Context, l *guard.Lease, d beneath.Dir, base string) (unlock func(), err error) {
	n, err := NameOf(l, d, base)
	if err != nil {
		return nil, err
	}
	return t.LockNames(ctx, l, n)
}

// LockIfContended is LockName if any name is locked. Otherwise it does nothing, because there
// is nothing to wait for.
func (t *Table) LockIfContended(ctx context.Context, l *guard.Lease, d beneath.Dir, base string) (unlock func(), err error) {
	t.mu.Lock()
	free := t.names == 0
	t.mu.Unlock()
	if free {
		return func() {}, nil // nearly always
	}
	return t.LockName(ctx, l, d, base)
}

// LockGrowth waits until no other operation makes a file longer from its end.
func (t *Table) LockGrowth(ctx context.Context, l *guard.Lease, id rules.Identity) (unlock func(), err error) {
	k := key{Name{dir: id}, ofGrowth}
	if err := t.acquire(ctx, l, k, tryExclusive); err != nil {
		return nil, err
	}
	return func() { t.change(k, release) }, nil
}

// BeginUpload claims a name for an upload, until EndUpload. It reports false if the name is already
// claimed for an upload.
func (t *Table) BeginUpload(n Name) (ok bool) {
	t.change(key{n, ofUpload}, func(c *claim) { ok = tryExclusive(c) })
	return ok
}

// EndUpload ends a BeginUpload.
func (t *Table) EndUpload(n Name) { t.change(key{n, ofUpload}, release) }

// BeginWriting counts a descriptor of a file that is open for writing, until EndWriting. While the
// file is being replaced, BeginWriting waits.
func (t *Table) BeginWriting(ctx context.Context, l *guard.Lease, id rules.Identity) error {
	return t.acquire(ctx, l, fileKey(id), func(c *claim) bool {
		if c.exclusive {
			return false
		}
		c.open++
		c.begun++
		return true
	})
}

// ResumeWriting is BeginWriting for a descriptor that has not been counted for a while. If its
// file was replaced meanwhile, the error is ESTALE.
func (t *Table) ResumeWriting(ctx context.Context, l *guard.Lease, id rules.Identity) error {
	err := t.BeginWriting(ctx, l, id)
	if err == nil && t.wasReplaced(id) {
		t.EndWriting(id)
		err = unix.ESTALE
	}
	return err
}

// EndWriting ends a BeginWriting.
func (t *Table) EndWriting(id rules.Identity) { t.change(fileKey(id), func(c *claim) { c.open-- }) }

// BeginInPlace counts a run of WriteRange, until EndInPlace; since is for IsAlone.
func (t *Table) BeginInPlace(ctx context.Context, l *guard.Lease, id rules.Identity) (since uint64, err error) {
	err = t.acquire(ctx, l, fileKey(id), func(c *claim) bool {
		if c.exclusive {
			return false
		}
		c.inPlace++
		c.begun++
		if since = c.begun; c.open+c.inPlace > 1 {
			since = 0 // this claim was not alone from the beginning
		}
		return true
	})
	return since, err
}

// EndInPlace ends a BeginInPlace.
func (t *Table) EndInPlace(id rules.Identity) { t.change(fileKey(id), func(c *claim) { c.inPlace-- }) }

// IsAlone reports whether a run of WriteRange has been the only writer. since is the result of
// BeginInPlace for the run.
func (t *Table) IsAlone(id rules.Identity, since uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.held[fileKey(id)]
	return c != nil && c.begun == since
}

// IsWritten reports whether a write to the file may be in progress.
func (t *Table) IsWritten(id rules.Identity) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.held[fileKey(id)]
	return c != nil && c.open+c.inPlace > 0
}

// SetPatience says that EndWriting may be called up to d after the descriptor was closed. A
// replacement of a file that is open for writing waits for d before it is refused.
func (t *Table) SetPatience(d time.Duration) { t.patience.Store(int64(d)) }

// AwaitWriters waits while a file is open for writing, at most as long as SetPatience says. If the
// file is still open for writing then, the error is Locked.
func (t *Table) AwaitWriters(ctx context.Context, l *guard.Lease, id rules.Identity) error {
	t.mu.Lock()
	c := t.held[fileKey(id)]
	free := c == nil || c.open == 0
	t.mu.Unlock()
	if free {
		return nil
	}
	patient, cancel := context.WithTimeout(ctx, time.Duration(t.patience.Load()))
	defer cancel()
	err := t.acquire(patient, l, fileKey(id), func(c *claim) bool { return c.open == 0 })
	if names.Reason(err) == names.Timeout && ctx.Err() == nil {
		err = inUse()
	}
	return err
}

// BeginReplacing claims a file that is about to be replaced, until end is called. It
// refuses a file that stays open for writing (see AwaitWriters), and waits for another replacement.
func (t *Table) BeginReplacing(ctx context.Context, l *guard.Lease, id rules.Identity) (end func(replaced bool), err error) {
	if err := t.AwaitWriters(ctx, l, id); err != nil {
		return nil, err
	}
	var refused error
	err = t.acquire(ctx, l, fileKey(id), func(c *claim) bool {
		if !c.exclusive && c.open > 0 {
			refused = inUse()
			return true
		}
		return tryExclusive(c)
	})
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return func(replaced bool) {
		t.change(fileKey(id), func(c *claim) {
			c.exclusive = false
			if replaced {
				t.replaced.add(id)
			}
		})
	}, nil
}

var errInUse = errors.New("the file is open for writing in this session; write it again when it has been closed, or in place with an offset")

func inUse() error { return &guard.Error{Kind: names.Locked, Err: errInUse} }

// wasReplaced reports whether a file was replaced lately.
func (t *Table) wasReplaced(id rules.Identity) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replaced.young[id] || t.replaced.old[id]
}

// maxRecent bounds the memory for replaced files, to about a megabyte. A replaced file that is
// forgotten is treated like any other file without a name.
const maxRecent = 1 << 13

// recentFiles has the files that were added last: at least maxRecent, at most twice as many.
// When young is full it becomes old, and the earlier old is dropped.
type recentFiles struct{ young, old map[rules.Identity]bool }

func (r *recentFiles) add(id rules.Identity) {
	if r.young == nil || len(r.young) >= maxRecent {
		r.young, r.old = map[rules.Identity]bool{}, r.young
	}
	r.young[id] = true
}
