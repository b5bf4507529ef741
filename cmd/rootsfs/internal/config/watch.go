package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/rootsfs/rootsfs/guard/names"
)

// maxWait is how many times the debounce a reload is put off at most while
// changes keep coming.
const maxWait = 4

// Watch calls fn with each new state of the file: after a change, as soon as
// nothing has changed for the debounce (0: DefaultDebounce), at the latest
// after four times that. It is called with what Load returns, by one goroutine,
// so a slow fn delays the next call and nothing is lost meanwhile: the last
// state is always reported. A file that was touched, or written with the same
// contents, is reported too; Diff then finds nothing.
//
// The file need not exist, nor its directory. Replacement by rename is seen,
// of the file, of any directory on the way to it, and of links. What changed
// before Watch returned is not, so call Watch first and Load then.
//
// The watch ends with ctx; done is closed when fn will not be called again.
// The error says that this system cannot watch.
func Watch(ctx context.Context, path string, debounce time.Duration, fn func(*Config, error)) (done <-chan struct{}, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, &Error{File: path, Err: err}
	}
	if debounce <= 0 {
		debounce = DefaultDebounce
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, &Error{File: path, Err: fmt.Errorf(
			"its changes cannot be watched: %w; raise fs.inotify.max_user_instances", err)}
	}
	s := &sentry{path: path, add: w.Add, remove: w.Remove}
	if err := s.arm(); err != nil {
		_ = w.Close() // the first error says more
		return nil, &Error{File: path, Err: fmt.Errorf(
			"its changes cannot be watched: %w; raise fs.inotify.max_user_watches", err)}
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.run(ctx, w.Events, w.Errors, debounce, fn)
		_ = w.Close() // nothing depends on it any more
	}()
	return finished, nil
}

// sentry knows which names lie on the way to the file and watches the
// directories they are in. A directory is watched rather than the file, because
// editors replace files.
type sentry struct {
	path        string
	add, remove func(dir string) error
	steps       map[string]bool // every name the walk to the file looks up
	dirs        map[string]bool // where they are: watched
}

// run serves the events until ctx ends.
func (s *sentry) run(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, quiet time.Duration, fn func(*Config, error)) {
	// One place is enough: it says that something changed since it was taken.
	kick := make(chan struct{}, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		debounce(ctx, kick, quiet, maxWait*quiet, func() { fn(Load(s.path)) })
	}()
	for {
		changed := false
		select {
		case <-ctx.Done():
			<-stopped
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			changed = s.sees(e.Name)
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			// Lost events (an overflow) may have been anything.
			s.forget()
			changed = true
		}
		if !changed {
			continue
		}
		// That a directory cannot be watched now shows as a file that cannot
		// be read, or is mended by the next event of a directory above.
		_ = s.arm()
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

// sees reports whether an event concerns the file. If a watched directory
// itself has come or gone, its watch may be that of another one by that name.
func (s *sentry) sees(name string) bool {
	name = filepath.Clean(name)
	if s.dirs[name] {
		s.forget()
	}
	return s.steps[name]
}

func (s *sentry) forget() {
	for dir := range s.dirs {
		_ = s.remove(dir) // gone already is as good
	}
	s.dirs = nil
}

// armTries bounds how often arm looks again while the way keeps changing; each
// further change makes an event of its own.
const armTries = 100

// arm brings the watched directories in line with the way to the file as it is
// now. The error is that of a directory that exists and cannot be watched.
func (s *sentry) arm() (first error) {
	watched := s.dirs
	for range armTries {
		steps, dirs := way(s.path)
		for dir := range watched {
			if !dirs[dir] {
				_ = s.remove(dir)
			}
		}
		added := false
		for dir := range dirs {
			if watched[dir] {
				continue
			}
			switch err := s.add(dir); {
			case err == nil:
				added = true
			default:
				delete(dirs, dir)
				if first == nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
					first = fmt.Errorf("%s: %w", names.Quote(dir), err)
				}
			}
		}
		s.steps, s.dirs, watched = steps, dirs, dirs
		if !added {
			break
		}
		// What came into a directory before its watch did has made no event,
		// so the way is looked up once more.
	}
	return first
}

// way lists the names that a walk to path looks up, through links, as far as it
// gets, and the directories they are looked up in.
func way(path string) (steps, dirs map[string]bool) {
	steps, dirs = map[string]bool{}, map[string]bool{}
	todo := strings.Split(path, "/")
	at := "/"
	for links := 0; len(todo) > 0 && links <= maxLinks; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		steps[next], dirs[at] = true, true
		target, err := os.Readlink(next)
		if err != nil { // no link, or nothing: the next look-up tells
			if _, err := os.Lstat(next); err != nil {
				return steps, dirs
			}
			at = next
			continue
		}
		links++
		if filepath.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return steps, dirs
}

// debounce calls fire once for each burst of kicks: when none came for quiet,
// or when most has passed since the first.
func debounce(ctx context.Context, kick <-chan struct{}, quiet, most time.Duration, fire func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		}
		last := time.NewTimer(most)
		calm := time.NewTimer(quiet)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-kick:
				calm.Reset(quiet)
			case <-calm.C:
				waiting = false
			case <-last.C:
				waiting = false
			}
		}
		fire()
	}
}
