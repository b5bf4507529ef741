package sessionhub

import (
	"context"
	"slices"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
)

// sessionDirs watches the directory of the sessions, and the directory of each session. Commands find
// a session from the moment at which its directory gets the file session.json.
type sessionDirs struct {
	watcher *hostwatch.Watcher
	changes chan struct{}     // holds a token when sessions may have begun or ended
	stops   map[string]func() // by directory of a session: ends the watch of this directory
}

// watchSessions starts to watch the directory of the sessions, until ctx ends.
func watchSessions(ctx context.Context) *sessionDirs {
	d := &sessionDirs{watcher: hostwatch.New(ctx), changes: make(chan struct{}, 1), stops: map[string]func(){}}
	d.watcher.Signal(control.RuntimeDir(), hostwatch.Entries, d.changes)
	return d
}

// close waits until nothing is watched any more. The context must have ended.
func (d *sessionDirs) close() { <-d.watcher.Done() }

// follow begins to watch the directories of new sessions, and ends the watches of those that
// are gone.
func (d *sessionDirs) follow() error {
	dirs, err := control.Dirs()
	if err != nil {
		return err
	}
	for dir, stop := range d.stops {
		if !slices.Contains(dirs, dir) {
			stop()
			delete(d.stops, dir)
		}
	}
	for _, dir := range dirs {
		if d.stops[dir] == nil {
			d.stops[dir] = d.watcher.Signal(dir, hostwatch.Entries, d.changes)
		}
	}
	return nil
}
