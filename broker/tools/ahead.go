package tools

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard"
)

// maxAhead is how many directories a walk lists before it comes to them. What they
// hold is at most so many pages; where an answer ends before, it was in vain.
const maxAhead = 4

// ahead lists directories that a walk is about to enter while it does something
// else: each is listed once all the same, by the same operation, as by the walk.
type ahead struct {
	c       *call // with a context of its own
	cancel  context.CancelFunc
	todo    chan *future
	workers int
	running sync.WaitGroup
	waiting int     // futures that nobody has taken
	passing *future // of the name that next returned
}

// future is a listing that is being made; who has received from done may read the
// rest.
type future struct {
	path  guard.Path
	begun atomic.Bool // somebody makes it
	done  chan struct{}
	list  []entry
	next  string
	err   error
}

func (a *ahead) begin(c *call) {
	own := *c
	own.ctx, a.cancel = context.WithCancel(c.ctx)
	a.c, a.todo = &own, make(chan *future, maxAhead)
}

// list begins to list a directory.
func (a *ahead) list(e *entry) {
	e.ahead = &future{path: e.path, done: make(chan struct{})}
	a.waiting++
	if a.workers < min(maxAhead, runtime.GOMAXPROCS(0)) {
		a.workers++
		a.running.Go(func() {
			for f := range a.todo {
				f.make(a.c)
			}
		})
	}
	select {
	case a.todo <- e.ahead:
	default: // the workers are behind: who takes it makes it
	}
}

// make makes the listing, unless somebody does already.
func (f *future) make(c *call) {
	if f.begun.Swap(true) {
		return
	}
	defer close(f.done)
	defer func() {
		if p := recover(); p != nil {
			f.err = c.s.bug("listing ahead", p)
		}
	}()
	if f.err = c.ctx.Err(); f.err == nil {
		f.list, f.next, f.err = c.page(f.path, "", false, false)
	}
}

// take waits for the listing of a directory, or makes it if nobody has begun to, as
// on a machine that has much else to do; nil: there is none.
func (a *ahead) take(e *entry) *future {
	f := e.ahead
	if f == nil {
		return nil
	}
	if a.passing == f {
		a.passing = nil
	}
	a.waiting--
	f.make(a.c)
	<-f.done
	return f
}

// pass forgets the listing of a directory that was not entered.
func (a *ahead) pass() {
	if a.passing != nil {
		a.passing = nil
		a.waiting--
	}
}

// lookAhead begins to list the directories that come next but one: the next is the
// walk's own to list, unless it was one of these before.
func (w *walk) lookAhead() {
	below := w.below()
	for i := len(w.levels) - 1; i >= 0 && w.ahead.waiting < maxAhead; i-- {
		v := &w.levels[i]
		for ; v.asked < len(v.list) && w.ahead.waiting < maxAhead; v.asked++ {
			e := &v.list[v.asked]
			if e.isDir() && below && len(w.rel(e)) <= w.longest && !w.leaves(i, e) {
				w.ahead.list(e)
			}
		}
		below = true // what is above was entered
	}
}

// close ends what is still listed ahead.
func (w *walk) close() {
	w.ahead.cancel()
	close(w.ahead.todo)
	w.ahead.running.Wait()
}
