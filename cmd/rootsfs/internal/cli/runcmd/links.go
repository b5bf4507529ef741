package runcmd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// linkRule decides which links that leave their root the command is shown. It is for
// the private mount of a run alone: who walks that mount is the command, whose root
// directory is the sandbox's, so that the kernel resolves the link there. It is as
// harmless where the mount has a place on the host: only the owner, who reaches the
// links of the source as well, can enter that place.
type linkRule struct {
	level atomic.Uint32 // of confinement; sandbox.Level

	mu      sync.Mutex // guards the fields below
	refused map[guard.Path]int
	last    guard.Path // of refused; the zero Path: none
}

// maxRefusedLinks bounds the links noted: a command may be refused as many as it
// likes.
const maxRefusedLinks = 1000

// observe notes the links that were refused.
func (l *linkRule) observe(e guard.Event) {
	rec := e.Record
	if rec == nil || rec.Op != names.OpReadlink || rec.Kind != names.Escaped || rec.Path.Root == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[guard.Path]int{}
	}
	if _, known := l.refused[rec.Path]; known || len(l.refused) < maxRefusedLinks {
		l.refused[rec.Path]++
	}
	l.last = rec.Path
}

// refusedLink is a link that the command was refused, on the host.
type refusedLink struct {
	at, text names.Foreign // text is its target as it is written
	dest     string
	times    int
}

func (r refusedLink) String() string {
	return fmt.Sprintf("the link %q leads to %q", r.at, r.text)
}

// read looks at a link as it is now.
func (l *linkRule) read(reg *guard.Registry, p guard.Path, times int) (refusedLink, bool) {
	dir, ok := reg.Dir(p.Root)
	if !ok {
		return refusedLink{}, false
	}
	at := filepath.Join(dir, p.Rel())
	text, err := os.Readlink(at)
	if err != nil {
		return refusedLink{}, false
	}
	r := refusedLink{at: names.Foreign(at), text: names.Foreign(text), dest: filepath.Clean(text), times: times}
	if !filepath.IsAbs(text) {
		r.dest = filepath.Join(filepath.Dir(at), text)
	}
	return r, true
}

// list returns the links that were refused, in order, as they are now.
func (l *linkRule) list(reg *guard.Registry) []refusedLink {
	l.mu.Lock()
	refused := maps.Clone(l.refused)
	l.mu.Unlock()
	var out []refusedLink
	for p, times := range refused {
		if r, ok := l.read(reg, p, times); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b refusedLink) int { return cmp.Compare(a.at, b.at) })
	return out
}

// explain puts the link that was refused last into the error of a command that could
// not be executed, in which nothing else can have been refused a link yet.
func (l *linkRule) explain(reg *guard.Registry, name string, err error) error {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last.Root == "" || !errors.Is(err, sandbox.ErrNotExecutable) {
		return err
	}
	r, ok := l.read(reg, last, 1)
	if !ok {
		return err
	}
	remedy := "approve that too, with --root " + names.ShellWord(r.dest+":ro")
	if sandbox.Level(l.level.Load()).Shows(r.dest) {
		remedy = "--links visible shows such a link"
	}
	return &cli.ExitError{Code: cli.ExitNotExecutable, Err: fmt.Errorf("the command %s cannot be executed: %v, which is refused; %s", names.Quote(name), r, remedy)}
}

// chosen is told of the level of confinement, before the command is started.
func (l *linkRule) chosen(level sandbox.Level) { l.level.Store(uint32(level)) }

// visible is mount.Options.Visible.
func (l *linkRule) visible(dest string, relative bool) bool {
	switch level := sandbox.Level(l.level.Load()); level {
	case sandbox.Namespaces, sandbox.Bubblewrap:
		return dest == "" || level.Shows(dest)
	case sandbox.Landlock:
		// The command is in the host's root directory, and the roots are in the
		// mount: only a relative link leads from one to another, and none of
		// these to what is outside of the mount.
		if dest == "" {
			return relative
		}
		return !relative && level.Shows(dest)
	}
	return false // not confined: the host resolves the link
}
