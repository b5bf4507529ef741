package guard

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Repositories that the root's users make themselves work: what git runs for
// them was theirs from the beginning, so protecting it would protect nothing.
// They are remembered for the lifetime of the root, by path and identity, told
// to the owner, and not trusted: their hooks and configuration are a server's.
// Those of an earlier lifetime are protected like the owner's, as they are now.
//
// Status tells of them from memory: it is asked on the way to a revocation, and a
// look at a file system may take for ever (something that hangs may be mounted over
// a repository). So it tells also of one that the owner has removed or replaced.
//
// A bare repository is told by what it holds, not by its name: a directory becomes
// one when the last of the names that git looks for comes to be in it. That it is
// remembered lifts the rules about such directories (pattern.GitDir) for this one,
// and no other rule: else who completed a directory of the owner's to one would lift
// what is protected below. A repository of the owner's cannot be completed again, as
// the names it is known by are neither removed nor moved.

// maxRepos bounds what is remembered of one root; what is made beyond it is
// protected like any other.
const maxRepos = 4096

type repos struct {
	mu sync.RWMutex    // guards the field below
	m  map[string]repo // by path below the root
}

// repo is a part of a repository that is remembered as one: its .git, what stands
// for a worktree or a submodule inside that, or the directory that is a bare one.
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

// around reports whether a path is, or lies in, something made by the root's
// users that is still what it was; look tells what is there now. With bare, a bare
// repository counts for itself and for those of its submodules and worktrees, not
// for what else lies in its directory: that may be the owner's.
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

// none reports whether nothing is remembered, as of nearly every root.
func (r *repos) none() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.m) == 0
}

// drop forgets what has been removed.
func (r *repos) drop(rel string) {
	if r.none() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, rel)
}

// move follows a rename; with exchange both names hold something afterwards.
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

// tops are the directories of the repositories made, sorted: that of a worktree's or
// a submodule's inside a .git is itself one.
func (r *repos) tops() (out []string) {
	r.mu.RLock()
	for rel := range r.m {
		out = append(out, repoTop(rel))
	}
	r.mu.RUnlock()
	slices.Sort(out)
	return slices.Compact(out)
}

// repoTop is how the owner is told of something that is remembered.
func repoTop(rel string) string {
	if dir, base := splitRel(rel); slices.Contains(vcsTops, base) {
		return dir
	}
	return rel
}

const gitDir = ".git"

// vcsPart reports whether what is made at a path is a part of a repository that its
// tool looks after as a whole: the .git or .hg of one, what stands for a worktree or
// a submodule inside a git directory, or for a rebase that has begun. gitDir tells of
// a directory that is not called .git whether it is one of git's.
func vcsPart(rel string, dir bool, gitDirAt func(rel string) bool) bool {
	elems := strings.Split(rel, "/")
	last := elems[len(elems)-1]
	if slices.Contains(vcsTops, last) || !dir && strings.HasSuffix(last, ".fossil") {
		return true
	}
	for i := len(elems) - 1; dir && i >= 0; i-- {
		if elems[i] == gitDir {
			return inGitDir(elems[i+1:])
		}
		if inGitDir(elems[i:]) && gitDirAt(strings.Join(elems[:i], "/")) {
			return true
		}
	}
	return false
}

// inGitDir reports whether a directory with this path below one of git's is a part of
// its own.
func inGitDir(in []string) bool {
	switch {
	case len(in) == 0:
		return false
	case in[0] == "worktrees":
		return len(in) == 2 || len(in) == 3 && isWork(in[2])
	}
	return len(in) == 1 && isWork(in[0]) || len(in) > 1 && in[0] == "modules"
}

// mayBePart reports whether vcsPart has to be asked about a path: rarely.
func mayBePart(dirRel, name string) bool {
	if slices.Contains(vcsTops, name) || isWork(name) || strings.HasSuffix(name, ".fossil") {
		return true
	}
	return strings.Contains(dirRel, "modules") || strings.HasSuffix(dirRel, "worktrees")
}

// isWork reports whether git keeps in a directory of this name what it has begun:
// commands that it runs when told to go on.
func isWork(name string) bool {
	return name == "rebase-merge" || name == "rebase-apply" || name == "sequencer"
}

