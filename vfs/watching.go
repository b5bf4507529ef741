package vfs

import "github.com/rootsfs/rootsfs/vfs/watch"

// What package mount needs of package watch.
type (
	SourceEvent   = watch.SourceEvent
	SourceWatcher = watch.SourceWatcher
)

// See watch.ErrNoWatches and watch.ErrNoInstances.
var (
	ErrNoWatches   = watch.ErrNoWatches
	ErrNoInstances = watch.ErrNoInstances
)

// NewSourceWatcher returns a watcher of the roots' directories; see
// watch.Inotify.NewWatcher.
func (t *Tree) NewSourceWatcher(emit func(SourceEvent), onLoss func()) *SourceWatcher {
	return t.inotify.NewWatcher(t.reg, emit, onLoss)
}

// NewHub returns a hub of watches on the tree's roots. The caller must close it.
func (t *Tree) NewHub(o watch.HubOptions) *watch.Hub {
	return watch.NewHub(t.reg, &t.inotify, &t.remoteInotify, o)
}
