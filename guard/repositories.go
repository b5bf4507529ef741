package guard

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// The root's users may create repositories and write their hooks and configuration: what git
// runs there was theirs from the beginning, so protecting it would protect nothing. Such a
// repository is remembered for the lifetime of the root, by path and identity. It is
// reported to the owner as untrusted. After that lifetime it is protected like the owner's
// repositories.
//
// Status lists repositories from memory: it is called on the way to a revocation, and a look
// at the file system may hang, if something that hangs is mounted over a repository. So it
// may list a repository that the owner has removed or replaced.
//
// A bare repository is recognised by the names in it: a directory becomes one when the last
// of the names that git looks for is created there. Remembering it lifts the rules about such
// directories (pattern.GitDir) for this directory, and no other rule. Otherwise a program
// could add the missing names to a directory of the owner's, and so lift the protection of
// what lies below. With a repository of the owner's that does not work, because the names by
// which it is recognised can be neither removed nor moved.

// maxRepos bounds how many repositories are remembered for one root. Further ones are
// protected like the owner's.
const maxRepos = 4096

type repos struct {
	mu sync.RWMutex    // guards the field below
	m  map[string]repo // by path below the root
}

// repo is a remembered part of a repository: a .git, the directory of a worktree or
// submodule inside a .git, or a bare repository.
type repo struct {
	id   Identity
	bare bool
}

// has reports whether what lies at a path was made by the root's users.
func (r *repos) has(rel string, id Identity) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	have, ok := r.m[rel]
	return ok && !have.bare && have.id == id
}

// around reports whether a path is, or lies in, a repository made by the root's users that
// is still there. look returns what lies at a path now. With bare, a bare repository counts,
// too, but only for its own directory, its submodules and its worktrees. Other files in the
// directory may be the owner's.
func (r *repos) around(path string, bare bool, look func(rel string) (Identity, bool)) bool {
	at := map[string]repo{}
	add := func(top string) {
		have, ok := r.m[top]
		below := strings.TrimPrefix(path[len(top):], "/")
		own := below == "" || strings.HasPrefix(below, "modules/") || strings.HasPrefix(below, "worktrees/")
		if ok && (!have.bare || bare && own) {
			at[top] = have
		}
	}
	r.mu.RLock()
	if len(r.m) > 0 {
		for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
			add(path[:end])
		}
		add("")
	}
	r.mu.RUnlock()
	for rel, have := range at {
		if id, ok := look(rel); ok && id == have.id {
			return true
		}
	}
	return false
}

func (r *repos) add(rel string, made repo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]repo{}
	}
	if _, known := r.m[rel]; known || len(r.m) < maxRepos {
		r.m[rel] = made
	}
}

// none reports whether nothing is remembered, which is so for nearly every root.
func (r *repos) none() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.m) == 0
}

// drop forgets a path that has been removed.
func (r *repos) drop(rel string) {
	if r.none() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, rel)
}

// move changes the remembered paths after a rename. With exchange, from and to were swapped.
func (r *repos) move(from, to string, exchange bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.m) == 0 {
		return
	}
	next := make(map[string]repo, len(r.m))
	for rel, made := range r.m {
		switch {
		case rel == from || strings.HasPrefix(rel, from+"/"):
			rel = to + rel[len(from):]
		case exchange && (rel == to || strings.HasPrefix(rel, to+"/")):
			rel = from + rel[len(to):]
		case rel == to || strings.HasPrefix(rel, to+"/"):
			continue
		}
		next[rel] = made
	}
	r.m = next
}

// tops are the directories of the remembered repositories, sorted. Directories of worktrees
// and submodules inside a .git are listed, too.
func (r *repos) tops() (out []string) {
	r.mu.RLock()
	for rel := range r.m {
		out = append(out, repoTop(rel))
	}
	r.mu.RUnlock()
	slices.Sort(out)
	return slices.Compact(out)
}

// repoTop is the path by which the owner is told of a remembered part: of a .git it is the
// directory that holds the .git.
func repoTop(rel string) string {
	if dir, base := splitRel(rel); slices.Contains(builtin.Tops, base) {
		return dir
	}
	return rel
}

// NoteName tells the lease that the operation has created a file or directory, and its name.
func (l *Lease) NoteName(dirRel, name string, id Identity, dir bool) {
	l.NotePart(dirRel, name, id, dir)
	l.NoteNewName(dirRel, name)
}

// NotePart tells the lease that the operation has given a name to a file or directory, or
// has replaced one that had the name. If that begins a repository, the repository is
// remembered as one of the root's users. This is so in roots without protections, too,
// because the owner is told of it.
func (l *Lease) NotePart(dirRel, name string, id Identity, dir bool) {
	if !builtin.MayBePart(dirRel, name) {
		return
	}
	_ = l.eachRoot(under(dirRel, name), func(r *root, rel string) error {
		f := (*rootFacts)(r)
		if builtin.IsPart(rel, dir, f.bare) && !r.repos.around(rel, true, f.identity) {
			l.rememberRepo(r, rel, repo{id: id})
		}
		return nil
	})
}

