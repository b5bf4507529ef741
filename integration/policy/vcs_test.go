package policy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// planting is one way to make a version control system run a program: the preparation of
// the owner's repository, the files that a server writes there, and the owner's command
// that runs the program. The program makes a file outside of the root.
type planting struct {
	name    string
	tool    string
	prepare string // a script, run by the owner
	plant   string // a script of the server's; $EVIL is a program
	owner   string // a script of the owner's that runs the program
	rule    string // the rule that refuses plant
}

const (
	gitRepo = "git init -q -b main; echo 1 >a; git add a; git commit -qm one; "
	// gitStopped starts a rebase, which stops at an edit.
	gitStopped = "git checkout -qb side; echo 2 >a; git commit -qam two; GIT_SEQUENCE_EDITOR=\"sed -i s/^pick/edit/\" git rebase -qi HEAD~1; "
	submodule  = "git init -q -b main up; (cd up; echo 1 >a; git add a; git commit -qm one); git init -q -b main; git -c protocol.file.allow=always submodule add -q ./up lib; git commit -qm two; "
	// separateRepo creates the repository work, with the git directory ./apart instead of work/.git.
	separateRepo = "git init -q -b main --separate-git-dir apart work; cd work; echo 1 >a; git add a; git commit -qm one; "
	hgRepo       = "hg init -q; echo 1 >a; hg add -q a; hg commit -qm one; "
	fossilRepo   = "fossil init r.fossil; fossil open --force r.fossil; echo 1 >a; fossil add a; fossil commit -m one; "
	svnWork      = "svnadmin create r; svn checkout -q file://$PWD/r w; cd w; echo 1 >a; svn add -q a; svn commit -qm one; cd ..; "
	svnQueue     = `cd w; cp $EVIL a; sqlite3 .svn/wc.db "create temp table t as select * from nodes where local_relpath = 'a';` +
		`update t set local_relpath = '../../written'; insert into nodes select * from t; insert into work_queue (work) values ('(file-install 13 ../../written 1 0 1 1 1 a)')"`
	execTodo = "{ echo exec $EVIL; cat %/git-rebase-todo; } >new; mv new %/git-rebase-todo || cat new >%/git-rebase-todo"
)

func todo(dir string) string { return strings.ReplaceAll(execTodo, "%", dir) }

