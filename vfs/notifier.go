package vfs

import (
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// notifier is an inotify instance that several watchers of a tree share. The instance is
// opened with the first watch and closed when the last watcher leaves. mu is held during
// inotify_add_watch(2), which a remote file system can delay without limit: remote roots
// use a notifier of their own.
type notifier struct {
	telling sync.Mutex // held while events are handed over; taken before mu

	mu    sync.Mutex // guards the fields below, and what each watcher watches
	users []*SourceWatcher
	ino   *beneath.Inotify // nil: none yet
	done  chan struct{}    // closed when ino is not read any more
}

func (n *notifier) join(w *SourceWatcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users = append(n.users, w)
}

// leave ends what w watches, and the instance if nobody else has joined.
func (n *notifier) leave(w *SourceWatcher) {
	n.mu.Lock()
	n.users = slices.DeleteFunc(n.users, func(u *SourceWatcher) bool { return u == w })
	wds := w.dirs
	w.dirs = map[int32][]any{}
	w.count.Store(0)
	ino, done := n.ino, n.done
	if len(n.users) > 0 {
		ino = nil
		for wd := range wds {
			n.removeLocked(wd)
		}
	} else {
		n.ino = nil
	}
	n.mu.Unlock()
	if ino != nil {
		_ = ino.Close()
		<-done
	}
	n.telling.Lock() // what w is being told has been told then
	//lint:ignore SA2001 it is waited for
	n.telling.Unlock()
}

// instanceLocked returns the instance, for one who has joined.
func (n *notifier) instanceLocked(w *SourceWatcher) (*beneath.Inotify, error) {
	if !slices.Contains(n.users, w) {
		return nil, errors.New("nothing is watched any more")
	}
	if n.ino != nil {
		return n.ino, nil
	}
	ino, err := beneath.NewInotify()
	if errors.Is(err, unix.EMFILE) {
		err = ErrNoInstances
	}
	if err != nil {
		return nil, err
	}
	n.ino, n.done = ino, make(chan struct{})
	go n.run(ino, n.done)
	return ino, nil
}

// removeLocked ends the kernel's watch if nobody is left who watches the directory.
func (n *notifier) removeLocked(wd int32) {
	for _, u := range n.users {
		if _, ok := u.dirs[wd]; ok {
			return
		}
	}
	n.ino.Remove(wd)
}

// gather is a pause between readings of events. The changes that come through
// the tree itself are reported too, several events for each file, and being
// woken for every one took a quarter of a small-file program's time from it on
// two processors. The kernel's queue holds what a hundred times this long brings.
const gather = 5 * time.Millisecond

// readSize is how many bytes of events are read at a time: 2,000 of them and more.
const readSize = 64 << 10

func (n *notifier) run(ino *beneath.Inotify, done chan struct{}) {
	defer close(done)
	buf := make([]byte, readSize)
	for {
		events, err := ino.Read(buf)
		if err != nil {
			return
		}
		n.telling.Lock()
		var last beneath.NotifyEvent
		for _, e := range events {
			if e == last {
				continue // a run of writes
			}
			last = e
			n.deliver(e)
		}
		n.telling.Unlock()
		time.Sleep(gather)
	}
}

// deliver hands one event to each watcher that it concerns.
func (n *notifier) deliver(e beneath.NotifyEvent) {
	type told struct {
		w    *SourceWatcher
		dirs []any
	}
	var room [2]told // a mount's and a hub's
	all := room[:0]
	n.mu.Lock()
	for _, w := range n.users {
		x, ok := w.dirs[e.WD]
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			all = append(all, told{w: w})
		case ok && e.Mask&unix.IN_IGNORED != 0:
			w.dropLocked(e.WD)
		case ok:
			all = append(all, told{w, slices.Clone(x)})
		}
	}
	n.mu.Unlock()
	for _, t := range all {
		if e.Mask&unix.IN_Q_OVERFLOW != 0 {
			t.w.lost()
		}
		for _, d := range t.dirs {
			t.w.emit(sourceEvent(e, d))
		}
	}
}

func sourceEvent(e beneath.NotifyEvent, dir any) SourceEvent {
	return SourceEvent{
		Dir: dir, Name: e.Name,
		Created: e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0,
		Deleted: e.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0,
		Moved:   e.Mask&(unix.IN_MOVED_TO|unix.IN_MOVED_FROM) != 0,
		Changed: e.Mask&(unix.IN_MODIFY|unix.IN_ATTRIB) != 0,
		Self:    e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0,
		IsDir:   e.Mask&unix.IN_ISDIR != 0,
		Cookie:  e.Cookie,
	}
}