// NoteNewName tells the lease that a name exists now that did not, by a rename or a link for
// example. With that name its directory may have become a bare repository. NoteName calls
// NoteNewName.
func (l *Lease) NoteNewName(dirRel, name string) {
	if !builtin.MayMakeBare(name) {
		return
	}
	_ = l.eachRoot(under(dirRel, name), func(r *root, rel string) error {
		dir, _ := splitRel(rel)
		f := (*rootFacts)(r)
		if !f.bare(dir) || r.repos.around(dir, true, f.identity) {
			return nil
		}
		if id, ok := f.identity(dir); ok {
			l.rememberRepo(r, dir, repo{id: id, bare: true})
		}
		return nil
	})
}

// bare reports whether a tool would take a directory itself for a repository.
func (f *rootFacts) bare(dir string) bool {
	return builtin.IsBare(func(name string) bool {
		_, err := f.look(under(dir, name))
		return err == nil
	})
}

// identity is what lies at a path.
func (f *rootFacts) identity(rel string) (Identity, bool) {
	got, err := f.look(rel)
	return got.ID, err == nil
}

// rememberRepo remembers a repository that the operation has made in r.
func (l *Lease) rememberRepo(r *root, rel string, made repo) {
	r.repos.add(rel, made)
	if r != l.root {
		return
	}
	l.ensureNotes()
	top := repoTop(rel)
	l.notes.repo.Store(&top)
}

// untrusted is what the record of a repository's making says.
const untrusted = "a repository created by the server: its hooks and configuration are untrusted"

// NoteRemoved tells the lease that the operation has removed a name.
func (l *Lease) NoteRemoved(rel string) {
	_ = l.eachRoot(rel, func(r *root, rel string) error { r.repos.drop(rel); return nil })
}

// NoteMoved tells the lease that the operation has moved a name, or with exchange
// two.
func (l *Lease) NoteMoved(from, to string, exchange bool) {
	l.root.repos.move(from, to, exchange)
	for i := range l.nesting.scopes {
		s := &l.nesting.scopes[i]
		f, moved := s.below(from)
		t, inside := s.below(to)
		if moved && inside {
			s.root.repos.move(f, t, exchange)
		}
	}
}

func (l *Lease) madeRepo() bool { return l.notes != nil && l.notes.repo.Load() != nil }

// noteRepo reports a new repository to the owner.
func (l *Lease) noteRepo() {
	if l.madeRepo() {
		at, _ := names.NewPath(l.root.name, *l.notes.repo.Load())
		l.reg.notify(Event{Kind: EventRepository, Root: l.root.name, Detail: names.Escape(at.String()) + ": " + untrusted})
	}
}

// rootFacts answers what built-in rules ask about a root's files. If the answer cannot be
// found out, the rule holds. Other file systems are looked at only where the root's users
// reach them: what is mounted in any other root may hang for ever.
type rootFacts root

var _ pattern.Facts = (*rootFacts)(nil)

// across reports whether the root's users reach other file systems in it.
func (f *rootFacts) across() bool { return f.policy.Load().OtherFileSystems }

func (f *rootFacts) look(rel string) (Looked, error) {
	return f.src.Look(rel, f.across())
}

func (f *rootFacts) foldsAt(dir string) bool { return f.src.FoldsAt(dir, f.across()) }

// IsDir implements pattern.Facts.
func (f *rootFacts) IsDir(path string) bool {
	got, err := f.look(path)
	return err == nil && got.Dir || err != nil && !errors.Is(err, names.NotExist)
}

// Top implements pattern.Facts.
func (f *rootFacts) Top(dir string) bool {
	for _, name := range builtin.Tops {
		top := under(dir, name)
		got, err := f.look(top)
		if err != nil && !errors.Is(err, names.NotExist) || err == nil && !f.repos.has(top, got.ID) {
			return true
		}
	}
	return false
}

// Bare implements pattern.Facts.
func (f *rootFacts) Bare(dir string, kind pattern.Condition) bool {
	for _, name := range builtin.Parts(kind) {
		if _, err := f.look(under(dir, name)); errors.Is(err, names.NotExist) {
			return false
		}
	}
	return !f.repos.around(dir, true, f.identity)
}

// Made implements pattern.Facts. A database's journals belong to the database.
func (f *rootFacts) Made(path string) bool {
	if f.repos.around(path, false, f.identity) {
		return true
	}
	for _, suffix := range [...]string{"-journal", "-wal"} {
		if database, ok := strings.CutSuffix(path, suffix); ok {
			return f.repos.around(database, false, f.identity)
		}
	}
	return false
}

// maxNpmrc is how much of a file is searched for tokens; what is longer is taken
// to hold one.
const maxNpmrc = 64 << 10

// Tokens implements pattern.Facts.
func (f *rootFacts) Tokens(path string) bool {
	head, err := f.src.Head(path, maxNpmrc, f.across())
	if err != nil {
		return !errors.Is(err, names.NotExist)
	}
	return len(head) == maxNpmrc || builtin.HasTokens(string(head))
}

// lookedInto notes whether a rule asked about a file's contents.
type lookedInto struct {
	*rootFacts
	readContents bool
}

func (f *lookedInto) Tokens(path string) bool {
	f.readContents = true
	return f.rootFacts.Tokens(path)
}
