package vfs

import (
	"context"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// A watch's goroutine turns raw events into reported ones. Raw events carry
// names only, so it looks, within one admitted operation for many of them, at
// what the names are now, and applies what it saw in the order of the events.
// A look is never older than the events it is for; what it saw too early, the
// events still to come repeat. An operation may be answered before it is through
// (on file systems that hang), so it touches nothing of the watch's: it returns
// what it found, and the goroutine applies that.

// watchState is what the goroutine owns. Those before base never change.
type watchState struct {
	epoch uint64
	dead  <-chan struct{} // closed when the root ends
	id    guard.Identity  // of the base
	file  bool            // one name is watched, not a directory

	base  *hubDir // nil: it has to be watched anew
	out   gathering
	delay *time.Timer // runs while something is gathered
	lack  *time.Timer // runs while a part is not watched for want of room; nil: all is
}

const (
	// halfWait is how much longer the first half of a rename waits for the
	// second.
	halfWait = 10 * time.Millisecond
	// retryWait is how long a watch waits when its root cannot be looked at:
	// the speed limit is reached, the file system hangs.
	retryWait = time.Second
)

func (w *Watch) run() {
	w.delay = time.NewTimer(time.Hour)
	w.delay.Stop()
	why := w.loop()
	w.delay.Stop()
	w.lacks(false)
	w.base.kill()
	if why == endGone {
		w.report()
	}
	w.mu.Lock()
	acks := w.narrows
	w.narrows, w.finished = nil, true
	if w.ending != endNot {
		why = w.ending
	}
	w.mu.Unlock()
	if why != endClosed && !w.mute.Load() {
		w.cancel() // it is the last: nobody is to wait for who does not take it
		w.emit(w.ctx, []Event{{Path: w.path, Kind: Deleted, Time: time.Now().UTC(), Ended: true}})
	}
	for _, ack := range acks {
		close(ack)
	}
	w.forget(true)
}

// loop runs until the watch ends, and says why.
func (w *Watch) loop() endReason {
	running, halfWaited := false, false
	arm := func(d time.Duration) {
		if !running {
			w.delay.Reset(d)
			running = true
		}
	}
	for {
		due := false
		select {
		case <-w.stop:
			return endClosed
		case <-w.dead:
			return endRoot
		case <-w.wake:
		case <-w.delay.C:
			due, running = true, false
		}
		x := w.take(due)
		retry, why := w.do(&x)
		if why != endNot {
			w.answerLater(x.acks)
			return why
		}
		for _, ack := range x.acks {
			close(ack)
		}
		if retry {
			w.overflow()
			select {
			case <-w.wake: // the overflow's own
			default:
			}
			running = false
			arm(retryWait)
			continue
		}
		if due && w.out.halved() && !halfWaited {
			halfWaited = true
			arm(halfWait)
			continue
		}
		if due || len(w.out.list) >= hurryOut && !w.out.halved() {
			halfWaited = false
			w.report()
		}
		if x.waiting || !w.out.empty() {
			arm(w.h.o.Coalesce)
		}
	}
}

// answerLater keeps those waiting who asked for a new judgement that ended the
// watch, until its last event has been reported.
func (w *Watch) answerLater(acks []chan struct{}) {
	w.mu.Lock()
	w.narrows = append(w.narrows, acks...)
	w.mu.Unlock()
}

// report hands the gathered events to the receiver.
func (w *Watch) report() {
	select {
	case <-w.stop:
		return
	case <-w.dead:
		return
	default:
	}
	if w.judgePending() {
		return // what was gathered is thrown away there
	}
	if events := w.drain(); len(events) > 0 {
		w.handOver(events)
	}
}

// do does what there is to do. retry means that it could not, and is to be tried
// again later.
func (w *Watch) do(x *work) (retry bool, why endReason) {
	if x.judge {
		// What was gathered may be of what the caller may not see any more.
		w.out = gathering{}
	}
	var err error
	switch {
	case x.judge || x.over || w.base == nil:
		err = w.again()
	case len(x.raw) > 0:
		err = w.process(x.raw)
	}
	switch {
	case err == nil:
		return false, endNot
	case errors.Is(err, errWatchedGone):
		return false, endGone
	}
	switch names.Reason(err) {
	case names.Revoked, names.NoConsent, names.Permission, names.ReadOnly, names.Unavailable, names.Hidden, names.Suspended:
		return false, endRoot
	}
	w.base.kill()
	w.base = nil
	return true, endNot
}

var errWatchedGone = errors.New("the watched path is gone")

func admitWatch[T any](w *Watch, drop func(T), f func(ctx context.Context, l *guard.Lease) (T, error)) (T, error) {
	req := guard.Request{Caller: w.c, Op: names.OpWatch, Path: w.path, Epoch: w.epoch, Quiet: true}
	ctx := w.ctx
	return gate.Do(ctx, w.h.t.reg, req, drop, func(l *guard.Lease) (T, int64, error) {
		v, err := f(ctx, l)
		return v, 0, err
	})
}

// again watches everything anew, after events were lost or the root was
// narrowed, and only then has the receiver look again.
func (w *Watch) again() error {
	file, spare := w.file, w.base.size()
	set, err := admitWatch(w, w.drop, func(ctx context.Context, l *guard.Lease) (*setup, error) {
		return w.setUp(ctx, l, true, file, spare)
	})
	switch names.Reason(err) { //nolint:exhaustive // the others are handled by do
	case names.NotExist, names.NotDir, names.Invalid, names.Escaped:
		return errWatchedGone // a link or another file system is there now
	}
	if err != nil {
		return err
	}
	if set.base.id != w.id || set.base.only != "" != file {
		set.base.kill()
		return errWatchedGone
	}
	w.base.kill()
	w.base, w.out.over = set.base, true
	w.lacks(false)
	w.lacks(set.part)
	return nil
}

// takeRoom makes room for what has appeared.
func (w *Watch) takeRoom() bool {
	_, ok := w.h.room.take(w.c.Subject, 0)
	return ok
}

// lacks notes whether a part is not watched for want of room. Nothing is reported of
// that, so the receiver is to look again every so often, and we with it.
func (w *Watch) lacks(part bool) {
	switch {
	case part && w.lack == nil:
		w.lack = time.AfterFunc(w.h.o.Lacking, w.overflow)
	case !part && w.lack != nil:
		w.lack.Stop()
		w.lack = nil
	}
}

// process looks at what raw events are about and gathers what is to be reported.
func (w *Watch) process(raw []rawEvent) error {
	ask := map[place]asked{}
	order := map[*hubDir][]string{}
	lost := map[place]bool{} // what is watched there will not be any more
	for i := range raw {
		r := &raw[i]
		at := place{r.dir, r.Name}
		if r.Deleted {
			lost[at] = true
		}
		if r.dir.dead || r.Name == "" || r.Self {
			continue
		}
		a, ok := ask[at]
		if !ok {
			order[r.dir] = append(order[r.dir], r.Name)
		}
		kid := r.dir.kids[r.Name]
		a.last, a.have = i, guard.Identity{}
		if kid != nil && !lost[at] {
			a.have = kid.id
		}
		ask[at] = a
	}
	base := w.base
	found, err := admitWatch(w, (*look).drop, func(ctx context.Context, l *guard.Lease) (*look, error) {
		x := &look{at: map[place]*seen{}, watch: w}
		if err := x.run(ctx, l, base, order, ask); err != nil {
			x.drop()
			return nil, err
		}
		return x, nil
	})
	if err != nil {
		return err
	}
	for i := range raw {
		w.apply(&raw[i], i, ask, found)
		if len(w.out.list) >= hurryOut && !w.out.halved() {
			w.report()
		}
	}
	found.drop() // what was watched and not adopted
	if found.full {
		w.out.over = true
		w.lacks(true)
	}
	if found.gone {
		return errWatchedGone
	}
	return nil
}

// apply gathers what one raw event amounts to; i is its place in the batch.
func (w *Watch) apply(r *rawEvent, i int, ask map[place]asked, found *look) {
	d := r.dir
	if d.dead || r.Self {
		return
	}
	if r.Name == "" {
		if r.Changed && d.only == "" {
			w.out.add(Event{Path: w.path, Kind: Modified, Time: r.at}, 0, false)
		}
		return
	}
	p, ok := d.path(r.Name)
	if !ok {
		return
	}
	tree := r.IsDir || d.kids[r.Name] != nil
	gone := func(cookie uint32) {
		if d.knows(r.Name) {
			d.unlearn(r.Name)
			w.out.add(Event{Path: p, Kind: Deleted, Time: r.at}, cookie, tree)
		}
	}
	at := place{d, r.Name}
	s := found.at[at]
	if r.Deleted {
		d.lose(r.Name)
		gone(r.Cookie)
		if ask[at].last != i {
			return
		}
		// Something is there all the same: an exchange of two names is told
		// as one rename and then the other, so the last event of the one is
		// that it disappeared. Or it has come since; its event is then old.
	}
	switch {
	case s == nil || !s.exists:
		return // it has gone again, and an event will say so
	case s.hidden:
		gone(0)
		return
	}
	w.appeared(r, p, s)
	if s.kid != nil && ask[at].last == i {
		w.enterInto(r, p, s)
	}
}

// appeared gathers the event of a name that is there.
func (w *Watch) appeared(r *rawEvent, p guard.Path, s *seen) {
	e := Event{Path: p, Kind: Modified, Time: r.at}
	cookie := r.Cookie
	switch known := r.dir.knows(r.Name); {
	case !known:
		e.Kind = Created
		if !r.dir.learn(r.Name, w.takeRoom) {
			w.out.over = true
			w.lacks(true)
		}
	case r.Created && !r.Moved:
		return // the look at its directory has shown it already
	}
	if r.Deleted {
		cookie = 0
	}
	w.out.add(e, cookie, false)
}

// enterInto adopts a directory that has appeared and gathers what is in it.
func (w *Watch) enterInto(r *rawEvent, p guard.Path, s *seen) {
	r.dir.lose(r.Name)
	r.dir.adopt(r.Name, s.kid)
	s.kid = nil
	for _, rel := range s.paths {
		if below, err := guard.NewPath(p.Root, p.Rel()+"/"+rel); err == nil {
			w.out.add(Event{Path: below, Kind: Created, Time: r.at}, 0, false)
		}
	}
	w.out.over = w.out.over || s.over
}
