package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// R106: the enclosing repository or project is found from the markers of
// version control and of build tools. A name that ends in "/" is a directory,
// "NAME=TEXT" a file with that text, and a name that ends in HEAD an empty file.
func TestDetect(t *testing.T) {
	const git = "/.git/HEAD"
	for _, tc := range []struct {
		name       string
		files      []string
		from       string // the home directory is "home"
		path, kind string // path is "" for an error with kind in its text
	}{
		{"git", []string{"home/p" + git, "home/p/src/x/"}, "home/p/src/x", "home/p", "git"},
		{"at the top", []string{"home/p" + git}, "home/p", "home/p", "git"},
		{"inside .git", []string{"home/p" + git, "home/p/.git/hooks/"}, "home/p/.git/hooks", "home/p", "git"},
		{"worktree or submodule", []string{"home/p" + git, "home/p/sub/.git=gitdir: ../.git/modules/sub", "home/p/sub/x/"}, "home/p/sub/x", "home/p/sub", "git"},
		{"a .git that is not a repository", []string{"home/p/.git/", "home/p/.hg/", "home/p/x/.git=hello"}, "home/p/x", "home/p", "mercurial"},
		{"mercurial", []string{"home/p/.hg/", "home/p/x/"}, "home/p/x", "home/p", "mercurial"},
		{"subversion", []string{"home/p/.svn/", "home/p/x/"}, "home/p/x", "home/p", "subversion"},
		{"jujutsu", []string{"home/p/.jj/"}, "home/p", "home/p", "jujutsu"},
		{"repository before module", []string{"home/p" + git, "home/p/mod/go.mod=", "home/p/mod/x/"}, "home/p/mod/x", "home/p", "git"},
		{"nearest repository", []string{"home/p" + git, "home/p/q/.hg/", "home/p/q/x/"}, "home/p/q/x", "home/p/q", "mercurial"},
		{"workspace before module", []string{"home/p/go.work=", "home/p/a/go.mod=", "home/p/a/b/"}, "home/p/a/b", "home/p", "go workspace"},
		{"nearest module", []string{"home/p/package.json=", "home/p/a/go.mod=", "home/p/a/b/"}, "home/p/a/b", "home/p/a", "go module"},
		{"npm", []string{"home/p/package.json=", "home/p/x/"}, "home/p/x", "home/p", "npm package"},
		{"python", []string{"home/p/pyproject.toml="}, "home/p", "home/p", "python project"},
		{"cargo", []string{"home/p/Cargo.toml=", "home/p/src/"}, "home/p/src", "home/p", "cargo package"},
		{"maven", []string{"home/p/pom.xml="}, "home/p", "home/p", "maven project"},
		{"gradle", []string{"home/p/build.gradle="}, "home/p", "home/p", "gradle project"},
		{"marker of the wrong type", []string{"home/p/go.mod/", "home/p/.hg="}, "home/p", "", "neither a repository nor a project"},
		{"outside the home directory", []string{"srv/p" + git, "srv/p/x/", "home/"}, "srv/p/x", "srv/p", "git"},
		{"nothing", []string{"home/p/x/"}, "home/p/x", "", "--root PATH"},
		{"home is a repository", []string{"home" + git, "home/p/"}, "home/p", "", "neither a repository nor a project"},
		{"from a home that is a repository", []string{"home" + git}, "home", "", "too much for a root found by itself"},
		{"above home", []string{".hg/", "go.mod=", "home/p/", "other/x/"}, "other/x", "", "neither"},
		{"missing", nil, "home/none", "", "cannot be resolved: no such file"},
		{"a file", []string{"home/f="}, "home/f", "", "is not a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := tree(t, tc.files)
			path, kind, err := detect(filepath.Join(base, tc.from), filepath.Join(base, "home"))
			if tc.path == "" {
				if err == nil || !strings.Contains(err.Error(), tc.kind) {
					t.Fatalf("got %s, %v, want an error with %q", path, err, tc.kind)
				}
				return
			}
			if err != nil || path != filepath.Join(base, tc.path) || kind != tc.kind {
				t.Errorf("got %s, %s, %v", path, kind, err)
			}
		})
	}
}

// tree makes files, and a home directory, below a new directory. It returns the path of the new
// directory, without links.
func tree(t *testing.T, files []string) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, "home/") {
		name, text, isFile := strings.Cut(f, "=")
		path := filepath.Join(base, name)
		dir := path
		if isFile || strings.HasSuffix(name, "HEAD") {
			dir = filepath.Dir(path)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir != path {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return base
}

// R106: a link to a directory inside a project means its target.
func TestDetectLink(t *testing.T) {
	base := tree(t, []string{"home/p/.hg/", "home/p/x/", "srv/"})
	if err := os.Symlink(base+"/home/p/x", base+"/srv/x"); err != nil {
		t.Fatal(err)
	}
	if path, _, err := detect(base+"/srv/x", base+"/home"); err != nil || path != base+"/home/p" {
		t.Errorf("%s, %v", path, err)
	}
	// The home directory is compared without links, too.
	if err := os.Symlink("home", base+"/h"); err != nil {
		t.Fatal(err)
	}
	if path, _, err := detect(base+"/home", base+"/h"); err == nil {
		t.Errorf("home became a root: %s", path)
	}
}

// Another user's marker in a world-writable directory is ignored; the user's own counts.
func TestDetectStranger(t *testing.T) {
	base := tree(t, []string{"tmp/go.mod=", "tmp/x/"})
	if err := os.Chmod(base+"/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	if path, _, err := detect(base+"/tmp/x", base+"/home"); err != nil || path != base+"/tmp" {
		t.Fatalf("one's own: %s, %v", path, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a stranger's file")
	}
	if err := os.Chown(base+"/tmp/go.mod", 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if path, kind, err := detect(base+"/tmp/x", base+"/home"); err == nil {
		t.Errorf("a stranger's: %s, %s", path, kind)
	}
	if err := os.Chmod(base+"/tmp", 0o755); err != nil {
		t.Fatal(err)
	}
	if path, _, err := detect(base+"/tmp/x", base+"/home"); err != nil || path != base+"/tmp" {
		t.Errorf("a stranger's, in a directory that is not world-writable: %s, %v", path, err)
	}
}

// Detect takes the home directory from the environment.
func TestDetectHome(t *testing.T) {
	base := tree(t, []string{"home/p/.hg/"})
	t.Setenv("HOME", base+"/home")
	if path, kind, err := Detect(base + "/home/p"); err != nil || path != base+"/home/p" || kind != "mercurial" {
		t.Errorf("%s, %s, %v", path, kind, err)
	}
	t.Setenv("HOME", "")
	if path, _, err := Detect("/"); err == nil {
		t.Errorf("the root directory became a root: %s", path)
	}
}
