package consent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Bounds of the previews of questions' items.
const (
	previewNames    = 50_000          // names that a preview looks at
	previewFor      = 2 * time.Second // after this time an incomplete preview is the answer
	previewExamples = 10
	previewWait     = 10 * time.Second // how long a preview waits for its turn
	previewsAtATime = 2                // including previews that hang in their file systems
)

// Preview serves control.PreviewQuestion. It looks at names, types and sizes, follows no link,
// enters no other file system, and opens only directories.
func (qs *Questions) Preview(ctx context.Context, req control.PreviewRequest) (control.Preview, error) {
	q, err := qs.question(req.ID)
	if err != nil {
		return control.Preview{}, err
	}
	if req.Item < 1 || req.Item > len(q.Items) {
		return control.Preview{}, invalid("there is no item %d: it has %d", req.Item, len(q.Items))
	}
	it := &q.Items[req.Item-1]
	if it.Problem != "" || it.Resolved == "" {
		return control.Preview{}, invalid("item %d cannot be granted: %s", req.Item, names.Escape(it.Problem))
	}
	rules, err := qs.withheldRules()
	if err != nil {
		return control.Preview{}, err
	}
	turn := time.NewTimer(previewWait)
	defer turn.Stop()
	select {
	case qs.looks <- struct{}{}:
	case <-turn.C:
		return control.Preview{}, errors.New("others are being looked at; try again in a moment")
	case <-ctx.Done():
		return control.Preview{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, previewFor)
	defer cancel()
	l := &look{ctx: ctx, rules: rules, left: previewNames, start: time.Now()}
	l.out.Complete, l.out.Examples = true, []names.Text{}
	done := make(chan struct{})
	go func() { // the item may lie on a file system that hangs
		defer func() { <-qs.looks }()
		defer close(done)
		l.run(it.Resolved.Raw())
	}()
	select {
	case <-done:
	case <-ctx.Done():
		l.markIncomplete()
	}
	return l.answer(), nil
}

// withheldRules returns the rules that would withhold names from a root that a consent grants: the
// built-in rules, and those of the command line for every root.
func (qs *Questions) withheldRules() (*pattern.Set, error) {
	grant := qs.cfg.Terms(guard.Grant{})
	return grant.Policy.Patterns.Preview()
}

// look is one preview of a tree.
type look struct {
	ctx   context.Context
	rules *pattern.Set
	left  int // how many more names may be looked at; only the walk uses it
	dev   uint64
	start time.Time

	mu  sync.Mutex // guards the field below
	out control.Preview
}

// update calls f with the preview, under the lock.
func (l *look) update(f func(*control.Preview)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.out)
}

func (l *look) markIncomplete() { l.update(func(a *control.Preview) { a.Complete = false }) }

func (l *look) answer() (a control.Preview) {
	l.update(func(out *control.Preview) {
		out.TookMS = float64(time.Since(l.start).Microseconds()) / 1000
		a = *out
		a.Examples = append([]names.Text{}, out.Examples...)
	})
	return a
}

// run looks at the file or directory that is at the path now. It may be another one than was
// opened for the question: the preview only informs a person.
func (l *look) run(resolved string) {
	fd, err := unix.Open(resolved, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		l.markIncomplete()
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		l.markIncomplete()
		return
	}
	l.dev = st.Dev
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		l.update(func(a *control.Preview) { a.Files, a.Bytes = 1, st.Size })
		return
	}
	l.walk(fd)
}

// dir is a directory that is still to be read.
type dir struct {
	rel   string // path below the top; "": the top itself
	state *pattern.State
}

// walk counts the names in the directory with the descriptor top, and everything below it. It holds
// only a few descriptors, however deep the tree is.
func (l *look) walk(top int) {
	for queue := []dir{{"", l.rules.At("")}}; len(queue) > 0; queue = queue[1:] {
		if l.ctx.Err() != nil || l.left <= 0 {
			l.markIncomplete()
			return
		}
		queue = append(queue, l.readDir(top, queue[0])...)
	}
}

// readDir counts the names in a directory, and returns the directories to enter.
func (l *look) readDir(top int, d dir) (subs []dir) {
	f, err := openDir(top, cmp.Or(d.rel, "."))
	if err != nil {
		l.markIncomplete() // such as a directory that rootsfs may not read, or that is a link by now
		return nil
	}
	defer f.Close()
	for l.ctx.Err() == nil && l.left > 0 {
		list, err := f.Readdirnames(256)
		for _, n := range list {
			if l.left--; l.left < 0 || l.ctx.Err() != nil {
				break
			}
			if l.countName(int(f.Fd()), d.state, d.rel, n) {
				subs = append(subs, dir{path.Join(d.rel, n), d.state.Enter(d.rel, n)})
			}
		}
		if err == io.EOF {
			return subs
		}
		if err != nil {
			break
		}
	}
	l.markIncomplete()
	return subs
}

// openDir opens a directory below the directory with the descriptor top. It follows no link.
func openDir(top int, rel string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC, // NONBLOCK, because a FIFO may be there by now
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	for {
		fd, err := unix.Openat2(top, rel, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), rel), nil
		case err != unix.EINTR:
			return nil, err
		}
	}
}

// countName counts one name in a directory. It reports whether the name is a directory to enter.
func (l *look) countName(fd int, state *pattern.State, rel, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false // gone meanwhile
	}
	kind := pattern.Other
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		kind = pattern.Dir
	case unix.S_IFLNK:
		kind = pattern.Link
	}
	if v := state.Judge(rel, name, kind, nil); v.Effect == pattern.Hide || v.Effect == pattern.Deny {
		l.update(func(a *control.Preview) {
			a.Withheld++
			if len(a.Examples) < previewExamples {
				a.Examples = append(a.Examples, names.Text(names.Escape(path.Join(rel, name))))
			}
		})
		return false
	}
	if kind != pattern.Dir {
		l.update(func(a *control.Preview) {
			a.Files++
			if st.Mode&unix.S_IFMT == unix.S_IFREG {
				a.Bytes += st.Size
			}
		})
		return false
	}
	l.update(func(a *control.Preview) { a.Dirs++ })
	return st.Dev == l.dev
}
