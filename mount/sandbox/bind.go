package sandbox

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
)

// This file is the caller's side of roots that are granted while the command runs. Most of them
// appear by themselves, because their directory was bound at the start. For the others the init
// binds a part of the tree on request.

// answerLimit is how long the init may take to answer. It makes only a few system calls, but
// the machine may be busy.
const answerLimit = 20 * time.Second

// binder is the caller's state for binding roots while the command runs.
type binder struct {
	canBind  bool
	single   []string // roots bound one by one at the start; nil without canBind
	writable []string // directories to which Landlock lets the command write; nil without canBind

	mu       sync.Mutex            // held during a request; guards the field below
	requests int                   // number of requests so far
	answers  chan initproc.Message // from supervise
}

// Follows reports whether a root that the tree shows at a path appears at that path
// inside without Bind.
func (p *Process) Follows(path string) bool { return follows(path, p.report.Follows) }

// follows reports whether a path is one of the directories, or lies in one. A directory that lies
// directly in /tmp (see tmpTops in package layout) counts only for the paths below it.
func follows(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return names.Under(path, dir) && (path != dir || filepath.Dir(dir) != "/tmp")
	})
}

// BoundRoots returns the roots that Start has bound one by one, or nil if CanBind is false. They do
// not follow the tree: a bind stays when its root ends, until Unbind or another Bind at its path.
func (p *Process) BoundRoots() []string { return slices.Clone(p.binder.single) }

// CanWrite reports whether Landlock lets the command write to a root that Bind shows at a
// path, wherever the root lies in the tree. If CanBind is false, so is CanWrite.
func (p *Process) CanWrite(at string) bool { return follows(filepath.Dir(at), p.binder.writable) }

// CanBind reports whether Bind can work: at level Namespaces, with Map Same and Options.Spare.
func (p *Process) CanBind() bool { return p.binder.canBind }

// Bind shows a file or directory of the tree inside. from is its path in the tree, and at is its
// path inside. Bind covers a file or directory that is at this path already. If there is none, Bind
// makes an empty one and the missing parent directories, which works only in a directory that the
// command owns. The command may write to the bound file or directory if the tree and Landlock permit
// it. Landlock's rules do not change after the start. They permit it if the path from is one of
// Options.Spare, or if the path at lies in a directory where the command may write anyway. Bind
// returns when the command can see the file or directory.
func (p *Process) Bind(from, at string) error {
	return p.ask(initproc.Message{Kind: initproc.KindBind, From: from, At: at})
}

// Unbind hides a root that Bind, or Start (see BoundRoots), has shown at a path.
func (p *Process) Unbind(at string) error {
	return p.ask(initproc.Message{Kind: initproc.KindBind, At: at})
}

// ask sends a message to the init, and waits for its answer.
func (p *Process) ask(m initproc.Message) error {
	l := &p.binder
	if !l.canBind {
		return cannot("nothing can be shown at %s while the command runs: its confinement was not made for it", m.At)
	}
	if !filepath.IsAbs(m.At) || filepath.Clean(m.At) != m.At || m.At == "/" || strings.IndexByte(m.At, 0) >= 0 {
		return invalid("%q is not an absolute path without . and .. below /", m.At)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	m.Code = l.requests
	if err := p.send(m); err != nil {
		return failed("ask for %s inside: %w", m.At, err)
	}
	limit := time.NewTimer(answerLimit)
	defer limit.Stop()
	for {
		select {
		case a := <-l.answers:
			switch {
			case a.Code != m.Code: // the answer to a request that was given up
			case a.Error != "":
				return failed("%s inside: %s", m.At, a.Error)
			default:
				return nil
			}
		case <-p.dead:
			return failed("%s inside: the command has ended", m.At)
		case <-limit.C:
			return failed("%s inside: no answer within %v", m.At, answerLimit)
		}
	}
}

// deliver passes the init's answer to ask. It never waits.
func (l *binder) deliver(m initproc.Message) {
	select {
	case l.answers <- m:
	default: // the caller has given up
	}
}