var plantings = []planting{
	{"a hook", "git", gitRepo, "mkdir -p .git/hooks; cp $EVIL .git/hooks/pre-commit", "git commit --allow-empty -qm x", ".git/hooks"},
	{"the configuration", "git", gitRepo, "printf '[core]\\nfsmonitor=%s\\n' $EVIL >>.git/config", "git status", ".git/config"},
	{"a rebase", "git", gitRepo + gitStopped, todo(".git/rebase-merge"), "git rebase --continue", ".git/rebase-merge/**"},
	{"a submodule's hook", "git", submodule, "mkdir -p .git/modules/lib/hooks; cp $EVIL .git/modules/lib/hooks/pre-commit", "cd lib; git commit --allow-empty -qm x", ".git/modules/**/hooks"},
	{"a submodule's rebase", "git", submodule + "(cd lib; " + gitStopped + "true); ", todo(".git/modules/lib/rebase-merge"), "cd lib; git rebase --continue", ".git/modules/**/rebase-merge/**"},
	{"a hook of a separate git directory", "git", separateRepo, "mkdir -p apart/hooks; cp $EVIL apart/hooks/pre-commit", "cd work; git commit --allow-empty -qm x", "hooks"},
	{"the configuration of a separate git directory", "git", separateRepo, "printf '[core]\\nfsmonitor=%s\\n' $EVIL >>apart/config", "cd work; git status", "config"},
	{"a rebase in a separate git directory", "git", separateRepo + gitStopped, todo("apart/rebase-merge"), "cd work; git rebase --continue", "rebase-merge/**"},
	{"a git directory without its HEAD for a moment", "git", separateRepo, "mv apart/HEAD h && cp $EVIL apart/hooks/pre-commit && mv h apart/HEAD", "cd work; git commit --allow-empty -qm x", "HEAD"},
	{"a git directory that is moved away and back", "git", separateRepo, "mv apart b && mkdir -p b/hooks && cp $EVIL b/hooks/pre-commit && mv b apart", "cd work; git commit --allow-empty -qm x", ""},
	{"a bare repository's hook", "git", "git init -q --bare b.git; git init -q -b main w; (cd w; git commit --allow-empty -qm one); ", "mkdir -p b.git/hooks; cp $EVIL b.git/hooks/update", "cd w; git push -q ../b.git main", "hooks"},
	{"a hook of hg", "hg", hgRepo, "printf '[hooks]\\npre-status=%s\\n' $EVIL >>.hg/hgrc", "hg status", ".hg/hgrc"},
	{"a journal of hg", "hg", hgRepo, "printf '[hooks]\\npre-status=%s\\n' $EVIL >.hg/payload; printf '2\\nplain\\0hgrc\\0payload\\0000\\n' >.hg/store/journal.backupfiles; : >.hg/store/journal", "hg recover; hg status", ".hg/store/journal.backupfiles"},
	{"hg's configuration in another repository", "hg", hgRepo, "hg init -q other; printf '[hooks]\\npre-status=%s\\n' $EVIL >other/.hg/hgrc; echo shared >>.hg/requires; printf %s \"$PWD/other/.hg\" >.hg/sharedpath", "hg status", ".hg/sharedpath"},
	{"an alias of jj", "jj", "jj git init -q .; ", "printf '[aliases]\\nx=[\"util\",\"exec\",\"--\",\"%s\"]\\n' $EVIL >>.jj/repo/config.toml", "jj x", ".jj/repo/config.toml"},
	{"a hook of svn", "svn", "svnadmin create r; svn checkout -q file://$PWD/r w; ", "cp $EVIL r/hooks/start-commit", "cd w; svn mkdir -q d; svn commit -qm x", "hooks"},
	{"work that svn has queued", "svn", svnWork, svnQueue, "cd w; svn cleanup; sh ../../written", ".svn/wc.db"},
	{"a hook of sl", "sl", "sl init -q .; ", "printf '[hooks]\\npre-status=%s\\n' $EVIL >>.sl/config", "sl status", ".sl/config"},
	{"a hook of bzr", "brz", "brz init -q; ", "printf 'post_commit = (lambda*a:__import__(\"os\").system(\"%s\"))\\n' $EVIL >>.bzr/branch/branch.conf", "brz commit -q --unchanged -m x", ".bzr/branch/branch.conf"},
	{"a hook of pijul", "pijul", "pijul init; ", "printf '[hooks]\\nrecord=[\"%s\"]\\n' $EVIL >>.pijul/config", "pijul record -am x", ".pijul/config"},
	{"a hook of darcs", "darcs", "darcs init; echo 1 >a; ", "printf 'add posthook %s\\nadd run-posthook\\n' $EVIL >>_darcs/prefs/defaults", "darcs add a", "_darcs/prefs/defaults"},
	{"a setting of fossil", "fossil", fossilRepo, "fossil settings diff-command $EVIL", "echo 22 >a; fossil diff", "*.fossil"},
	{"a hook of mtn", "mtn", "mtn db init -d db.mtn; mtn -d db.mtn -b b setup .; ", "printf 'os.execute(\"%s\")\\n' $EVIL >_MTN/monotonerc", "mtn status", "_MTN/monotonerc"},
	{"repo's own program", "repo", "", "mkdir -p .repo/repo; cp $EVIL .repo/repo/main.py", "repo status", ".repo/repo"},
	{"the program that connects to a CVS repository", "cvs", "cvs -d $PWD/c init; mkdir c/m; cvs -Qd $PWD/c checkout m; ", "echo \":ext;CVS_RSH=$EVIL:h:/c\" >m/CVS/Root", "cd m; cvs update", "CVS/Root"},
	{"the editor of p4", "p4", "", "echo P4EDITOR=$EVIL >.p4config", "P4CONFIG=.p4config p4 change", ".p4config"},
}

