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

// The caller's side of roots that are granted while the command runs. Most appear by
// themselves, because their directory was bound at the start. For the others the init binds a
// part of the tree on request.

// answerLimit is how long the init may take to answer. It makes only a few system calls, but
// the machine may be busy.
const answerLimit = 20 * time.Second

// later is the caller's state for binding roots while the command runs.
type later struct {
	can    bool
	single []string // roots bound one by one at the start
	writes []string // where Landlock lets the command write

	mu      sync.Mutex            // one question at a time; guards the field below
	asked   int                   // questions so far
	answers chan initproc.Message // from supervise
}

// Follows reports whether a root that the tree shows at a path appears at that path
// inside without Bind.
func (p *Process) Follows(path string) bool { return follows(path, p.report.Follows) }

// follows reports whether a path is one of the directories, or lies in one. A directory
// in /tmp (tmpTops) does not become a root by itself.
func follows(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return names.Under(path, dir) && (path != dir || filepath.Dir(dir) != "/tmp")
	})
}

// Single returns the roots that Start has bound one by one. They do not follow the
// tree: one that has ended stays as it was until Unbind, or Bind again.
func (p *Process) Single() []string { return slices.Clone(p.later.single) }

// Writes reports whether Landlock lets the command write to a root that Bind shows at a
// path, whatever its place in the tree.
func (p *Process) Writes(at string) bool { return follows(filepath.Dir(at), p.later.writes) }

// CanBind reports whether Bind can work: at level Namespaces, with Options.Spare.
func (p *Process) CanBind() bool { return p.later.can }

// Bind shows a file or directory of the tree, by its path there, at a path inside. It covers a
// file or directory that is there. Missing parent directories are made if the command owns the
// place. The command may write there if the tree permits it and from is one of Options.Spare,
// or at lies in a directory where it may write anyway: Landlock's rules stay those of the
// start. Bind returns when the command can see it.
func (p *Process) Bind(from, at string) error {
	return p.ask(initproc.Message{Kind: initproc.KindBind, From: from, At: at})
}

// Unbind hides a root that Bind, or Start (see Single), has shown at a path.
func (p *Process) Unbind(at string) error {
	return p.ask(initproc.Message{Kind: initproc.KindBind, At: at})
}

// ask sends a message to the init, and waits for its answer.
func (p *Process) ask(m initproc.Message) error {
	l := &p.later
	if !l.can {
		return cannot("nothing can be shown at %s while the command runs: its confinement was not made for it", m.At)
	}
	if !filepath.IsAbs(m.At) || filepath.Clean(m.At) != m.At || m.At == "/" || strings.IndexByte(m.At, 0) >= 0 {
		return invalid("%q is not an absolute path without . and .. below /", m.At)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	m.Code = l.asked
	if err := p.tell(m); err != nil {
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

// answered passes the init's answer on; it never waits.
func (l *later) answered(m initproc.Message) {
	select {
	case l.answers <- m:
	default: // the caller has given up
	}
}
