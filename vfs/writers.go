package vfs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// A file that is replaced as a whole (Replace, uploads, RenamePath and CopyFile
// over it) while somebody has it open for writing would take what is written
// afterwards with it, without anybody noticing. So a replacement is refused
// (Locked) while the file is open for writing through the same Tree; and an
// opening that begins during a replacement waits for its end, and then finds the
// new file. Within one Tree that is exact, whatever the timing. A mount hears of
// the end of a descriptor a little after close(2) has returned (nobody waits for the
// answer to FUSE_RELEASE); AwaitCloses is for that.
//
// Mount level Max is not told who opens files. The descriptors it keeps are lent
// (File.Lend): they count only while an operation runs on them, and take no more
// writes (ESTALE) when their file has been replaced. What a program has stored
// through a mapping there and the kernel has not yet written back is refused then,
// too: msync(2) and fsync(2) tell of it.
//
// Writing in place (WriteRange) replaces nothing and is not concerned, but for the
// etags of those who read meanwhile.

// writers knows the files that are open for writing.
type writers struct {
	patience atomic.Int64 // nanoseconds; see AwaitCloses

	mu    sync.Mutex // guards the fields below
	files map[guard.Identity]*beingWritten
	// gone are the latest files that were replaced, for lent descriptors of
	// them; next is the oldest of order, once there are maxGone.
	gone  map[guard.Identity]bool
	order []guard.Identity
	next  int
}

type beingWritten struct {
	open    int
	inPlace int           // runs of WriteRange, for which a replacement waits by the name
	entered uint64        // how often somebody came while there was a writer
	left    chan struct{} // not nil while somebody waits for open to be 0, closed then
	// replacing is not nil while the file is being replaced, and closed
	// afterwards.
	replacing chan struct{}
}

// maxGone bounds the memory for files that were replaced, to about a megabyte.
// One that is forgotten is then a file without a name like any other.
const maxGone = 1 << 13

var errInUse = errors.New("the file is open for writing in this session; write it again when it has been closed, or in place with an offset")

func (w *writers) fileLocked(id guard.Identity) *beingWritten {
	f := w.files[id]
	if f == nil {
		if w.files == nil {
			w.files = map[guard.Identity]*beingWritten{}
		}
		f = &beingWritten{}
		w.files[id] = f
	}
	return f
}

func (w *writers) tidyLocked(id guard.Identity) {
	if f := w.files[id]; f != nil && f.open == 0 && f.inPlace == 0 && f.replacing == nil {
		delete(w.files, id)
	}
}

// enter counts one more writer of a file. While that is being replaced it waits,
// until ctx or the root ends.
func (w *writers) enter(ctx context.Context, l *guard.Lease, id guard.Identity) error {
	return w.settled(ctx, l, id, func(f *beingWritten) error {
		f.open++
		f.entered++
		return nil
	})
}

// begin counts a run of WriteRange until end; since is for alone.
func (w *writers) begin(ctx context.Context, l *guard.Lease, fd int) (id guard.Identity, since uint64, err error) {
	info, err := beneath.Stat(fd)
	if err != nil {
		return id, 0, err
	}
	id = info.ID()
	err = w.settled(ctx, l, id, func(f *beingWritten) error {
		f.inPlace++
		f.entered++
		if since = f.entered; f.open+f.inPlace > 1 {
			since = 0 // not alone from the first
		}
		return nil
	})
	return id, since, err
}

func (w *writers) end(id guard.Identity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fileLocked(id).inPlace--
	w.tidyLocked(id)
}

// writing reports whether anybody may be in the middle of a write to the file.
func (w *writers) writing(id guard.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.files[id]
	return f != nil && f.open+f.inPlace > 0
}

// alone reports whether the writer that began then has been the only one.
func (w *writers) alone(id guard.Identity, since uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fileLocked(id).entered == since
}

func (w *writers) leave(id guard.Identity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fileLocked(id)
	if f.open--; f.open == 0 && f.left != nil {
		close(f.left)
		f.left = nil
	}
	w.tidyLocked(id)
}

