// Package hostwatch reports when an absolute path of the host may lead to another file
// than before, or when the file there may have changed. A session watches the paths of its
// roots and of its configuration, `audit follow` the directory of the records, and console
// and top the directory of the sessions.
//
// # Promises
//
// While nothing changes, no code runs. A change is reported within 100 ms. For any number of
// changes, the process wakes up at most a dozen times a second.
//
// Paths without inotify are reported every recheckEvery instead, or less often if a watcher has
// recheckMost paths or more. Examples are paths on file systems that are not known to be local, and
// paths for which no instance or watch is left. Problem says why. The package does not access file
// systems that might hang.
//
// # Not promised
//
// The paths are walked by name, so a report only says when to look. The caller has to
// report mounts, with CheckAll.
package hostwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// Watcher watches paths. Its methods may be called concurrently.
type Watcher struct {
	kick chan struct{} // gets a token when due gets a subscription; wakes run
	done chan struct{}

	mu       sync.Mutex                 // guards all, due and subscription.problem
	all, due map[*subscription]struct{} // due: to be reported

	// These belong to the goroutine of run.
	notify  *fsnotify.Watcher // nil: not open
	broken  chan struct{}     // holds a token when events of notify cannot be read any more
	open    func() (*fsnotify.Watcher, error)
	retryAt time.Time // notify is not opened before this time
	files   fileTable
}

// subscription is one call of Watch.
type subscription struct {
	path    string
	scope   Scope
	changed func() bool
	steps   []*step     // these belong to the goroutine of run
	recheck *time.Timer // of the next report without an event; nil: there was none yet
	problem error       // why the path is reported every recheckEvery; nil: it is not
}

// Scope says which changes of a path are reported.
type Scope int

const (
	// Path reports changes of where the path leads, and of the contents of a file at its
	// end.
	Path Scope = iota
	// Entries reports what Path does, and changes of the names in the directory at its
	// end and of the contents of the files there.
	Entries
)

const (
	// recheckEvery is how often a path that cannot be watched is reported.
	recheckEvery = time.Second
	// recheckMost bounds how many paths that cannot be watched are reported in each recheckEvery,
	// because thousands would cost too much. If the watcher has more paths, the unwatched ones
	// are reported less often.
	recheckMost = 100
	// gather is how long the watcher waits for further events after one: replacing a file
	// causes several. pause bounds how often busy directories wake the process.
	gather = 5 * time.Millisecond
	pause  = 80 * time.Millisecond
)

// New returns a watcher of no paths, which ends with ctx. It takes an inotify instance with
// the first path.
func New(ctx context.Context) *Watcher { return start(ctx, fsnotify.NewWatcher) }

func start(ctx context.Context, open func() (*fsnotify.Watcher, error)) *Watcher {
	w := &Watcher{
		kick: make(chan struct{}, 1), done: make(chan struct{}), open: open,
		all: map[*subscription]struct{}{}, due: map[*subscription]struct{}{},
		files: newFileTable(),
	}
	go w.run(ctx)
	return w
}

// Done returns a channel that is closed when no path is reported any more.
func (w *Watcher) Done() <-chan struct{} { return w.done }

// Watch calls changed when the path is watched, and whenever the path may have changed. If
// changed returns false, because it could not look at the path, Watch calls it again. One
// goroutine makes the calls for all paths.
func (w *Watcher) Watch(path string, scope Scope, changed func() (looked bool)) (stop func()) {
	s := &subscription{path: path, scope: scope, changed: changed}
	w.mu.Lock()
	w.all[s] = struct{}{}
	w.mu.Unlock()
	w.check(s)
	return func() {
		w.mu.Lock()
		delete(w.all, s)
		w.mu.Unlock()
		w.check(s)
	}
}

// Signal watches like Watch, but puts a token into the channel instead of calling a function. The
// channel needs a buffer of one token. While the buffer is full, Signal drops the token.
func (w *Watcher) Signal(path string, scope Scope, changes chan<- struct{}) (stop func()) {
	return w.Watch(path, scope, func() bool {
		select {
		case changes <- struct{}{}:
		default:
		}
		return true
	})
}

