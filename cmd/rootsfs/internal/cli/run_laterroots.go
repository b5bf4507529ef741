package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// Most roots that are granted while the command runs appear to the command by themselves: their
// top-level directory was bind-mounted when the command started. The others are bind-mounted one by
// one: roots in directories of the system or of the command itself, and roots in top-level
// directories that were made after the start.

// spareDirs is how many roots that are directories can be bound at a time. The number of single
// files is not limited. Each spare directory costs a look-up and a Landlock rule at the start.
const spareDirs = 8

// laterRoots binds the roots that do not appear by themselves. It is a guard.View, so a grant
// returns only after the new root is bound, or binding has failed.
type laterRoots struct {
	register sync.Once
	ready    chan struct{}  // closed by begin
	target   runningCommand // set before ready is closed

	mu    sync.Mutex           // guards the fields below; held while the command's init works
	bound map[string]boundRoot // by path
	spare [spareDirs]guard.RootName
	// unseen has the errors of the roots that could not be bound, by path.
	unseen map[string]error
}

// runningCommand has the command for which roots are bound, and the session with the roots.
type runningCommand struct {
	proc    *sandbox.Process // nil: the command was not started
	session *session.Session
	subject guard.Subject // whose roots appear in the mount
	// spare has the spare directories of the mount, each of which can show a root.
	spare []string
	// confined describes the command at its start, for status.
	confined control.Confined
}

// canBind reports whether roots can be bound for the command.
func (c *runningCommand) canBind() bool { return c.proc != nil && c.proc.CanBind() }

// boundRoot describes the root that is bound at a path in the confinement.
type boundRoot struct {
	name  guard.RootName
	epoch uint64
	spare int    // the number of the spare directory that shows the root; -1: the root itself is bound
	file  fileID // identifies the file of a single-file root
}

// rootItself returns the boundRoot for a root that is bound without a spare directory.
func rootItself(st guard.Status) boundRoot {
	return boundRoot{name: st.Grant.Root, epoch: st.Epoch, spare: -1, file: fileNow(st)}
}

// fileID identifies a file, so that a replaced file is noticed.
type fileID struct {
	dev, ino uint64
	born     unix.StatxTimestamp
}

// fileNow returns the identity of the file that a single-file root has on the host now. It returns
// the zero fileID for a directory, for a remote file, whose look-up could hang, and on an error.
func fileNow(st guard.Status) (id fileID) {
	var x unix.Statx_t
	if st.FileRoot && !st.Remote && unix.Statx(unix.AT_FDCWD, st.Grant.Resolved, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x) == nil {
		id = fileID{unix.Mkdev(x.Dev_major, x.Dev_minor), x.Ino, x.Btime}
	}
	return id
}

// registerView registers the view before the command is started. A grant that is made before begin
// is called returns only after that call.
func (l *laterRoots) registerView(reg *guard.Registry) {
	l.register.Do(func() { reg.AddView(l) })
}

func newLaterRoots() *laterRoots {
	return &laterRoots{ready: make(chan struct{}), bound: map[string]boundRoot{}, unseen: map[string]error{}}
}

// begin is called when the command runs, or will never run. initial has, by path, the roots that
// the command was started with.
func (l *laterRoots) begin(target runningCommand, initial map[string]boundRoot) {
	l.target = target
	if target.canBind() {
		for _, at := range target.proc.BoundRoots() {
			l.bound[at] = initial[at]
		}
	}
	close(l.ready)
	l.follow() // for changes since the roots were bound
}

// Invalidate implements guard.View.
func (l *laterRoots) Invalidate(_ context.Context, c guard.Change) error {
	switch c.Kind {
	case guard.ChangeAdded:
		l.follow()
	case guard.ChangeEnded:
		// The mount refuses already, so unbinding need not be awaited.
		go l.follow()
	}
	return nil
}

