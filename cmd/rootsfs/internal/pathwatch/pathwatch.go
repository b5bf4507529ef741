// Package pathwatch reports when an absolute path of the host may have come to lead to
// something else: a directory, link or file on the way was created, removed, renamed or
// given other permissions, or the file at its end was written. A session watches the
// paths of its roots and of its configuration.
//
// # Promises
//
// Nothing runs while nothing changes. What inotify does not tell of is reported every
// Recheck: paths to other machines' file systems, and those on which a directory cannot
// be watched.
//
// # Not promised
//
// The paths are walked by name, so the reports say only when to look. Mounts are the
// caller's to report, with CheckAll.
package pathwatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Paths watches paths.
type Paths struct {
	watcher *watch.SourceWatcher
	kick    chan struct{} // holds a token while due is not empty
	done    chan struct{}

	mu       sync.Mutex                // guards the fields below
	all, due map[*watchedPath]struct{} // due: to be reported
}

// watchedPath is one call of Watch. Its steps belong to the goroutine of Paths.
type watchedPath struct {
	path    string
	changed func() bool
	steps   []*pathStep
	recheck *time.Timer // runs if the path has to be reported again; nil: never did
}

// pathStep is a watched directory on a path, and the name that the path takes there; or
// the watched file at the path's end, without a name.
type pathStep struct {
	of   *watchedPath
	name string
	wd   int32
}

const (
	// Recheck is how often a path is reported that cannot be watched.
	Recheck = time.Second
	// recheckMost bounds the paths that are reported for that in each Recheck: of
	// thousands nobody wants to pay for all. More of them wait longer.
	recheckMost = 100
	// pause bounds how often the changes in busy directories wake the process.
	pause = 100 * time.Millisecond

	stepMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	fileMask = unix.IN_ATTRIB | unix.IN_MODIFY
)

// New returns a watcher of no paths, which ends with ctx. It shares the inotify instance of
// the tree.
func New(ctx context.Context, tree *vfs.Tree) *Paths {
	p := &Paths{
		kick: make(chan struct{}, 1), done: make(chan struct{}),
		all: map[*watchedPath]struct{}{}, due: map[*watchedPath]struct{}{},
	}
	p.watcher = tree.NewSourceWatcher(p.take, p.CheckAll)
	go p.run(ctx)
	return p
}

// Done is closed when no path is reported any more.
func (p *Paths) Done() <-chan struct{} { return p.done }

// Watch calls changed once the path is watched, and whenever it may have changed. If
// changed reports that it could not look, it is called again. One goroutine calls it for
// all paths.
func (p *Paths) Watch(path string, changed func() (looked bool)) (stop func()) {
	w := &watchedPath{path: path, changed: changed}
	p.mu.Lock()
	p.all[w] = struct{}{}
	p.mu.Unlock()
	p.check(w)
	return func() {
		p.mu.Lock()
		delete(p.all, w)
		p.mu.Unlock()
		p.check(w)
	}
}

// CheckAll reports every path, as when something was mounted or unmounted.
func (p *Paths) CheckAll() {
	p.mu.Lock()
	all := make([]*watchedPath, 0, len(p.all))
	for w := range p.all {
		all = append(all, w)
	}
	p.mu.Unlock()
	p.check(all...)
}

func (p *Paths) check(all ...*watchedPath) {
	p.mu.Lock()
	for _, w := range all {
		p.due[w] = struct{}{}
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// take checks the path that an event concerns.
func (p *Paths) take(e watch.SourceEvent) {
	if step, ok := e.Dir.(*pathStep); ok && (e.Self || e.Name == step.name) {
		p.check(step.of)
	}
}

func (p *Paths) run(ctx context.Context) {
	defer close(p.done)
	defer p.watcher.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		}
		p.mu.Lock()
		due, recheck := p.due, Recheck*time.Duration(1+len(p.all)/recheckMost)
		p.due = map[*watchedPath]struct{}{}
		p.mu.Unlock()
		for w := range due {
			if ctx.Err() == nil {
				p.checkOne(w, recheck)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// checkOne watches what the path leads to now, and reports the path.
func (p *Paths) checkOne(w *watchedPath, recheck time.Duration) {
	if w.recheck != nil {
		w.recheck.Stop()
	}
	before := w.steps
	w.steps = nil
	p.mu.Lock()
	_, wanted := p.all[w]
	p.mu.Unlock()
	watched := wanted && p.walk(w)
	for _, step := range before {
		p.watcher.Unwatch(step.wd, step)
	}
	if !wanted {
		return
	}
	if looked := w.changed(); !looked || !watched {
		w.recheck = time.AfterFunc(recheck, func() { p.check(w) })
	}
}

// mostLinks is the kernel's own bound for the links on a path.
const mostLinks = 40

// walk watches the directories on the path, each before it looks up a name there, and the
// file at its end. It reports false if a change may go unnoticed.
func (p *Paths) walk(w *watchedPath) (all bool) {
	dir, rest := "/", strings.Split(w.path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		if !p.addStep(w, dir, name, stepMask|unix.IN_ONLYDIR) {
			return false
		}
		next := filepath.Join(dir, name)
		if !vfs.LeadsToLocal(next) {
			return false // looking there may hang
		}
		fi, err := os.Lstat(next)
		switch {
		case err != nil:
			return errors.Is(err, fs.ErrNotExist)
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(next)
			if links++; err != nil || links > mostLinks {
				return false
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		case !fi.IsDir():
			return p.addStep(w, next, "", fileMask)
		default:
			dir = next
		}
	}
	return len(w.steps) > 0
}

// addStep watches the directory or file at a path without links.
func (p *Paths) addStep(w *watchedPath, path, name string, mask uint32) bool {
	if !vfs.LeadsToLocal(path) {
		return false
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	step := &pathStep{of: w, name: name}
	step.wd, err = p.watcher.WatchOpen(fd, mask, step)
	if err == nil {
		w.steps = append(w.steps, step)
	}
	return err == nil
}
