package rules

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// The root's users may create repositories, and write the hooks and configuration of these
// repositories. All that git runs there was made by the users, so a protection would be useless.
// Such a repository is remembered for the lifetime of the root, by path and identity. It is
// reported to the owner as untrusted. After that lifetime it is protected like the owner's
// repositories.
//
// RootFacts.Repos lists repositories from memory, because the owner may need the status of a
// session to revoke a root, and access to a repository may hang if something that hangs is mounted
// over it. So Repos may list a repository that the owner has removed or replaced.
//
// A bare repository is recognised by the names in it: a directory becomes a bare repository when
// the last of the names that git or Subversion looks for is created there. Remembering a bare
// repository lifts the rules about such directories (pattern.GitDir and pattern.SvnDir), and no
// other rule. If it lifted other rules, too, a program could add the missing names to a directory
// of the owner's, and so lift the protection of the files below. A program cannot lift the rules
// about a bare repository of the owner's: the names by which that repository is recognised can be
// neither removed nor moved, and so are never created there again.

// maxRepos bounds how many repositories are remembered for one root. Further ones are
// protected like the owner's.
const maxRepos = 4096

type repos struct {
	mu sync.RWMutex    // guards the field below
	m  map[string]repo // by path below the root
}

// repo is a remembered part of a repository, such as a .git, the directory of a worktree or
// submodule inside a .git (builtin.IsPart), or a bare repository.
type repo struct {
	id   Identity
	bare bool
}

// has reports whether the file at a path is remembered as a part of a repository that is not bare.
func (r *repos) has(rel string, id Identity) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	have, ok := r.m[rel]
	return ok && !have.bare && have.id == id
}

// covers reports whether a path is, or lies in, a repository that the root's users made and
// that still exists. look returns the identity of the file that is at a path now. With bare, a bare
// repository counts, too, but only for its own directory, its submodules and its worktrees. Other
// files in the directory may be the owner's.
func (r *repos) covers(path string, bare bool, look func(rel string) (Identity, bool)) bool {
	at := map[string]repo{}
	add := func(top string) {
		have, ok := r.m[top]
		below := strings.TrimPrefix(path[len(top):], "/")
		isRepoPart := below == "" || strings.HasPrefix(below, "modules/") || strings.HasPrefix(below, "worktrees/")
		if ok && (!have.bare || bare && isRepoPart) {
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

func (r *repos) add(rel string, part repo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]repo{}
	}
	if _, known := r.m[rel]; known || len(r.m) < maxRepos {
		r.m[rel] = part
	}
}

// none reports whether no repository is remembered, as for nearly every root.
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
	for rel, part := range r.m {
		switch {
		case rel == from || strings.HasPrefix(rel, from+"/"):
			rel = to + rel[len(from):]
		case exchange && (rel == to || strings.HasPrefix(rel, to+"/")):
			rel = from + rel[len(to):]
		case rel == to || strings.HasPrefix(rel, to+"/"):
			continue
		}
		next[rel] = part
	}
	r.m = next
}

// tops returns the directories of the remembered repositories, sorted. Directories of worktrees
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

// repoTop returns the path by which the owner knows a remembered part. For a .git, or its like for
// other tools (builtin.Tops), that path is the directory that contains it.
func repoTop(rel string) string {
	if dir, base := Split(rel); slices.Contains(builtin.Tops, base) {
		return dir
	}
	return rel
}

// NotePart records that a file or directory has got the name rel. If that begins a repository or a
// part of one (builtin.IsPart), and rel lies in no remembered repository, the file or directory is
// remembered as made by the root's users. NotePart then returns the path for the report to the
// owner. remembered is true even if the bound maxRepos keeps the file from being remembered.
func (f *RootFacts) NotePart(rel string, id Identity, dir bool) (top string, remembered bool) {
	if !builtin.IsPart(rel, dir, f.bare) || f.repos.covers(rel, true, f.identity) {
		return "", false
	}
	f.repos.add(rel, repo{id: id})
	return repoTop(rel), true
}

// NoteNewName records that the name rel exists now and did not exist before. If the directory of
// rel has become a bare repository by that, the repository is remembered as in NotePart.
func (f *RootFacts) NoteNewName(rel string) (top string, remembered bool) {
	dir, _ := Split(rel)
	if !f.bare(dir) || f.repos.covers(dir, true, f.identity) {
		return "", false
	}
	id, ok := f.identity(dir)
	if !ok {
		return "", false
	}
	f.repos.add(dir, repo{id: id, bare: true})
	return repoTop(dir), true
}

