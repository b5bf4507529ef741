package guard

import (
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Repositories that the root's users make themselves work: what git runs for
// them was theirs from the beginning, so protecting it would protect nothing.
// They are remembered for the lifetime of the root, by path and identity, told
// to the owner, and not trusted: their hooks and configuration are a server's.
// Those of an earlier lifetime are protected like the owner's, as they are now.

// maxRepos bounds what is remembered of one root; what is made beyond it is
// protected like any other.
const maxRepos = 4096

type repos struct {
	mu sync.RWMutex        // guards the field below
	m  map[string]Identity // by path below the root
}

// made reports whether what lies at a path was made by the root's users.
func (r *repos) made(rel string, id Identity) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	have, ok := r.m[rel]
	return ok && have == id
}

// around reports whether a path is, or lies in, something made by the root's
// users that is still what it was; look tells what is there now.
func (r *repos) around(path string, look func(rel string) (Identity, bool)) bool {
	var at []string
	r.mu.RLock()
	if len(r.m) > 0 {
		for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
			if _, ok := r.m[path[:end]]; ok {
				at = append(at, path[:end])
			}
		}
	}
	r.mu.RUnlock()
	return slices.ContainsFunc(at, func(rel string) bool {
		id, ok := look(rel)
		return ok && r.made(rel, id)
	})
}

func (r *repos) add(rel string, id Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]Identity{}
	}
	if _, known := r.m[rel]; known || len(r.m) < maxRepos {
		r.m[rel] = id
	}
}

// move follows a rename; with exchange both names hold something afterwards.
func (r *repos) move(from, to string, exchange bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.m) == 0 {
		return
	}
	next := make(map[string]Identity, len(r.m))
	for rel, id := range r.m {
		switch {
		case rel == from || strings.HasPrefix(rel, from+"/"):
			rel = to + rel[len(from):]
		case exchange && (rel == to || strings.HasPrefix(rel, to+"/")):
			rel = from + rel[len(to):]
		case rel == to || strings.HasPrefix(rel, to+"/"):
			continue
		}
		next[rel] = id
	}
	r.m = next
}

// tops are the directories of the repositories made, sorted.
func (r *repos) tops() (out []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for rel := range r.m {
		if dir, base := splitRel(rel); base == gitDir {
			out = append(out, dir)
		}
	}
	slices.Sort(out)
	return out
}

const gitDir = ".git"

// gitPart reports whether what is made at a path is a part of a repository that
// git looks after as a whole: the .git of one, or what stands for a worktree or
// a submodule inside it.
func gitPart(rel string, dir bool) bool {
	elems := strings.Split(rel, "/")
	for i := len(elems) - 1; i >= 0; i-- {
		if elems[i] != gitDir {
			continue
		}
		in := elems[i+1:]
		switch {
		case len(in) == 0:
			return true
		case !dir || len(in) < 2:
			return false
		}
		return in[0] == "worktrees" && len(in) == 2 || in[0] == "modules"
	}
	return false
}

// MadeName tells the lease what the operation has made, and at what name: a
// repository of the root's users is remembered as theirs.
func (l *Lease) MadeName(dirRel, name string, id Identity, dir bool) {
	if !l.patterned {
		return
	}
	_ = l.eachRules(under(dirRel, name), func(r *root, _ *ruleset, rel string) error {
		if r.policy.Load().NoDefaults || !gitPart(rel, dir) || (*rootFacts)(r).Made(rel) {
			return nil
		}
		r.repos.add(rel, id)
		if _, base := splitRel(rel); base == gitDir && r == l.root && l.learned != nil {
			l.learned.repo.Store(true)
		}
		return nil
	})
}

// untrusted is what the record of a repository's making says.
const untrusted = "a repository created by the server: its hooks and configuration are untrusted"

// MovedName tells the lease that the operation has moved a name, or with exchange
// two.
func (l *Lease) MovedName(from, to string, exchange bool) {
	if !l.patterned {
		return
	}
	l.root.repos.move(from, to, exchange)
	for i := range l.fences.list {
		n := &l.fences.list[i]
		if f, ok := strings.CutPrefix(from, n.rel+"/"); ok && n.root != nil {
			if t, ok := strings.CutPrefix(to, n.rel+"/"); ok {
				n.root.repos.move(f, t, exchange)
			}
		}
	}
}

func (l *Lease) madeRepo() bool { return l.learned != nil && l.learned.repo.Load() }

// noteRepo tells the owner of a new repository.
func (l *Lease) noteRepo() {
	if l.madeRepo() {
		dir, _ := l.req.Path.Split()
		l.reg.notify(Event{Kind: EventRepository, Root: l.root.name, Detail: names.Escape(dir.String()) + ": " + untrusted})
	}
}