// CheckAll reports every path, as when something was mounted or unmounted.
func (w *Watcher) CheckAll() {
	w.mu.Lock()
	all := make([]*subscription, 0, len(w.all))
	for s := range w.all {
		all = append(all, s)
	}
	w.mu.Unlock()
	w.check(all...)
}

// Problem says why paths are reported every recheckEvery. For each reason it gives the number of
// paths, unless the reason holds for all of them. It names no path. It returns "" if inotify watches
// all paths.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for s := range w.all {
		if s.problem != nil {
			count[s.problem.Error()]++
		}
	}
	reasons := make([]string, 0, len(count))
	for why, n := range count {
		if n < len(w.all) {
			why = fmt.Sprintf("%d of %d: %s", n, len(w.all), why)
		}
		reasons = append(reasons, why)
	}
	slices.Sort(reasons)
	return strings.Join(reasons, "; ")
}

// check makes run check the paths of subscriptions.
func (w *Watcher) check(all ...*subscription) {
	if len(all) == 0 {
		return
	}
	w.mu.Lock()
	for _, s := range all {
		w.due[s] = struct{}{}
	}
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.closeNotify()
	for w.await(ctx, nil) {
		deadline := time.NewTimer(gather)
		for w.await(ctx, deadline.C) {
		}
		w.mu.Lock()
		due, recheck := w.due, recheckEvery*time.Duration(1+len(w.all)/recheckMost)
		w.due = map[*subscription]struct{}{}
		w.mu.Unlock()
		for s := range due {
			if ctx.Err() == nil {
				w.checkOne(s, recheck)
			}
		}
		// No goroutine receives events now, so fsnotify's goroutine waits as well.
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// await notes one event. It reports false if ctx ends or deadline has a value first.
func (w *Watcher) await(ctx context.Context, deadline <-chan time.Time) bool {
	var events <-chan fsnotify.Event
	if w.notify != nil {
		events = w.notify.Events
	}
	select {
	case <-ctx.Done():
		return false
	case <-deadline:
		return false
	case <-w.kick:
	case e := <-events:
		w.check(w.files.subscriptionsOf(e, w.forget)...)
	case <-w.broken:
		w.retryAt = time.Now().Add(recheckEvery)
		w.closeNotify()
		w.CheckAll()
	}
	return true
}

// receiveErrors receives the errors of notify until notify is closed, or until an error shows that
// events cannot be read any more: then broken gets a token. receiveErrors has a goroutine of its own,
// because fsnotify may wait for the receiver while fsnotify holds the lock that its Add needs.
func (w *Watcher) receiveErrors(notify *fsnotify.Watcher, broken chan<- struct{}) {
	for err := range notify.Errors {
		// EINVAL: a watch could not be removed, because its file was gone already.
		if !errors.Is(err, fsnotify.ErrEventOverflow) && !errors.Is(err, unix.EINVAL) {
			broken <- struct{}{} // for example, the user's epoll watches are used up
			return
		}
		w.CheckAll()
	}
}

// closeNotify closes the inotify instance, and forgets the files that it watched.
func (w *Watcher) closeNotify() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
	w.notify, w.files = nil, newFileTable()
}

// checkOne watches the files and directories on the path as it leads now, and reports the path. If
// the subscription has ended, checkOne only ends its watches.
func (w *Watcher) checkOne(s *subscription, recheck time.Duration) {
	if s.recheck != nil {
		s.recheck.Stop()
	}
	before := s.steps
	s.steps = nil
	w.mu.Lock()
	_, wanted := w.all[s]
	w.mu.Unlock()
	var problem error
	if wanted {
		problem = w.walk(s)
	}
	for _, step := range before {
		w.release(step)
	}
	if !wanted {
		return
	}
	w.mu.Lock()
	s.problem = problem
	w.mu.Unlock()
	if looked := s.changed(); !looked || problem != nil {
		s.recheck = time.AfterFunc(recheck, func() { w.check(s) })
	}
}
