package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Most roots that are granted while the command runs appear by themselves: the
// directory at the top that they lie in, or are, was bound when it started. The
// others are bound one by one: those in the system's and the command's own
// directories, and directories that were made at the top since.

// spareDirs is how many of those there can be at a time, besides single files.
// Each costs the start a look-up and a rule of Landlock's.
const spareDirs = 8

// laterRoots has the command see them. It is a guard.View: when a grant is
// answered, its root is there.
type laterRoots struct {
	r     *runner
	watch sync.Once
	ready chan struct{} // closed by begin
	can   bool          // set before that

	mu    sync.Mutex // guards the fields below; held while the command's init works
	bound map[string]boundRoot
	spare [spareDirs]guard.RootName
	// unseen are those that could not be shown, with the reason.
	unseen map[string]error
}

// boundRoot is what is bound at a path inside.
type boundRoot struct {
	name  guard.RootName
	epoch uint64
	spare int    // the directory that shows it; -1: it is bound itself
	file  fileID // of a single file
}

// rootItself is a root that is bound itself, as it is now.
func rootItself(st guard.Status) boundRoot {
	return boundRoot{name: st.Grant.Root, epoch: st.Epoch, spare: -1, file: fileNow(st)}
}

// fileID tells a file from one that has taken its name.
type fileID struct {
	dev, ino uint64
	born     unix.StatxTimestamp
}

// fileNow is the file that is at a root's place on the host, none for other roots and
// where looking could hang.
func fileNow(st guard.Status) (id fileID) {
	var x unix.Statx_t
	if st.FileRoot && !st.Remote && unix.Statx(unix.AT_FDCWD, st.Grant.Resolved, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x) == nil {
		id = fileID{unix.Mkdev(x.Dev_major, x.Dev_minor), x.Ino, x.Btime}
	}
	return id
}

// watchRoots begins to, before the command is started: who grants a root between
// that and begin is answered after begin.
func (r *runner) watchRoots() {
	r.later.watch.Do(func() { r.s.Registry().AddView(r.later) })
}

func newLaterRoots(r *runner) *laterRoots {
	return &laterRoots{r: r, ready: make(chan struct{}), bound: map[string]boundRoot{}, unseen: map[string]error{}}
}

// begin is called when the command runs, or will never.
func (l *laterRoots) begin() {
	if l.can = l.r.proc != nil && l.r.proc.CanBind(); l.can {
		for _, at := range l.r.proc.Single() {
			l.bound[at] = l.r.initialRoots[at]
		}
	}
	close(l.ready)
	l.follow() // what has changed since the roots were bound
}

// Invalidate implements guard.View.
func (l *laterRoots) Invalidate(_ context.Context, c guard.Change) error {
	switch c.Kind {
	case guard.ChangeAdded:
		l.follow()
	case guard.ChangeEnded:
		// The mount refuses already: what stood there before may come back
		// when it will.
		go l.follow()
	}
	return nil
}

// looked is told that the place of a root was looked at, because it may have changed.
// A single file that was replaced is bound anew: what is bound is a file, not a name.
func (l *laterRoots) looked(name guard.RootName) {
	select {
	case <-l.ready:
	default:
		return // follow comes later
	}
	st, ok := l.r.s.Registry().Lookup(name)
	if !ok || !st.FileRoot || l.r.proc == nil || l.r.proc.Follows(st.Grant.Resolved) {
		return
	}
	l.mu.Lock()
	b, have := l.bound[st.Grant.Resolved]
	l.mu.Unlock()
	if !have || b.file != fileNow(st) {
		l.follow()
	}
}

// follow makes what is bound what is granted.
func (l *laterRoots) follow() {
	<-l.ready
	if !l.can {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	want := l.wanted()
	for at, b := range l.bound {
		st, ok := want[at]
		replaced := ok && b.spare < 0 && b.file != fileNow(st)
		if ok && !replaced && (b.epoch == st.Epoch || b.spare >= 0 && b.name == st.Grant.Root) {
			continue
		}
		if replaced {
			l.r.s.Refresh(st.Grant.Root)
		}
		l.warn(at, l.r.proc.Unbind(at))
		delete(l.bound, at)
		if b.spare >= 0 {
			l.spare[b.spare] = ""
			l.warn(at, l.r.s.Show(b.spare, ""))
		}
	}
	c, unseen := l.r.confined, map[string]error{}
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
		} else if st.FileRoot && st.Grant.Policy.Rights.Mutating() && !l.r.proc.Writes(at) {
			c.Fixed = append(c.Fixed, names.Foreign(at))
		}
	}
	l.unseen = unseen
	l.r.s.SetServer(c)
}

// warn logs what the command could not be shown, as long as there is one.
func (l *laterRoots) warn(at string, err error) {
	select {
	case <-l.r.proc.Ended():
	default:
		if err != nil {
			l.r.s.Log().Warn("the running command does not see a root as it should", "path", names.Escape(at), "error", err)
		}
	}
}

// wanted are the roots that are to be bound, by path: those that do not appear by
// themselves, or in another.
func (l *laterRoots) wanted() map[string]guard.Status {
	roots := l.r.s.Registry().RootsOf(l.r.plan.session.Mount.Subject)
	slices.SortFunc(roots, func(a, b guard.Status) int { return strings.Compare(a.Grant.Resolved, b.Grant.Resolved) })
	want := map[string]guard.Status{}
	for _, st := range roots {
		at := st.Grant.Resolved
		inAnother := func(outer string) bool { return names.Under(at, outer) }
		if at != "/" && !l.r.proc.Follows(at) && !slices.ContainsFunc(slices.Collect(maps.Keys(want)), inAnother) {
			want[at] = st
		}
	}
	return want
}

// bind binds one.
func (l *laterRoots) bind(at string, st guard.Status) error {
	b := rootItself(st)
	from := strings.TrimPrefix(at, "/")
	if !st.FileRoot {
		if b.spare = slices.Index(l.spare[:], ""); b.spare < 0 {
			return fmt.Errorf("%d such directories are shown already: start the command again", spareDirs)
		}
		if err := l.r.s.Show(b.spare, b.name); err != nil {
			return err
		}
		from = l.r.plan.box.Spare[b.spare]
	}
	if err := l.r.proc.Bind(from, at); err != nil {
		if b.spare >= 0 {
			_ = l.r.s.Show(b.spare, "") // it could show the root
		}
		return err
	}
	if b.spare >= 0 {
		l.spare[b.spare] = b.name
	}
	l.bound[at] = b
	return nil
}