// documentedOnly lists tools that a test machine need not have. If such a tool is missing, the
// test checks only that a server cannot write the tool's files (see checkRefusal).
var documentedOnly = []string{"jj", "svn", "sl", "brz", "pijul", "darcs", "fossil", "mtn", "repo", "cvs", "p4"}

// A server cannot make a version control system run a program through files in the owner's
// repositories. Without protection each tool runs the planted program; with the built-in rules
// the tool does not run the program. If a tool of documentedOnly is missing, the test checks only
// that a server cannot write the tool's files. R151.
func TestVersionControlRunsNothingOfTheServers(t *testing.T) {
	for _, p := range plantings {
		t.Run(p.tool+": "+p.name, func(t *testing.T) {
			if _, err := exec.LookPath(p.tool); err != nil {
				if slices.Contains(documentedOnly, p.tool) {
					p.checkRefusal(t)
					return
				}
				need(t, p.tool)
			}
			if dir := p.ownersDir(t); !p.runs(t, dir, dir) {
				t.Errorf("without protection the program does not run: the test shows nothing")
			}
			var src string
			s := newShell(t, func(s *shell) { src = s.src; p.prepareIn(t, src) })
			if p.runs(t, s.point, src) {
				t.Error("the program runs")
			}
		})
	}
}

// script runs a script in a directory, as a server or the owner would.
func script(t *testing.T, dir, text, evil string) (string, error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `cd "$0" && eval "$1"`, dir, text)
	cmd.Env = append(os.Environ(), "EVIL="+evil, "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_EDITOR=true", "HGRCPATH=", "HGUSER=a", "EMAIL=a <a@b>", "USER=a")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ownersDir returns a new directory with the owner's repository.
func (p *planting) ownersDir(t *testing.T) string {
	dir := t.TempDir()
	p.prepareIn(t, dir)
	return dir
}

func (p *planting) prepareIn(t *testing.T, dir string) {
	t.Helper()
	if out, err := script(t, dir, "set -e; "+p.prepare+"true", ""); err != nil {
		t.Fatalf("%s: %v\n%s", p.prepare, err, out)
	}
}

