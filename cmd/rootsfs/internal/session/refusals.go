package session

import (
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

// refusals remembers, for `rootsfs allow --last`, the last refusal that a grant would have
// avoided, and the grants that the owner may want again.
type refusals struct {
	mu      sync.Mutex                   // guards the fields below
	grants  map[guard.RootName]pastGrant // the last one of each name, whether it has ended or not
	last    *control.Refusal             // nil: there was none
	request guard.Request                // the request of the last refusal
}

// noteGrants remembers grants that were made at a moment.
func (f *refusals) noteGrants(list []guard.Grant, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grants == nil {
		f.grants = map[guard.RootName]pastGrant{}
	}
	for _, g := range list {
		f.grants[g.Root] = pastGrant{g, at}
	}
}

// grant returns the last grant of a name.
func (f *refusals) grant(name guard.RootName) (g pastGrant, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok = f.grants[name]
	return g, ok
}

func (f *refusals) setLast(r *control.Refusal, request guard.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.request = r, request
}

func (f *refusals) lastRefusal() (*control.Refusal, guard.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.request
}