// recheck is called when the path of a root was checked again. If a single file was replaced, the
// new one is bound: a bind mount refers to a file, not to a name.
func (l *laterRoots) recheck(name guard.RootName) {
	select {
	case <-l.ready:
	default:
		return // begin calls follow
	}
	if l.target.proc == nil {
		return
	}
	st, ok := l.target.session.Registry().Lookup(name)
	if !ok || !st.FileRoot || l.target.proc.Follows(st.Grant.Resolved) {
		return
	}
	l.mu.Lock()
	b, have := l.bound[st.Grant.Resolved]
	l.mu.Unlock()
	if !have || b.file != fileNow(st) {
		l.follow()
	}
}

// follow binds and unbinds roots, so that the bound roots are those of rootsToBind. The session's
// status then shows which roots could not be bound, and which ones the command can only read.
func (l *laterRoots) follow() {
	<-l.ready
	if !l.target.canBind() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	want := l.rootsToBind()
	for at, b := range l.bound {
		st, ok := want[at]
		replaced := ok && b.spare < 0 && b.file != fileNow(st)
		if ok && !replaced && (b.epoch == st.Epoch || b.spare >= 0 && b.name == st.Grant.Root) {
			continue
		}
		if replaced {
			l.target.session.Mount().Refresh(st.Grant.Root)
		}
		l.warn(at, l.target.proc.Unbind(at))
		delete(l.bound, at)
		if b.spare >= 0 {
			l.spare[b.spare] = ""
			l.warn(at, l.target.session.Mount().Show(b.spare, ""))
		}
	}
	c, unseen := l.target.confined, map[string]error{}
	for _, at := range slices.Sorted(maps.Keys(want)) {
		st := want[at]
		var err error
		if _, have := l.bound[at]; !have {
			err = l.bind(at, st)
		}
		if err != nil {
			c.Closed, unseen[at] = append(slices.Clip(c.Closed), names.Foreign(at)), err
			if l.unseen[at] == nil {
				l.warn(at, err)
			}
		} else if st.FileRoot && st.Grant.Policy.Rights.Mutating() && !l.target.proc.CanWrite(at) {
			c.Fixed = append(c.Fixed, names.Foreign(at))
		}
	}
	l.unseen = unseen
	l.target.session.SetServer(c)
}

// warn logs err, because of which the command does not see a root as it should. If err is nil, or
// the command has ended, warn does nothing.
func (l *laterRoots) warn(at string, err error) {
	select {
	case <-l.target.proc.Ended():
	default:
		if err != nil {
			l.target.session.Log().Warn("the running command does not see a root as it should", "path", names.Escape(at), "error", err)
		}
	}
}

// rootsToBind returns the roots to bind, by path. It leaves out /, roots that appear by themselves,
// and roots inside of another root to bind.
func (l *laterRoots) rootsToBind() map[string]guard.Status {
	roots := l.target.session.Registry().RootsOf(l.target.subject)
	slices.SortFunc(roots, func(a, b guard.Status) int { return strings.Compare(a.Grant.Resolved, b.Grant.Resolved) })
	want := map[string]guard.Status{}
	for _, st := range roots {
		at := st.Grant.Resolved
		inAnother := func(outer string) bool { return names.Under(at, outer) }
		if at != "/" && !l.target.proc.Follows(at) && !slices.ContainsFunc(slices.Collect(maps.Keys(want)), inAnother) {
			want[at] = st
		}
	}
	return want
}

// bind binds one root: a single file itself, and a directory through a spare directory.
func (l *laterRoots) bind(at string, st guard.Status) error {
	b := rootItself(st)
	from := strings.TrimPrefix(at, "/")
	if !st.FileRoot {
		if b.spare = slices.Index(l.spare[:], ""); b.spare < 0 {
			return fmt.Errorf("%d such directories are shown already: start the command again", spareDirs)
		}
		if err := l.target.session.Mount().Show(b.spare, b.name); err != nil {
			return err
		}
		from = l.target.spare[b.spare]
	}
	if err := l.target.proc.Bind(from, at); err != nil {
		if b.spare >= 0 {
			_ = l.target.session.Mount().Show(b.spare, "") // undoes the Show above
		}
		return err
	}
	if b.spare >= 0 {
		l.spare[b.spare] = b.name
	}
	l.bound[at] = b
	return nil
}