// NoteName tells the lease what the operation has made, and at what name: a
// repository of the root's users is remembered as theirs, also where nothing is
// protected, because the owner is told of it.
func (l *Lease) NoteName(dirRel, name string, id Identity, dir bool) {
	if mayBePart(dirRel, name) {
		_ = l.eachRoot(under(dirRel, name), func(r *root, rel string) error {
			f := (*rootFacts)(r)
			if vcsPart(rel, dir, f.bare) && !r.repos.around(rel, true, f.identity) {
				l.rememberRepo(r, rel, repo{id: id})
			}
			return nil
		})
	}
	l.NoteNewName(dirRel, name)
}

// NoteNewName tells the lease that something has come to have a name which nothing
// had: with it the directory may have become a bare repository. MadeName includes
// it.
func (l *Lease) NoteNewName(dirRel, name string) {
	if !barePart(name) {
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

// barePart reports whether a name is one of those by which a directory is known as a
// repository, in any case: the source may take one for the other.
func barePart(name string) bool {
	return slices.ContainsFunc(bareParts, func(part string) bool { return strings.EqualFold(part, name) })
}

var (
	gitParts  = pattern.GitDir.Parts()
	svnParts  = pattern.SvnDir.Parts()
	bareParts = slices.Concat(gitParts, svnParts, []string{"commondir"})
)

// bare reports whether a tool would take a directory itself for a repository. A
// directory of git's that leads to another has a commondir instead of the rest.
func (f *rootFacts) bare(dir string) bool {
	has := func(name string) bool {
		_, err := f.look(under(dir, name))
		return err == nil
	}
	all := func(parts []string) bool {
		return !slices.ContainsFunc(parts, func(name string) bool { return !has(name) })
	}
	return all(gitParts) || has(gitParts[0]) && has("commondir") || all(svnParts)
}

// identity is what lies at a path.
func (f *rootFacts) identity(rel string) (Identity, bool) {
	got, err := f.look(rel)
	return got.ID, err == nil
}

// rememberRepo keeps in mind what the operation has made in r.
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

// noteRepo tells the owner of a new repository.
func (l *Lease) noteRepo() {
	if l.madeRepo() {
		at, _ := names.NewPath(l.root.name, *l.notes.repo.Load())
		l.reg.notify(Event{Kind: EventRepository, Root: l.root.name, Detail: names.Escape(at.String()) + ": " + untrusted})
	}
}

// rootFacts answers what built-in rules ask about a root's files. What cannot be
// found out holds. Other file systems are looked at only where the root's users
// reach them: what is mounted in a root without that may hang for ever.
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
	for _, name := range vcsTops {
		top := under(dir, name)
		got, err := f.look(top)
		if err != nil && !errors.Is(err, names.NotExist) || err == nil && !f.repos.has(top, got.ID) {
			return true
		}
	}
	return false
}

// vcsTops are the names by which version control systems know a project.
var vcsTops = pattern.Tops()

// Bare implements pattern.Facts.
func (f *rootFacts) Bare(dir string, parts []string) bool {
	for _, name := range parts {
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
	return len(head) == maxNpmrc || hasTokens(string(head))
}

// variable is a value that npm takes from its environment, and nothing else.
var variable = regexp.MustCompile(`^\$\{[^{}]*\}$`)

// hasTokens reports whether an .npmrc holds credentials rather than the names of
// environment variables that do. It reads lines, quotes and lists (KEY[]) as npm.
func hasTokens(text string) bool {
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
	for _, line := range lines {
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSuffix(strings.ToLower(strings.Trim(key, " \t\"'")), "[]")
		value = strings.Trim(value, " \t\"'")
		if !ok || value == "" || variable.MatchString(value) {
			continue
		}
		if strings.Contains(value, "PRIVATE KEY") {
			return true
		}
		for _, secret := range []string{"_authtoken", "_auth", "_password"} {
			if strings.HasSuffix(key, secret) {
				return true
			}
		}
	}
	return false
}

// lookedInto notes that a file's contents were asked about.
type lookedInto struct {
	*rootFacts
	readContents bool
}

func (f *lookedInto) Tokens(path string) bool {
	f.readContents = true
	return f.rootFacts.Tokens(path)
}
