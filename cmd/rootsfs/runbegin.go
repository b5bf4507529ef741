package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// beginning is a session while it starts. The confinement is built beside it:
// the two wait for each other only where one needs the other, and the command
// is started when both are there.
type beginning struct {
	mounted chan struct{}   // closed when the mount answers; runner.s and failing are set then
	failing <-chan struct{} // closed when the session must be let go of
	done    chan struct{}   // closed when it has started or failed; err is set then
	err     error
}

// begin starts the session, beside the caller. Nothing is mounted before the janitor
// watches, which is started beside both.
func (r *runner) begin(ctx context.Context) *beginning {
	opt := r.plan.session
	if r.place == nil {
		opt.Mount.Detached, opt.Place = true, r.takePlace
	} else {
		opt.Mount.Point = r.place.point
	}
	opt.Leave = true // nobody else reaches the place, and the command has ended by then
	opt.AnchorLater, opt.Signal = true, true
	opt.Looked = r.later.looked
	if !r.plan.strictLinks {
		opt.Mount.Visible = r.links.visible
	}
	opt.Observe = r.links.observe
	if r.plan.learn {
		r.learned = newLearned()
		opt.Mount.Layout.Missing = r.learned.missing
		opt.Observe = func(e guard.Event) {
			r.links.observe(e)
			r.learned.observe(e)
		}
	}
	watched := make(chan error, 1)
	go func() {
		var err error
		r.janitor, err = startJanitor(r.name, r.place)
		watched <- err
	}()
	opt.Mounting = sync.OnceValue(func() error { return <-watched })
	b := &beginning{mounted: make(chan struct{}), done: make(chan struct{})}
	opt.Mounted = func(ctx context.Context, s *session.Session) {
		r.s, b.failing = s, ctx.Done()
		r.events, r.unsubscribe = s.Subscribe()
		close(b.mounted)
		runtime.Gosched() // whoever waits for it is in more of a hurry than we are
	}
	go func() {
		defer close(b.done)
		done := r.a.waiting("mounting")
		_, b.err = session.Start(ctx, opt)
		done()
		_ = opt.Mounting() // there is a janitor now, or never
	}()
	return b
}

// wait waits for the mount.
func (b *beginning) wait() error {
	select {
	case <-b.mounted:
		return nil
	case <-b.done: // without a mount only if it failed
		return b.err
	}
}

// placeless reports that the mount is for nobody but the command's own namespaces, so
// that it can do without a place on the host, and with it without anything that would be
// left of it.
func (p *plan) placeless() bool {
	return os.Geteuid() == 0 && (p.box.Level == 0 || p.box.Level == sandbox.Namespaces)
}

// takePlace makes a place for the mount after all, and has a janitor watch over it.
func (r *runner) takePlace() (string, error) {
	place, err := makePrivate(r.name, *r.plan.session.Mount.Owner)
	if err != nil {
		return "", err
	}
	watch, err := startJanitor(r.name, place)
	if err != nil {
		place.remove()
		return "", err
	}
	r.janitor.dismiss()
	r.place, r.janitor = place, watch
	return place.point, nil
}

// attach gives the mount a place, for a level of confinement that cannot do without.
func (r *runner) attach(box *sandbox.Options, b *beginning) error {
	if err := b.release(); err != nil {
		return err
	}
	if err := r.s.Attach(); err != nil {
		return err
	}
	box.Tree, box.Private = r.s.Point(), r.place.scratch
	return nil
}

// release waits for the rest of the session. When that fails it does not wait
// for the session's end, which waits for the command to let go of the mount.
func (b *beginning) release() error {
	select {
	case <-b.done:
		return b.err
	case <-b.failing:
		return errEndedBefore
	}
}

var errEndedBefore = errors.New("the session has ended before the command was started")

// locate fills in what depends on the session's mount, and makes the kept home:
// not earlier, because the session may refuse it.
func (r *runner) locate(box *sandbox.Options) error {
	r.found = map[string]boundRoot{}
	var err error
	if box.Detached, err = r.s.MountCopy(); errors.Is(err, mountpoint.ErrNotDetached) {
		return errEndedBefore // and let go of its mount
	} else if err != nil {
		return err
	}
	box.Tree = r.s.Point()
	if r.place != nil {
		box.Private = r.place.scratch
	}
	for _, st := range r.s.Registry().Roots() {
		if at := st.Grant.Resolved; box.Map == sandbox.Same {
			box.Roots = append(box.Roots, at)
			r.found[at] = itself(st)
		}
	}
	if box.Dir == "" {
		box.Dir = r.first()
	}
	box.Env = gitEnv(box, r.s.Registry().Roots())
	if box.Home == "" {
		return nil
	}
	if err := makeHome(box.Home, box.UID, box.GID); err != nil {
		return err
	}
	if err := bringHome(box.Home, r.plan.homeParts, box.UID, box.GID); err != nil {
		return err
	}
	home, err := filepath.EvalSymlinks(box.Home)
	if err != nil {
		return err
	}
	return r.s.Registry().NoteWritable(home)
}