// runs plants the program in plantDir, runs the owner's command in ownerDir, and reports whether
// the program ran. plantDir and ownerDir are paths of the same directory.
func (p *planting) runs(t *testing.T, plantDir, ownerDir string) bool {
	t.Helper()
	evil := filepath.Join(t.TempDir(), "evil")
	ran := evil + ".ran"
	if err := os.WriteFile(evil, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	plantOutput, err := script(t, plantDir, p.plant, evil)
	ownerOutput, _ := script(t, ownerDir, p.owner, evil)
	_, missing := os.Lstat(ran)
	if plantDir == ownerDir && missing != nil {
		t.Logf("planting: %v\n%s\nthe owner's command:\n%s", err, plantOutput, ownerOutput)
	}
	return missing == nil
}

// checkRefusal shows, for a tool that is not installed, that the files that the tool
// executes according to its documentation cannot be created or changed.
func (p *planting) checkRefusal(t *testing.T) {
	name := strings.TrimPrefix(p.rule, "*") // *.fossil becomes .fossil
	at := strings.NewReplacer("**", "x").Replace(name)
	dir := filepath.Dir(at)
	s := newShell(t, func(s *shell) {
		if p.tool == "svn" && p.rule == "hooks" {
			at, dir = "r/hooks", "r"
			s.run("", "mkdir", "-p", "r/db", "r/locks", "r/hooks")
			s.write("r/format", "5\n")
			return
		}
		s.run("", "mkdir", "-p", dir)
		if p.tool == "fossil" {
			s.write(at, "x")
		}
	})
	if out, err := s.try("", "sh", "-c", "echo x >"+at+" || echo x >"+at+"/x"); err == nil {
		t.Errorf("%s was written: %s", at, out)
	}
	for _, name := range []string{at, at + "/x"} {
		if b, err := os.ReadFile(filepath.Join(s.src, name)); err == nil && string(b) == "x\n" || err != nil && !errors.Is(err, os.ErrNotExist) && !strings.Contains(err.Error(), "directory") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// If the reason of a built-in rule about version control says that a tool runs something, plantings
// has a row for this tool. Each rule that a row of plantings names is a built-in rule.
func TestEveryToolHasAPlanting(t *testing.T) {
	tools := map[string]bool{}
	rules := map[string]bool{}
	for _, p := range plantings {
		tools[p.tool], rules[p.rule] = true, true
	}
	for _, r := range builtin.Rules() {
		switch r.Condition { //nolint:exhaustive // the others are about something else
		case pattern.Control, pattern.GitDir, pattern.SvnDir:
		default:
			continue
		}
		tool, _, _ := strings.Cut(r.Reason, " ")
		if tool == "bzr" {
			tool = "brz" // the successor of bzr
		}
		if strings.Contains(r.Reason, " runs ") && !tools[tool] {
			t.Errorf("%s: plantings has no row for %s", r.Text, tool)
		}
	}
	for name := range rules {
		if name != "" && !slices.ContainsFunc(builtin.Rules(), func(r pattern.Rule) bool { return strings.TrimPrefix(r.Text, "**/") == name }) {
			t.Errorf("there is no rule %s", name)
		}
	}
}

// The directory of any version control system marks the top of a project: files that
// editors and agents execute there are protected.
func TestTopsOfProjects(t *testing.T) {
	s := newShell(t, func(s *shell) {
		for _, top := range builtin.Tops {
			s.run("", "mkdir", "-p", "p"+top+"/"+top, "p"+top+"/.vscode")
		}
		s.run("", "mkdir", "-p", "plain/.vscode")
	})
	for _, top := range builtin.Tops {
		for _, file := range []string{".vscode/tasks.json", ".mcp.json", ".envrc"} {
			if out, err := s.try("p"+top, "sh", "-c", "echo x >"+file); err == nil {
				t.Errorf("%s at the top of a project with %s was written: %s", file, top, out)
			}
		}
	}
	s.run("plain", "sh", "-c", "echo x >.vscode/tasks.json")
}

// A server can work in the owner's repositories. Its own repositories work fully, even if their
// directory is not called .git. R139.
func TestWorkInRepositoriesOfAllKinds(t *testing.T) {
	need(t, "git")
	s := newShell(t, func(s *shell) {
		s.run("", "sh", "-ec", separateRepo)
		s.run("", "git", "init", "-q", "--bare", "-b", "main", "mine.git")
	})
	s.run("work", "sh", "-ec", "echo 2 >b; git add b; git commit -qm two; git checkout -qb side HEAD~1; echo 3 >c; git add c; git commit -qm three; git rebase -q main; git worktree add -q ../wt main; git gc -q; git fsck; git symbolic-ref HEAD refs/heads/main; git reset -q --hard; git push -q ../mine.git main")
	s.run("wt", "sh", "-ec", "git checkout -qb more; echo 4 >d; git add d; git commit -qm four")
	s.run("", "sh", "-ec", "git init -q --bare own.git; cp mine.git/HEAD own.git/hooks/post-update; git -C own.git config a.b c; git clone -q mine.git clone; git init -q --separate-git-dir own work2; cd work2; git config a.b c; echo x >../own/hooks/post-commit; git commit --allow-empty -qm x; git worktree add -q ../wt2; git mv -h >/dev/null 2>&1 || true")
	s.run("", "mv", "own.git", "moved.git")
	s.run("", "rm", "-rf", "moved.git")
	s.run("", "sh", "-ec", "mkdir -p ordinary/objects ordinary/hooks; echo x >ordinary/config; echo x >ordinary/hooks/x; mv ordinary/objects ordinary/o")
	if _, err := exec.LookPath("hg"); err == nil {
		s.run("", "sh", "-ec", "export HGRCPATH= HGUSER=a; hg init h; cd h; echo 1 >a; hg add -q a; hg commit -m one; echo '[ui]' >.hg/hgrc; cd ..; hg clone -q h h2; cd h2; echo 2 >>a; hg commit -m two; hg push -q")
		st, _ := s.reg.Lookup("r")
		for _, want := range []string{"h", "h2", "own"} {
			if !slices.Contains(st.Repos, want) {
				t.Errorf("%s is not listed as a repository that the server created: %q", want, st.Repos)
			}
		}
	}
}
