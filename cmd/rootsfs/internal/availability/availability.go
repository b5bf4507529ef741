// Package availability watches the places of a session's roots. The place of a root is its path on
// the host. The package finds out whether the approved directory is still there, and reads the
// permissions of the directory. On demand it asks for the free space.
//
// # Promises
//
//   - A root whose path may lead to another file by now is checked again; see package
//     hostwatch. If its directory was deleted or replaced, the registry makes the root
//     unavailable.
//   - A check that hangs on a file system that does not answer delays the other checks by at most
//     lookPatience, and does not delay the end of the session. Checks that hang block at most
//     maxHanging threads. Questions about free space that hang block at most as many threads.
//
// # Not promised
//
// The package approves nothing: a directory that was deleted and created again cannot be used until
// the owner approves it.
//
// The exported functions may be called concurrently.
package availability

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Config configures a Monitor.
type Config struct {
	Registry *guard.Registry
	Paths    *hostwatch.Watcher
	Log      *slog.Logger
	Events   *events.Hub // receives the events of the monitor
	// OnRecheck, unless nil, is called after each check of a root that was live before the check.
	// It may be called concurrently.
	OnRecheck func(guard.RootName)
}

// Monitor watches the places of the roots of one session. Make it with New.
type Monitor struct {
	cfg     Config
	changed chan struct{}                // holds a token when the set of roots has changed
	looks   hangingCalls[guard.RootName] // calls of look, by root
	spaces  hangingCalls[uint64]         // calls of askSpace, by epoch

	mu     sync.Mutex               // guards the field below
	places map[uint64]*watchedPlace // by epoch
}

// Place holds the last known state of the path of a root on the host.
type Place struct {
	Permissions string // "": not known
	Reappeared  bool   // the root is unavailable, and a file or directory is at its path
	Free        *int64 // free bytes; nil: not asked yet, or the last question failed
}

type watchedPlace struct {
	Place
	stop func() // ends the watching of the path; nil: the path is not watched yet
}

// New returns a monitor, and reads the permissions of the directories of all present roots.
func New(cfg Config) *Monitor {
	m := &Monitor{cfg: cfg, changed: make(chan struct{}, 1), places: map[uint64]*watchedPlace{}}
	for _, st := range cfg.Registry.Roots() {
		m.notePermissions(st)
	}
	return m
}

// placeLocked returns the state of the place of the root with this epoch, and creates it if it is
// missing. The caller must hold m.mu.
func (m *Monitor) placeLocked(epoch uint64) *watchedPlace {
	if m.places[epoch] == nil {
		m.places[epoch] = &watchedPlace{}
	}
	return m.places[epoch]
}

// Place returns the last known state of the place of the root with this epoch (guard.Status.Epoch).
func (m *Monitor) Place(epoch uint64) Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.places[epoch]; p != nil {
		return p.Place
	}
	return Place{}
}

// Update must be called when the set of roots has changed.
func (m *Monitor) Update() {
	select {
	case m.changed <- struct{}{}:
	default: // there is a token already
	}
}

// Run watches the roots until ctx and the watcher of the paths (Config.Paths) have ended.
func (m *Monitor) Run(ctx context.Context) {
	for {
		m.sync(ctx)
		select {
		case <-ctx.Done():
			<-m.cfg.Paths.Done()
			return
		case <-m.changed:
		}
	}
}

// sync watches the paths of new roots, and forgets the places of ended roots.
func (m *Monitor) sync(ctx context.Context) {
	live := map[uint64]bool{}
	for _, st := range m.cfg.Registry.Roots() {
		live[st.Epoch] = true
		if !m.isWatched(st.Epoch) {
			stop := m.cfg.Paths.Watch(st.Grant.Resolved, hostwatch.Path, func() bool { return m.recheck(ctx, st.Grant.Root) })
			m.mu.Lock()
			m.placeLocked(st.Epoch).stop = stop
			m.mu.Unlock()
		}
	}
	var ended []*watchedPlace
	m.mu.Lock()
	for epoch, p := range m.places {
		if !live[epoch] {
			ended = append(ended, p)
			delete(m.places, epoch)
		}
	}
	m.mu.Unlock()
	for _, p := range ended {
		if p.stop != nil {
			p.stop()
		}
	}
}

func (m *Monitor) isWatched(epoch uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.places[epoch] != nil && m.places[epoch].stop != nil
}

// lookPatience is how long a check may take before the next one begins. Checks run one after
// the other, except for those that hang.
const lookPatience = 100 * time.Millisecond

