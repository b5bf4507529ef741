package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// shell is a mounted root in which a test runs commands. newShell grants the root with the built-in
// protections.
type shell struct {
	*testing.T
	reg        *guard.Registry
	src, point string
}

func newShell(t *testing.T, prepare func(s *shell)) *shell {
	t.Helper()
	return newShellOf(t, guard.Policy{Rights: guard.ReadWrite}, prepare)
}

func newShellOf(t *testing.T, policy guard.Policy, prepare func(s *shell)) *shell {
	t.Helper()
	needFUSE(t)
	s := &shell{T: t, reg: guard.NewRegistry(guard.Config{Opener: vfs.Opener()}), src: t.TempDir()}
	s.point = s.src // until the root is mounted
	prepare(s)
	_, err := s.reg.Grant(bg, guard.Grant{Root: "r", Dir: names.Foreign(s.src), Origin: "test", Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mount.New(s.reg, mount.Options{Point: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.point = filepath.Join(m.Point(), "r")
	t.Cleanup(func() {
		_, _ = s.reg.RevokeAll(bg)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	return s
}

// try runs a command in a directory of the root. A shell enters the directory and starts the
// command. With cmd.Dir this process would wait for the directory while it forks, and could not
// serve the mount.
func (s *shell) try(dir string, args ...string) (string, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", `cd "$0" && exec "$@"`, filepath.Join(s.point, dir)}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+s.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_ALLOW_PROTOCOL=file", "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *shell) run(dir string, args ...string) {
	s.Helper()
	if out, err := s.try(dir, args...); err != nil {
		s.Fatalf("%q in %s: %v\n%s", args, dir, err, out)
	}
}

func (s *shell) write(rel, text string) {
	s.Helper()
	if err := childfs.MkdirAll(filepath.Dir(filepath.Join(s.point, rel)), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := childfs.WriteFile(filepath.Join(s.point, rel), []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
}

// need skips the test if a program is missing. In CI it fails the test instead.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must have %s: %v", program, err)
		}
		t.Skipf("%s is not here", program)
	}
}

// Git works in the owner's repository as usual. Files that git maintains can be written, files
// that git executes cannot. R139, R151.
func TestGitInTheOwnersRepository(t *testing.T) {
	need(t, "git")
	s := newShell(t, func(s *shell) {
		s.run("", "git", "init", "-q", "-b", "main")
		s.write("a.txt", "1\n")
		s.run("", "git", "add", ".")
		s.run("", "git", "commit", "-qm", "one")
	})
	s.write("b.txt", "2\n")
	s.run("", "git", "status", "--short")
	s.run("", "git", "add", "b.txt")
	s.run("", "git", "commit", "-qm", "two")
	s.run("", "git", "checkout", "-qb", "side", "HEAD~1")
	s.write("c.txt", "3\n")
	s.run("", "git", "add", "c.txt")
	s.run("", "git", "commit", "-qm", "three")
	s.run("", "git", "rebase", "-q", "main")
	s.run("", "git", "worktree", "add", "-q", "wt", "main")
	s.write("wt/d.txt", "4\n")
	s.run("wt", "git", "add", ".")
	s.run("wt", "git", "commit", "-qm", "four")
	s.run("", "git", "gc", "-q")
	s.run("", "git", "fsck")
	for name, args := range map[string][]string{
		"a hook":                {"sh", "-c", "echo x > .git/hooks/pre-commit"},
		"the configuration":     {"git", "config", "core.fsmonitor", "./evil"},
		"another repository":    {"sh", "-c", "mv .git old && cp -r old .git"},
		"a rename to the hooks": {"sh", "-c", "mkdir h && echo x > h/pre-commit && mv h .git/hooks"},
		"removal of .git":       {"rm", "-r", ".git"},
	} {
		if out, err := s.try("", args...); err == nil {
			t.Errorf("%s: %q succeeded: %s", name, args, out)
		}
	}
	if _, err := os.Stat(filepath.Join(s.src, ".git", "hooks", "pre-commit")); err == nil {
		t.Error("there is a hook")
	}
}

// A repository that the server creates works fully, and is reported. R139.
func TestGitInRepositoriesOfTheServer(t *testing.T) {
	need(t, "git")
	s := newShell(t, func(s *shell) {
		s.run("", "git", "init", "-q", "-b", "main", "upstream")
		s.write("upstream/a.txt", "1\n")
		s.write("upstream/.github/workflows/ci.yml", "on: push\n")
		s.write("upstream/.vscode/settings.json", "{}\n")
		s.run("upstream", "git", "add", ".")
		s.run("upstream", "git", "commit", "-qm", "one")
	})
	s.run("", "git", "clone", "-q", "upstream", "clone")
	s.run("clone", "git", "config", "user.name", "x")
	s.write("clone/.git/hooks/pre-commit", "#!/bin/sh\n")
	s.run("clone", "git", "checkout", "-qb", "side", "origin/main")
	s.write("clone/b.txt", "2\n")
	s.run("clone", "git", "add", ".")
	s.run("clone", "git", "commit", "-qm", "two")
	s.run("clone", "git", "rebase", "-q", "main")
	s.run("clone", "git", "worktree", "add", "-q", "../tree", "main")
	s.run("", "git", "init", "-q", "-b", "main", "new")
	s.run("new", "git", "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../upstream", "sub")
	s.run("new", "git", "commit", "-qm", "with a submodule")
	s.run("new", "git", "submodule", "update", "--init")
	s.run("", "mv", "clone", "moved")
	s.run("moved", "git", "status", "--short")
	st, _ := s.reg.Lookup("r")
	if got := strings.Join(st.Repos, " "); got != "moved new new/sub tree" {
		t.Errorf("created by the server: %q", got)
	}
	if out, err := s.try("upstream", "sh", "-c", "echo x > .git/hooks/post-merge"); err == nil {
		t.Errorf("a hook in the owner's repository: %s", out)
	}
}

// Repositories whose directory is not called .git, or lies in the .git of another repository,
// are reported too, until they are removed. The owner's repositories are not reported. R139.
func TestReposInOtherDirectoriesAreReported(t *testing.T) {
	need(t, "git")
	s := newShell(t, func(s *shell) {
		s.run("", "git", "init", "-q", "-b", "main", "mine")
		s.write("mine/a.txt", "1\n")
		s.run("mine", "git", "add", ".")
		s.run("mine", "git", "commit", "-qm", "one")
		s.run("", "git", "clone", "-q", "--bare", "mine", "mine.git")
	})
	checkRepos := func(want string) {
		t.Helper()
		st, _ := s.reg.Lookup("r")
		if got := strings.Join(st.Repos, " "); got != want {
			t.Errorf("created by the server: %q, want %q", got, want)
		}
	}
	s.run("mine.git", "git", "symbolic-ref", "HEAD", "refs/heads/other") // replaces HEAD
	s.run("mine.git", "git", "symbolic-ref", "HEAD", "refs/heads/main")
	s.run("mine.git", "git", "gc", "-q")
	checkRepos("")
	s.run("", "git", "init", "-q", "--bare", "a.git")
	s.run("", "git", "clone", "-q", "--bare", "mine", "b.git")
	s.run("", "git", "init", "-q", "--separate-git-dir", "apart", "work")
	s.run("b.git", "git", "worktree", "add", "-q", "../tree", "main")
	checkRepos("a.git apart b.git tree work")
	s.run("mine", "git", "worktree", "add", "-q", "wt")
	s.run("mine", "mkdir", "-p", ".git/modules/libs")
	s.run("mine", "git", "-c", "protocol.file.allow=always", "clone", "-q", "--separate-git-dir", ".git/modules/libs/m", "../b.git", "m")
	checkRepos("a.git apart b.git mine/.git/modules/libs mine/.git/worktrees/wt mine/m mine/wt tree work")
	s.run("mine", "git", "worktree", "remove", "wt")
	s.run("", "rm", "-rf", "a.git", "tree", "work")
	s.run("", "mv", "b.git", "c.git")
	checkRepos("apart c.git mine/.git/modules/libs mine/m")
	for name, script := range map[string]string{
		"linked":   "mkdir -p l/refs l/objects && echo x > x && ln x l/HEAD",
		"moved":    "mkdir -p m/refs m/o && echo x > m/HEAD && mv m/o m/objects",
		"divided":  "mkdir d && echo ../apart > d/commondir && echo x > d/HEAD",
		"symbolic": "mkdir s && ln -s ../c.git/objects s/objects && mkdir s/refs && echo x > s/HEAD",
	} {
		if out, err := s.try("", "sh", "-c", script); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	checkRepos("apart c.git d l m mine/.git/modules/libs mine/m s")
}

// If the owner has begun a git operation, such as a rebase, the server can neither change nor
// create files in the state that git has stored for the operation. The reason is that git runs
// commands from this state when the operation continues. A rebase that the server has begun can be
// continued to its end, and is reported until then. R139, R151.
func TestGitRebaseOfTheOwners(t *testing.T) {
	need(t, "git")
	// initConflicting creates a repository in which a rebase of main onto side stops at a conflict.
	initConflicting := func(s *shell, dir string) {
		s.run("", "git", "init", "-q", "-b", "main", dir)
		s.write(dir+"/a.txt", "1\n")
		s.run(dir, "git", "add", ".")
		s.run(dir, "git", "commit", "-qm", "one")
		s.run(dir, "git", "checkout", "-qb", "side")
		s.write(dir+"/a.txt", "2\n")
		s.run(dir, "git", "commit", "-qam", "two")
		s.run(dir, "git", "checkout", "-q", "main")
		s.write(dir+"/a.txt", "3\n")
		s.run(dir, "git", "commit", "-qam", "three")
	}
	s := newShell(t, func(s *shell) {
		initConflicting(s, "stopped")
		if out, err := s.try("stopped", "git", "rebase", "side"); err == nil {
			s.Fatalf("no conflict: %s", out)
		}
		initConflicting(s, "mine")
	})
	for name, script := range map[string]string{
		"replacing the to-do list":         "echo 'exec touch evil' > .git/rebase-merge/git-rebase-todo",
		"appending to the to-do list":      "echo 'exec touch evil' >> .git/rebase-merge/git-rebase-todo",
		"a rename to the to-do list":       "echo 'exec touch evil' > x && mv x .git/rebase-merge/git-rebase-todo",
		"a new file beside the to-do list": "echo x > .git/rebase-merge/strategy",
		"a rename of the directory":        "mv .git/rebase-merge .git/aside",
		"a rename to rebase-apply":         "mkdir x.d && mv x.d .git/rebase-apply",
		"a link named sequencer":           "mkdir y.d && ln -s ../y.d .git/sequencer",
	} {
		if out, err := s.try("stopped", "sh", "-c", script); err == nil {
			t.Errorf("%s succeeded: %s", name, out)
		}
	}
	checkRepos := func(want string) {
		t.Helper()
		st, _ := s.reg.Lookup("r")
		if got := strings.Join(st.Repos, " "); got != want {
			t.Errorf("created by the server: %q, want %q", got, want)
		}
	}
	checkRepos("")
	if out, err := s.try("mine", "git", "rebase", "side"); err == nil {
		t.Fatalf("no conflict: %s", out)
	}
	checkRepos("mine/.git/rebase-merge")
	s.write("mine/a.txt", "4\n")
	s.run("mine", "git", "add", "a.txt")
	s.run("mine", "git", "-c", "core.editor=true", "rebase", "--continue")
	checkRepos("")
}

// The owner is told which repositories the server has created, with the built-in protections and
// without them. R139.
func TestReposAreReportedWithoutProtection(t *testing.T) {
	need(t, "git")
	for _, noDefaults := range []bool{false, true} {
		s := newShellOf(t, guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: noDefaults}}, func(*shell) {})
		s.run("", "git", "init", "-q", "one")
		s.run("", "git", "init", "-q", "two")
		s.run("", "mv", "two", "three")
		s.run("", "git", "init", "-q", "four")
		s.run("", "rm", "-rf", "four")
		checkRepos := func(want string) {
			t.Helper()
			st, _ := s.reg.Lookup("r")
			if got := strings.Join(st.Repos, " "); got != want {
				t.Errorf("no defaults %v: created by the server: %q, want %q", noDefaults, got, want)
			}
		}
		checkRepos("one three")
	}
}

// If the server turns a directory of the owner's into a bare repository by adding names, the
// repository is reported, and protected names in the directory stay protected. R139.
func TestABareRepositoryLiftsNoProtection(t *testing.T) {
	need(t, "git")
	s := newShell(t, func(s *shell) { s.run("", "git", "init", "-q", "-b", "main", "mine") })
	s.run("mine", "sh", "-c", "mkdir objects refs && echo ref: refs/heads/main > HEAD")
	if st, _ := s.reg.Lookup("r"); len(st.Repos) != 1 || st.Repos[0] != "mine" {
		t.Errorf("created by the server: %q", st.Repos)
	}
	if out, err := s.try("mine", "sh", "-c", "echo x > .git/hooks/post-merge"); err == nil {
		t.Errorf("a hook in the owner's repository: %s", out)
	}
}

// npm packs and installs packages in a root with the built-in protections. R151.
func TestNpm(t *testing.T) {
	need(t, "npm")
	s := newShell(t, func(s *shell) {
		s.write("dep/package.json", `{"name":"dep","version":"1.0.0"}`)
		s.write("dep/.env.test", "X=1\n")
		s.write("app/package.json", `{"name":"app","version":"1.0.0","dependencies":{"dep":"file:../dep-1.0.0.tgz"}}`)
	})
	s.run("", "npm", "pack", "--silent", "./dep")
	s.run("app", "npm", "install", "--offline", "--no-audit", "--no-fund", "--silent")
	if _, err := os.Stat(filepath.Join(s.src, "app/node_modules/dep/package.json")); err != nil {
		t.Error(err)
	}
}

// go builds in a root with the built-in protections. R151.
func TestGo(t *testing.T) {
	cache, err := exec.Command("go", "env", "GOCACHE").Output() // run sets HOME to an empty directory
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("CGO_ENABLED", "0") // as testkit.Build has it, so that shared packages are compiled once
	t.Setenv("GOFLAGS", "-trimpath")
	s := newShell(t, func(s *shell) {
		s.write("mod/go.mod", "module m\n\ngo 1.26\n")
		s.write("mod/main.go", "package main\n\nfunc main() { println(1) }\n")
	})
	s.run("mod", "go", "build", "-o", "m", ".")
	s.run("mod", "./m")
}
