package vfs

import (
	"sync"

	"github.com/rootsfs/rootsfs/guard"
)

// hubRoom shares out the directories that a hub watches. Each is counted once for
// every watch it is in, because each costs memory there, and time when the watch
// ends, even where the watches of one inode are one to the kernel; and once more for
// every namesEach names in it.
//
// A subject has at most as much as it leaves to all the others: half of what they
// have not taken. So whoever comes finds room, whatever the others have taken, and
// nothing has to be taken back from anybody. The sessions of a subject share its
// room, or each new session would be new room.
type hubRoom struct {
	all int64 // of all subjects together
	one int64 // of one, at most

	mu    sync.Mutex // guards the fields below
	taken int64
	held  map[guard.Subject]int64
}

// take makes room for one directory more. If there is none, limit is how many s may
// watch now. soon is how many of its directories are about to be given back.
func (r *hubRoom) take(s guard.Subject, soon int64) (limit int64, ok bool) {
	s = s.WithoutSession()
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.held[s]
	limit = min(r.one, (r.all-(r.taken-have)+1)/2)
	if have-soon >= limit {
		return limit, false
	}
	r.addLocked(s, 1)
	return limit, true
}

// add is take without a question, or, with n below 0, the giving back.
func (r *hubRoom) add(s guard.Subject, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(s.WithoutSession(), n)
}

func (r *hubRoom) addLocked(s guard.Subject, n int64) {
	r.taken += n
	if r.held[s] += n; r.held[s] == 0 {
		delete(r.held, s)
	}
}