// recheck checks one root. The check may hang: the root may be on a remote file system, or a remote
// file system may be mounted over the root's path. The end of the session does not wait for the
// check. recheck reports false if a check was needed and recheck did not start it, because an
// earlier check of this root, or too many checks of other roots, are in progress.
func (m *Monitor) recheck(ctx context.Context, name guard.RootName) bool {
	st, ok := m.cfg.Registry.Lookup(name)
	if !ok || st.State != guard.Live && (st.State != guard.UnavailableState || st.Remote) {
		return true
	}
	patience, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	return m.looks.run(patience, name, func() { m.look(ctx, st) })
}

// look makes the check of recheck. It may hang.
func (m *Monitor) look(ctx context.Context, st guard.Status) {
	if st.State == guard.UnavailableState {
		m.noteReappeared(st)
		return
	}
	name := st.Grant.Root
	if err := m.cfg.Registry.Recheck(ctx, name); err != nil && ctx.Err() == nil {
		m.cfg.Log.Error("a root has become unavailable, and not everything could be taken back", "root", name, "error", err)
	}
	if now, ok := m.cfg.Registry.Lookup(name); ok && now.State == guard.Live {
		m.notePermissions(now)
	} else if ok && !now.Remote {
		m.noteReappeared(now)
	}
	if f := m.cfg.OnRecheck; f != nil {
		f(name)
	}
}

// noteReappeared records whether there is a file or directory at the path of an unavailable root,
// and reports when one has appeared. The owner has not approved the new file or directory.
func (m *Monitor) noteReappeared(st guard.Status) {
	if !vfs.LeadsToLocal(st.Grant.Resolved) {
		return // the file system there may hang
	}
	_, err := os.Lstat(st.Grant.Resolved)
	again := err == nil
	m.mu.Lock()
	p := m.placeLocked(st.Epoch)
	was := p.Reappeared
	p.Reappeared = again
	m.mu.Unlock()
	if !again || was {
		return
	}
	why := Why(string(st.Grant.Root), true)
	m.cfg.Log.Warn("a root is unavailable", "root", st.Grant.Root, "why", why)
	m.cfg.Events.Publish(control.Event{Time: time.Now(), Kind: "made again", Root: names.Foreign(string(st.Grant.Root)), Detail: names.Foreign(why)})
}

// notePermissions reads the mode and the owner of a root's directory, and reports a change. The
// file system's own permissions still apply, so a change also changes which operations are possible
// in the root.
func (m *Monitor) notePermissions(st guard.Status) {
	fi, err := os.Lstat(st.Grant.Resolved)
	if err != nil {
		return
	}
	now := permissions(fi)
	name := st.Grant.Root
	m.mu.Lock()
	p := m.placeLocked(st.Epoch)
	was := p.Permissions
	p.Permissions = now
	m.mu.Unlock()
	if was == "" || was == now {
		return
	}
	detail := fmt.Sprintf("%s -> %s", was, now)
	m.cfg.Log.Warn("the permissions of a root's directory have changed", "root", name, "detail", detail)
	m.cfg.Events.Publish(control.Event{Time: time.Now(), Kind: "permissions", Root: names.Foreign(string(name)), Detail: names.Foreign(detail)})
}

// spacePatience is how long AskFree waits for the answers of all file systems together.
const spacePatience = 100 * time.Millisecond

// AskFree asks for the free space of the live roots among roots, first for roots on this machine. A
// remote file system may not answer. Place.Free keeps the last answer until there is a new one.
func (m *Monitor) AskFree(ctx context.Context, roots []guard.Status) {
	ctx, cancel := context.WithTimeout(ctx, spacePatience)
	defer cancel()
	for _, remote := range []bool{false, true} {
		for _, r := range roots {
			// The first remote file system that does not answer uses up the time of the remaining
			// ones.
			if r.State == guard.Live && r.Remote == remote && (!remote || ctx.Err() == nil) {
				m.spaces.run(ctx, r.Epoch, func() { m.askSpace(r) })
			}
		}
	}
}

func (m *Monitor) askSpace(r guard.Status) {
	n, ok := m.cfg.Registry.Free(r.Grant.Root)
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.placeLocked(r.Epoch); ok {
		p.Free = &n
	} else {
		p.Free = nil
	}
}

// Why returns why a root is unavailable, with a remedy. reappeared says that there is a file or
// directory at the path of the root again.
func Why(name string, reappeared bool) string {
	if reappeared {
		return "its directory was deleted or replaced, and another is there now; approve that with: rootsfs roots renew " + names.ShellWord(name)
	}
	return "its directory is gone or cannot be read; put it back or make it again, then: rootsfs roots renew " + names.ShellWord(name)
}

// permissions returns the mode, the number of the owner and the number of the group, such as
// "drwxr-xr-x 1000:1000".
func permissions(fi os.FileInfo) string {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%s %d:%d", fi.Mode(), st.Uid, st.Gid)
	}
	return fi.Mode().String()
}
