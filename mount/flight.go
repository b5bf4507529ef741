package mount

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// flight is one kernel request being answered. It is opened by the raw layer
// before go-fuse's bridge sees the request and closed after the bridge has put
// the result into its tree, so that "no flight is left" means that every node
// the kernel is about to learn of can be found.
type flight struct {
	mu     sync.Mutex  // guards the fields below
	view   *view       // the root it is about now; nil: none yet
	before []*view     // the roots it was about before, which it still may hand out nodes of
	pinned []*node     // nodes it holds in the table, see view.node
	files  []*vfs.File // kept descriptors it uses, see keptFiles

	dir        *dirHandle // an OPENDIR's result
	lockOwner  uint64     // of FLUSH and RELEASE
	umask      uint32     // of the requesting process, for requests that make names
	unlock     bool       // a RELEASE that ends an flock
	killPriv   bool       // a WRITE that must clear set-id bits
	writeCache bool       // a WRITE of the kernel's page cache, not of a write(2)
	ended      bool

	asked context.Context // go-fuse's, whose Done is an INTERRUPT; nil: not entered
	death chan struct{}   // closed when the caller is dying, or by abandon; nil: nobody has waited
	over  chan struct{}   // closed at the end, if there is a death to wait for
}

// flights are the requests in progress, found by the cancel channel that
// go-fuse gives to the raw layer and, inside the context, to the node: it is
// the one thing both see that is unique among the requests in progress.
type flights struct {
	shards [8]flightShard
}

type flightShard struct {
	mu sync.Mutex
	m  map[<-chan struct{}]*flight
}

func (fs *flights) shard(c <-chan struct{}) *flightShard {
	return &fs.shards[chanHash(c)&7]
}

func (fs *flights) begin(cancel <-chan struct{}) *flight {
	f := &flight{}
	s := fs.shard(cancel)
	s.mu.Lock()
	if s.m == nil {
		s.m = map[<-chan struct{}]*flight{}
	}
	s.m[cancel] = f
	s.mu.Unlock()
	return f
}

func (fs *flights) end(cancel <-chan struct{}, f *flight) {
	s := fs.shard(cancel)
	s.mu.Lock()
	delete(s.m, cancel)
	s.mu.Unlock()
	f.mu.Lock()
	pinned, files := f.pinned, f.files
	f.pinned, f.files = nil, nil
	if f.ended = true; f.over != nil {
		close(f.over)
	}
	f.mu.Unlock()
	for _, file := range files {
		file.Unretain()
	}
	for _, n := range pinned {
		n.view.unpin(n)
	}
}

// of returns the flight a handler runs in, nil when it was not called by the
// kernel.
func (fs *flights) of(ctx context.Context) *flight {
	if f, ok := ctx.(*flight); ok {
		return f
	}
	fc, ok := ctx.(*fuse.Context)
	if !ok {
		return nil
	}
	s := fs.shard(fc.Cancel)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[fc.Cancel]
}

// enter says which root a flight is about, and returns the context for its
// operation. It comes before the gate, so a flight that has passed the gate can be
// found by its root.
func (f *flight) enter(ctx context.Context, v *view) context.Context {
	if f == nil {
		return ctx
	}
	v.m.reached(viewEntry, v.name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view != nil && f.view != v && !slices.Contains(f.before, f.view) {
		f.before = append(f.before, f.view) // READDIRPLUS of a directory with roots in it
	}
	f.view, f.asked = v, ctx
	return f
}

// abandon ends what the flight waits for in another root than v, as if its caller were
// dying: v is not held up by a source that it has nothing to do with.
func (f *flight) abandon(v *view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view != v {
		f.dieLocked()
	}
}

// drain waits until no flight about v is left, or that was about v. Flights that begin
// meanwhile are refused by the gate; they end by themselves.
func (fs *flights) drain(ctx context.Context, v *view) error {
	var waiting []*flight
	for i := range fs.shards {
		s := &fs.shards[i]
		s.mu.Lock()
		for _, f := range s.m {
			f.mu.Lock()
			if f.view == v || slices.Contains(f.before, v) {
				waiting = append(waiting, f)
			}
			f.mu.Unlock()
		}
		s.mu.Unlock()
	}
	wait := 20 * time.Microsecond
	for {
		waiting = fs.still(waiting)
		if len(waiting) == 0 {
			return nil
		}
		for _, f := range waiting {
			f.abandon(v)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, 2*time.Millisecond)
		}
	}
}

// still keeps the flights that have not ended.
func (fs *flights) still(waiting []*flight) []*flight {
	if len(waiting) == 0 {
		return nil
	}
	live := map[*flight]bool{}
	for i := range fs.shards {
		s := &fs.shards[i]
		s.mu.Lock()
		for _, f := range s.m {
			live[f] = true
		}
		s.mu.Unlock()
	}
	kept := waiting[:0]
	for _, f := range waiting {
		if live[f] {
			kept = append(kept, f)
		}
	}
	return kept
}

// A step is a moment of a request that the order of a revocation depends on.
type step int

const (
	viewLookup  step = iota // the registry has named the root's lifetime, whose view is not found yet
	viewEntry               // the request does not count as one about the view yet
	publication             // the gate was passed, and the node is not in the table yet
)

// reached lets a test hold a request that has come to a step.
func (m *Mount) reached(s step, root guard.RootName) {
	if m.opt.atStep != nil {
		m.opt.atStep(s, root)
	}
}
