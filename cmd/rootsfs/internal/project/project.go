// Package project finds the repository or project that a directory belongs to,
// for `--root auto`.
//
// # Promises
//
// The answer is never the file system's root, the home directory, or a directory that
// contains the home directory. A marker in a world-writable directory, such as /tmp, is
// ignored unless it belongs to root or to this user. The nearest repository wins over every
// project file, so that a module in a repository means the repository. Without a repository,
// the nearest workspace wins over the nearest project file, because the members of a
// workspace need one another. The package reads names, types, permissions and owners, and the
// beginning of a .git file. It reads no other contents, and runs no program.
//
// # Not promised
//
// A version control system may disagree: the package looks at the marker, and not at the rest of the
// repository. The answer may change at any time.
package project

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// class is the strength of a marker; a lower class wins.
type class int

const (
	repository class = iota
	workspace
	project
	classes
)

// markers are the names that mark the top of a repository or project, in the order in which top
// looks for them in a directory.
var markers = []struct {
	name, kind string
	class      class
	valid      func(path string, info fs.FileInfo) bool
}{
	{".git", "git", repository, isGit},
	{".hg", "mercurial", repository, isDir},
	{".jj", "jujutsu", repository, isDir},
	{".svn", "subversion", repository, isDir},
	{".bzr", "bazaar", repository, isDir},
	{"go.work", "go workspace", workspace, isFile},
	{"pnpm-workspace.yaml", "pnpm workspace", workspace, isFile},
	{"lerna.json", "lerna workspace", workspace, isFile},
	{"settings.gradle", "gradle build", workspace, isFile},
	{"settings.gradle.kts", "gradle build", workspace, isFile},
	{"MODULE.bazel", "bazel workspace", workspace, isFile},
	{"go.mod", "go module", project, isFile},
	{"package.json", "npm package", project, isFile},
	{"pyproject.toml", "python project", project, isFile},
	{"setup.py", "python project", project, isFile},
	{"Cargo.toml", "cargo package", project, isFile},
	{"pom.xml", "maven project", project, isFile},
	{"build.gradle", "gradle project", project, isFile},
	{"build.gradle.kts", "gradle project", project, isFile},
	{"composer.json", "composer package", project, isFile},
	{"Gemfile", "ruby project", project, isFile},
	{"mix.exs", "mix project", project, isFile},
	{"CMakeLists.txt", "cmake project", project, isFile},
}

// Detect returns the top of the repository or project that encloses dir, absolute
// and without links, and what kind it is ("git", "go module"). The error, a
// *names.Error, says what to write instead if there is none.
func Detect(dir string) (path, kind string, err error) {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		home = ""
	}
	return detect(dir, home)
}

func detect(dir, home string) (path, kind string, err error) {
	fail := func(kind names.Kind, format string, args ...any) (string, string, error) {
		return "", "", &names.Error{Kind: kind, Err: fmt.Errorf("root auto: "+format, args...)}
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return fail(names.KindOf(names.Errno(err)), "%s cannot be resolved: %v", names.Quote(dir), cause(err))
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		return fail(names.NotDir, "%s is not a directory", names.Quote(dir))
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	var found [classes]struct{ path, kind string }
	for at := abs; !contains(at, home); at = filepath.Dir(at) {
		kind, class, ok := top(at)
		if ok && found[class].path == "" {
			found[class].path, found[class].kind = at, kind
		}
		if ok && class == repository {
			break
		}
	}
	for _, f := range found {
		if f.path != "" {
			return f.path, f.kind, nil
		}
	}
	if contains(abs, home) {
		return fail(names.NotExist, "%s is too much for a root found by itself; change to a project's directory, or write --root PATH", names.Quote(abs))
	}
	return fail(names.NotExist, "neither a repository nor a project (.git, go.mod, package.json, …) encloses %s; write --root PATH", names.Quote(abs))
}

// contains reports whether dir is the root directory, the home directory, or a directory above the
// home directory. The search ends there.
func contains(dir, home string) bool {
	return dir == "/" || names.Under(home, dir)
}

// top returns the kind of repository or project that dir is the top of.
func top(dir string) (kind string, of class, ok bool) {
	for _, m := range markers {
		path := filepath.Join(dir, m.name)
		info, err := os.Lstat(path)
		if err == nil && believable(dir, info) && m.valid(path, info) {
			return m.kind, m.class, true
		}
	}
	return "", 0, false
}

// believable reports whether a marker counts. In a world-writable directory, where another user could
// put a marker to make the directory a root, the marker must belong to root or to this user.
func believable(dir string, marker fs.FileInfo) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	st, ok := marker.Sys().(*syscall.Stat_t)
	return info.Mode().Perm()&0o002 == 0 || ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

func isDir(_ string, info fs.FileInfo) bool  { return info.IsDir() }
func isFile(_ string, info fs.FileInfo) bool { return info.Mode().IsRegular() }

// isGit accepts the directory .git of a repository, and the file .git that worktrees and submodules
// have instead of that directory.
func isGit(path string, info fs.FileInfo) bool {
	if info.IsDir() {
		_, err := os.Lstat(filepath.Join(path, "HEAD"))
		return err == nil
	}
	if !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len("gitdir:"))
	_, err = io.ReadFull(f, head)
	return err == nil && bytes.Equal(head, []byte("gitdir:"))
}

// cause returns an error without its path, which the message already has.
func cause(err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err
	}
	return err
}
