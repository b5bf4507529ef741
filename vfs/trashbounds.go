package vfs

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// How a trash is kept within its bounds.

// bins are what is known of the trashes, by the identity of their directories.
type bins struct {
	mu   sync.Mutex // guards the fields below and what they hold
	open map[guard.Identity]*binState
	// written are files that were open for writing, or had another name, when they
	// were kept: whoever has one open may go on writing, see File.judgeName.
	written map[guard.Identity]binEntry
}

type binState struct {
	bytes  int64
	looked time.Time // zero: never
	busy   bool
}

// binEntry is an entry of the trash with the identity bin.
type binEntry struct {
	bin  guard.Identity
	name string
}

// maxWritten bounds the memory for them, to about a megabyte.
const maxWritten = 4096

// noteWritten remembers a file that may still be written.
func (s *bins) noteWritten(id guard.Identity, e binEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written = map[guard.Identity]binEntry{}
	}
	if len(s.written) < maxWritten {
		s.written[id] = e
	}
}

// mayBeWritten reports whether a file is in a trash, and remembered.
func (s *bins) mayBeWritten(id guard.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.written[id]
	return ok
}

// forget drops an entry that has left its trash.
func (s *bins) forget(e binEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.written, func(_ guard.Identity, have binEntry) bool { return have == e })
}

// usage is what a file takes of the disk, in bytes: a file is no larger for the holes
// in it. Remote sources may not tell, and are counted by length.
func (b *bin) usage(info *Info) int64 {
	if b.l.Remote() {
		return info.Size
	}
	return min(info.Size, int64(info.Blocks)*512)
}

// lookEvery is how often a trash in use is searched for what is too old, and for what
// has grown since it was kept.
const lookEvery = time.Minute

// added counts an entry, and removes what has become too much or too old.
func (b *bin) added(size int64) {
	s := &b.t.bins
	s.mu.Lock()
	if s.open == nil {
		s.open = map[guard.Identity]*binState{}
	}
	st := s.open[b.id]
	if st == nil {
		st = &binState{}
		s.open[b.id] = st
	}
	st.bytes += size + entryCost
	due := !st.busy && (st.bytes > b.size || time.Since(st.looked) > lookEvery)
	st.busy = st.busy || due
	s.mu.Unlock()
	if !due {
		return
	}
	left, err := b.prune()
	s.mu.Lock()
	if err == nil {
		st.bytes, st.looked = left, time.Now()
	}
	st.busy = false
	s.mu.Unlock()
}

// largest is what a file may take of the disk to be kept: what is left of it when it
// has driven out everything else, see prune.
func (b *bin) largest() int64 { return b.size - b.size/10 - entryCost }

// prune removes the oldest entries until nothing is too old, and what is left is
// within the bound: then a tenth below it, so that this is not done for each
// entry. What has become too large to be kept goes first, and alone.
// It returns what is left, in bytes.
func (b *bin) prune() (left int64, err error) {
	ids, err := b.ids()
	if err != nil {
		return 0, err
	}
	sizes := make([]int64, len(ids))
	for i, id := range ids {
		sizes[i] = entryCost
		if info, err := beneath.StatIn(b.d, id); err == nil {
			size := b.usage(&info)
			if size > b.largest() {
				b.drop(id)
				sizes[i] = 0
				continue
			}
			sizes[i] += size
		}
		left += sizes[i]
	}
	most := b.size
	if left > most {
		most -= most / 10
	}
	oldest := time.Now().Add(-b.age)
	for i, id := range ids {
		if at, _ := stampOf(id); left <= most && !at.Before(oldest) {
			break
		}
		b.drop(id)
		left -= sizes[i]
	}
	return left, nil
}

// ids are the names of the entries, the oldest first. A note without a file was
// left by a daemon that died, or is being made: it is an entry that is empty.
func (b *bin) ids() ([]string, error) {
	seen := map[string]bool{}
	err := beneath.EachName(b.d, func(e *Entry) bool {
		id := strings.TrimSuffix(e.Name, noteSuffix)
		if _, ok := stampOf(id); ok {
			seen[id] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(seen)), err
}

// stampOf is when an entry was made; ok is false for a name that is none of ours.
func stampOf(id string) (at time.Time, ok bool) {
	if len(id) != len(stampFormat)+9 || id[len(stampFormat)] != '-' {
		return time.Time{}, false
	}
	at, err := time.Parse(stampFormat, id[:len(stampFormat)])
	return at, err == nil
}
