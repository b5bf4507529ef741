package watch

import (
	"context"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// A watch's goroutine works by name, not by event. An event only says that a name has changed
// in some way, so one admitted operation inspects the present state of many names. The report
// about a name depends on whether the receiver knows the name, whether it exists, and whether
// it was removed or changed in between.
//
// An inspection is never older than the events that caused it. If it sees a change whose event
// comes later, that event reports the change once more. On a file system that hangs, the
// goroutine may have to go on before an operation has returned. So the operation does not touch
// the watch: it returns its findings, and the goroutine applies them.

// runState belongs to the watch's goroutine. Its first two fields never change.
type runState struct {
	epoch uint64
	dead  <-chan struct{} // closed when the root ends

	base      *watchedDir     // the top of the watch; once unwatched, it has to be watched again
	gathered  []pendingEvent  // to be reported
	lookAgain bool            // the receiver has to list again
	judging   []chan struct{} // of callers of narrow; closed when everything has been judged again
	delay     *time.Timer     // runs while names or events wait to be reported
	retry     *time.Timer     // runs while a part is not watched for want of room; nil: everything is watched
}

const (
	// halfWait is how much longer the first half of a rename waits for the second.
	halfWait = 10 * time.Millisecond
	// retryWait is how long a watch waits when it cannot inspect its root: the speed limit is
	// reached, or the file system hangs.
	retryWait = time.Second
)

func (w *Watch) run() {
	w.delay = time.NewTimer(time.Hour)
	w.delay.Stop()
	why := w.loop()
	w.delay.Stop()
	w.setIncomplete(false)
	w.base.unwatch()
	w.returnSpare()
	if errors.Is(why, errPathGone) {
		w.report()
	}
	w.mu.Lock()
	w.judging = append(w.judging, w.waiters...)
	w.finished = true
	w.cancel(why) // so that the last call of emit returns soon: callers of narrow wait for w.done
	w.mu.Unlock()
	if !errors.Is(context.Cause(w.ctx), errClosed) && !w.muted.Load() {
		w.emit(w.ctx, []Event{{Path: w.path, Kind: Deleted, Time: time.Now().UTC(), Ended: true}})
	}
	w.endJudging()
	w.forget(true)
}

// loop runs until the watch ends, and returns why.
func (w *Watch) loop() error {
	delayed, halfWaited := false, false
	for {
		due := false
		select {
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		case <-w.dead:
			return errRootEnded
		case <-w.wake:
		case <-w.delay.C:
			due, delayed = true, false
		}
		if due && !halfWaited && w.isHalfRename() {
			w.delay.Reset(halfWait)
			delayed, halfWaited = true, true
			continue
		}
		err := w.work(due)
		if errors.Is(err, errPathGone) || errors.Is(err, errRootEnded) {
			return err
		}
		w.endJudging()
		if err != nil {
			w.loseEvents()
			w.delay.Reset(retryWait)
			delayed = true
			continue
		}
		if due || len(w.gathered) >= manyEvents && !w.isHalfRename() {
			halfWaited = false
			w.report()
		}
		if !delayed && w.isWaiting() {
			w.delay.Reset(w.h.o.Coalesce)
			delayed = true
		}
	}
}

// endJudging tells the callers of narrow that everything has been judged again.
func (w *Watch) endJudging() {
	for _, waiter := range w.judging {
		close(waiter)
	}
	w.judging = nil
}

// report hands the gathered events to the receiver.
func (w *Watch) report() {
	if w.mayReport() {
		if events := w.drain(); len(events) > 0 {
			w.handOver(events)
		}
	}
}

// work does the work that is due. After errPathGone and errRootEnded the watch ends. After any
// other error work has to be called again later.
func (w *Watch) work(due bool) (err error) {
	batch, anew, judge := w.takeWork(due)
	if judge {
		// The caller may not see some of these paths any more.
		w.gathered, w.lookAgain = nil, false
	}
	switch {
	case anew || w.base.unwatched:
		err = w.watchAnew()
	case len(batch) > 0:
		err = w.process(batch)
	}
	switch {
	case err == nil:
		w.returnSpare()
		return nil
	case errors.Is(err, errPathGone):
		return err
	}
	switch kind := names.Reason(err); {
	case kind.About() == names.AboutRoot, kind == names.Permission, kind == names.ReadOnly, kind == names.Hidden:
		return errRootEnded
	}
	w.base.unwatch()
	return err
}

// admit runs an operation of the watch. Of the successful operations, only the first one, which
// begins the watch, is recorded.
func admit[T any](ctx context.Context, w *Watch, drop func(T), f func(l *guard.Lease) (T, error)) (T, error) {
	req := guard.Request{Caller: w.c, Op: names.OpWatch, Path: w.path, Epoch: w.epoch, Quiet: w.base != nil}
	return gate.Do(ctx, w.h.reg, req, drop, func(l *guard.Lease) (T, int64, error) {
		v, err := f(l)
		return v, 0, err
	})
}

// watchAnew watches everything again, after events were lost or the root was narrowed. It then
// makes the receiver list again, by an event with Overflow.
func (w *Watch) watchAnew() error {
	old := w.base
	old.unwatch() // its room becomes the watch's spare room, which no other watch can take
	set, err := admit(w.ctx, w, w.drop, func(l *guard.Lease) (*setup, error) { return w.setUp(w.ctx, l, old) })
	switch names.Reason(err) { //nolint:exhaustive // work handles the others
	case names.NotExist, names.NotDir, names.Invalid, names.Escaped:
		return errPathGone // the path leads nowhere, or to a link or another file system
	}
	if err != nil {
		return err
	}
	if set.base.id != old.id || set.base.only != old.only {
		set.base.unwatch()
		return errPathGone
	}
	w.base, w.lookAgain = set.base, true
	w.setIncomplete(set.incomplete)
	return nil
}

// setIncomplete records whether a part is not watched for want of room. Changes of that part are
// not reported, so after HubOptions.RetryRoom the watch tells the receiver to list again, and
// tries to get more room.
func (w *Watch) setIncomplete(isIncomplete bool) {
	if w.retry != nil {
		w.retry.Stop()
		w.retry = nil
	}
	if isIncomplete {
		w.retry = time.AfterFunc(w.h.o.RetryRoom, w.overflow)
	}
}

// process inspects names and gathers the events about them.
func (w *Watch) process(batch []pendingName) error {
	planned := newInspection(w, batch)
	if len(planned.names) == 0 {
		return nil
	}
	x, err := admit(w.ctx, w, (*inspection).drop, func(l *guard.Lease) (*inspection, error) {
		if err := planned.run(w.ctx, l); err != nil {
			planned.drop()
			return nil, err
		}
		return planned, nil
	})
	if err != nil {
		return err
	}
	// Removals first: a new file can have the name of a removed one, or of a directory above.
	for i := range x.names {
		w.applyRemoval(&x.names[i], &x.found[i])
	}
	for i := range x.names {
		w.applyPresence(&x.names[i], &x.found[i])
	}
	x.drop() // directories that were watched and not adopted
	if x.full {
		w.noteNoRoom()
	}
	if x.gone {
		return errPathGone
	}
	return nil
}

// noteNoRoom records that a part of a new directory is not watched for want of room.
func (w *Watch) noteNoRoom() {
	w.lookAgain = true
	if w.retry == nil {
		w.setIncomplete(true)
	}
}

// applyRemoval reports a name as deleted if the receiver knows the name, and if its file was
// removed or is hidden now, or another file has replaced a watched directory of this name. If
// another file has the name now, applyPresence reports that file. If a name does not exist, but
// inotify has not reported its removal yet, applyRemoval does nothing: that event is still to
// come, and has the cookie if the removal was a rename.
func (w *Watch) applyRemoval(p *pendingName, o *observation) {
	d := p.dir
	if d.unwatched || p.name == "" {
		return
	}
	kid := d.kids[p.name]
	isReplaced := kid != nil && o.exists && o.id != kid.id
	if !p.removed && !o.hidden && !isReplaced {
		return
	}
	if kid != nil {
		kid.unwatch()
		delete(d.kids, p.name)
	}
	if d.forget(p.name) {
		if path, ok := d.path(p.name); ok {
			w.gather(Deleted, path, p.time, p.oldCookie)
		}
	}
}

// applyPresence reports a name that exists as created, with its contents, or as
// modified.
func (w *Watch) applyPresence(p *pendingName, o *observation) {
	d := p.dir
	if d.unwatched {
		return
	}
	if p.name == "" {
		if p.changed && d.only == "" {
			w.gather(Modified, w.path, p.time, 0)
		}
		return
	}
	path, ok := d.path(p.name)
	if !ok || !o.exists || o.hidden {
		return
	}
	switch {
	case !d.knows(p.name):
		w.gather(Created, path, p.time, p.newCookie)
		if d.record(p.name) != nil {
			w.noteNoRoom()
		}
	case p.changed || p.newCookie != 0:
		w.gather(Modified, path, p.time, p.newCookie)
	}
	if o.kid == nil {
		return
	}
	d.adopt(p.name, o.kid)
	o.kid = nil
	for _, rel := range o.below {
		if path, err := guard.NewPath(path.Root, path.Rel()+"/"+rel); err == nil {
			w.gather(Created, path, p.time, 0)
		}
	}
	w.lookAgain = w.lookAgain || o.incomplete
}