// busy refuses a file that is open for writing, and stays so for a moment.
func (w *writers) busy(ctx context.Context, l *guard.Lease, id guard.Identity) error {
	var late <-chan time.Time
	for {
		w.mu.Lock()
		f := w.files[id]
		if f == nil || f.open == 0 {
			w.mu.Unlock()
			return nil
		}
		if f.left == nil {
			f.left = make(chan struct{})
		}
		left := f.left
		w.mu.Unlock()
		if late == nil {
			timer := time.NewTimer(time.Duration(w.patience.Load()))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-left:
		case <-late:
			return inUse()
		case <-l.Dead():
			return &guard.Error{Kind: names.Revoked}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replace claims a file that is about to be replaced; done ends that. It refuses
// one that is open for writing.
func (w *writers) replace(ctx context.Context, l *guard.Lease, id guard.Identity) (done func(replaced bool), err error) {
	if err := w.busy(ctx, l, id); err != nil {
		return nil, err
	}
	over := make(chan struct{})
	err = w.settled(ctx, l, id, func(f *beingWritten) error {
		if f.open > 0 {
			return inUse()
		}
		f.replacing = over
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func(replaced bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.files[id].replacing = nil
		w.tidyLocked(id)
		if replaced {
			w.rememberLocked(id)
		}
		close(over)
	}, nil
}

// AwaitCloses says that descriptors may have been closed up to d before their File
// is: what would replace a file that is open for writing waits that long before it
// is refused. 0, the default, is for front ends that close at once.
func (t *Tree) AwaitCloses(d time.Duration) { t.writers.patience.Store(int64(d)) }

func inUse() error { return &guard.Error{Kind: names.Locked, Err: errInUse} }

// settled runs f, holding mu, when nobody is replacing the file.
func (w *writers) settled(ctx context.Context, l *guard.Lease, id guard.Identity, f func(*beingWritten) error) error {
	for {
		w.mu.Lock()
		file := w.fileLocked(id)
		over := file.replacing
		if over == nil {
			err := f(file)
			w.tidyLocked(id)
			w.mu.Unlock()
			return err
		}
		w.mu.Unlock()
		if err := l.Wait(ctx, over); err != nil {
			return err
		}
	}
}

func (w *writers) rememberLocked(id guard.Identity) {
	if w.gone == nil {
		w.gone = map[guard.Identity]bool{}
	}
	if w.gone[id] {
		return
	}
	w.gone[id] = true
	if len(w.order) < maxGone {
		w.order = append(w.order, id)
		return
	}
	delete(w.gone, w.order[w.next])
	w.order[w.next] = id
	w.next = (w.next + 1) % maxGone
}

// replaced reports whether a file was replaced lately.
func (w *writers) replaced(id guard.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[id]
}

// beginWriting counts a descriptor that was opened for writing by a name. If the
// name has meanwhile come to hold another file it is ESTALE.
func (t *Tree) beginWriting(ctx context.Context, l *guard.Lease, d beneath.Dir, base string, id guard.Identity) error {
	// A replacement that resolved the name before this file got that name does not know
	// this opener; it holds the name's key. The opener counts as a writer only once it
	// holds the key itself: otherwise it would wait for the replacement, and the
	// replacement for it.
	unlock, err := t.locks.lockIfHeld(ctx, l, d, base)
	if err != nil {
		return err
	}
	defer unlock()
	return t.countWriting(ctx, l, d, base, id)
}

// countWriting is beginWriting by one who holds the name's key, or need not.
func (t *Tree) countWriting(ctx context.Context, l *guard.Lease, d beneath.Dir, base string, id guard.Identity) error {
	if err := t.writers.enter(ctx, l, id); err != nil {
		return err
	}
	now, err := beneath.StatIn(d, base)
	if err == nil && now.ID() != id || err == unix.ENOENT { //nolint:errorlint // bare errno
		err = unix.ESTALE
	}
	if err != nil {
		t.writers.leave(id)
	}
	return err
}

// Lend says that the file's holder keeps it for programs of which it hears only
// when they read and write (mount level Max): between operations it does not
// count as open for writing. To be called before the file is used.
func (f *File) Lend() {
	f.lent = f.Writable()
	if f.counted {
		f.counted = false
		f.t.writers.leave(f.at.ID)
	}
}

// lend counts a lent file while an operation changes it.
func (f *File) lend(ctx context.Context, l *guard.Lease) (done func(), err error) {
	if !f.lent {
		return func() {}, nil
	}
	if err := f.t.writers.enter(ctx, l, f.at.ID); err != nil {
		return nil, err
	}
	if f.t.writers.replaced(f.at.ID) {
		f.t.writers.leave(f.at.ID)
		return nil, unix.ESTALE
	}
	return func() { f.t.writers.leave(f.at.ID) }, nil
}