// NoteRemoved records that a name was removed.
func (f *RootFacts) NoteRemoved(rel string) { f.repos.drop(rel) }

// NoteMoved records that a name was moved, or with exchange that two names were swapped.
func (f *RootFacts) NoteMoved(from, to string, exchange bool) { f.repos.move(from, to, exchange) }

// Repos returns the directories, below the root, of the repositories that its users made,
// sorted.
func (f *RootFacts) Repos() []string { return f.repos.tops() }

// IsMade reports whether a file is remembered as a part of a repository that the root's users made
// themselves, and that is not bare. It also reports true for the directory of a submodule or
// worktree in such a repository: git may move that directory out to be the .git of a working copy.
func (f *RootFacts) IsMade(rel string, id Identity, t pattern.Type) bool {
	return f.repos.has(rel, id) ||
		t == pattern.Dir && builtin.IsPart(rel, true, f.bare) && f.repos.covers(rel, false, f.identity)
}

// bare reports whether a tool would take a directory itself for a repository.
func (f *RootFacts) bare(dir string) bool {
	return builtin.IsBare(func(name string) bool {
		_, err := f.look(Join(dir, name))
		return err == nil
	})
}

// identity returns the identity of the file at a path.
func (f *RootFacts) identity(rel string) (Identity, bool) {
	got, err := f.look(rel)
	return got.ID, err == nil
}

// RootFacts answers the questions of built-in rules about a root's files. If the answer cannot
// be found out, the rule applies. A mounted file system may hang for ever, so RootFacts reads other
// file systems only if the root's users can reach them.
type RootFacts struct {
	tree   Tree
	across bool // the root's users can reach other file systems that are mounted in the root
	repos  repos
}

// NewRootFacts returns the facts of a root whose users have made no repository yet. across says
// that the users can reach other file systems that are mounted in the root.
func NewRootFacts(t Tree, across bool) *RootFacts { return &RootFacts{tree: t, across: across} }

var _ pattern.Facts = (*RootFacts)(nil)

func (f *RootFacts) look(rel string) (LookResult, error) {
	return f.tree.Look(rel, f.across)
}

func (f *RootFacts) foldsAt(dir string) bool { return f.tree.FoldsAt(dir, f.across) }

// IsDir implements pattern.Facts.
func (f *RootFacts) IsDir(path string) bool {
	got, err := f.look(path)
	return err == nil && got.Dir || err != nil && !errors.Is(err, names.NotExist)
}

// IsTop implements pattern.Facts.
func (f *RootFacts) IsTop(dir string) bool {
	for _, name := range builtin.Tops {
		top := Join(dir, name)
		got, err := f.look(top)
		if err != nil && !errors.Is(err, names.NotExist) || err == nil && !f.repos.has(top, got.ID) {
			return true
		}
	}
	return false
}

// IsBare implements pattern.Facts.
func (f *RootFacts) IsBare(dir string, kind pattern.Condition) bool {
	for _, name := range builtin.Parts(kind) {
		if _, err := f.look(Join(dir, name)); errors.Is(err, names.NotExist) {
			return false
		}
	}
	return !f.repos.covers(dir, true, f.identity)
}

// IsInUserRepo implements pattern.Facts. Some repositories are SQLite databases: the journals of
// such a database, which SQLite writes beside it, belong to the repository, too.
func (f *RootFacts) IsInUserRepo(path string) bool {
	if f.repos.covers(path, false, f.identity) {
		return true
	}
	for _, suffix := range [...]string{"-journal", "-wal"} {
		if database, ok := strings.CutSuffix(path, suffix); ok {
			return f.repos.covers(database, false, f.identity)
		}
	}
	return false
}

// maxNpmrc bounds the size of a file that is searched for tokens, in bytes. A file that is as long
// or longer counts as one with a token.
const maxNpmrc = 64 << 10

// HasTokens implements pattern.Facts.
func (f *RootFacts) HasTokens(path string) bool {
	head, err := f.tree.Head(path, maxNpmrc, f.across)
	if err != nil {
		return !errors.Is(err, names.NotExist)
	}
	return len(head) == maxNpmrc || builtin.HasTokens(string(head))
}

// contentsRecorder is RootFacts that records whether a rule asked about a file's contents.
type contentsRecorder struct {
	*RootFacts
	readContents bool
}

func (f *contentsRecorder) HasTokens(path string) bool {
	f.readContents = true
	return f.RootFacts.HasTokens(path)
}
