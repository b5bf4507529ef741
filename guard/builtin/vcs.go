package builtin

import (
	"strings"

	"github.com/rootsfs/rootsfs/guard/pattern"
)

// This file lists the files from which version control systems take commands, and the files that
// lead a tool to such a file elsewhere. A program that writes one of them runs commands as the
// owner, the next time the owner uses the tool. The files are protected, unless the root's users
// made the repository themselves.
//
// integration/policy/vcs_test.go has a row for each of these systems, and runs the tools that
// are installed.

// vcs is one version control system.
type vcs struct {
	// tops has the names by which the tool recognises the top of a project. They are protected,
	// because a link or another directory in their place would lead the tool to other files. A
	// missing one may be created.
	tops       string
	topsReason string      // why tops are protected
	runs       []ruleGroup // files with commands for the tool, or that lead it to such files
	// creatable has further files of the same kind. They may be created if they are missing.
	creatable []ruleGroup
}

// ruleGroup is several built-in rules with one reason: texts has their patterns, separated by spaces.
type ruleGroup struct{ texts, reason string }

const (
	fossilRuns = "fossil runs the programs that its settings name"
	cvsRuns    = "cvs runs the programs it names (CVS_RSH)"
)

// systems is the table of the version control systems that take commands from files in a
// project. RCS and SCCS are not in it: they have neither hooks nor settings in a project.
var systems = []vcs{
	// git(1): hooks run at commits, merges, checkouts and pushes; the configuration
	// names pagers, editors, filters, fsmonitor and aliases. git writes a new
	// configuration to config.lock, which it then renames. The repositories of submodules
	// lie in .git/modules, and the data of each worktree in .git/worktrees.
	{".git", "where it is a file or a link it leads git to another repository; where it is a directory, another would take its place", []ruleGroup{
		{".git/hooks .git/modules/**/hooks", "git runs hooks as the owner"},
		{".git/config .git/config.worktree .git/modules/**/config .git/modules/**/config.worktree .git/worktrees/*/config.worktree",
			"git runs the programs it names (pagers, editors, fsmonitor, filters)"},
		{".git/config.lock .git/config.worktree.lock .git/modules/**/config.lock .git/modules/**/config.worktree.lock .git/worktrees/*/config.worktree.lock",
			"git writes the next configuration there, then renames it: a program that has it open could write on"},
		{".git/commondir .git/modules/**/commondir .git/worktrees/*/commondir", "leads git to another configuration"},
	}, nil},
	// hg(1): [hooks], [alias], [extensions] and [ui] of hgrc run programs and load
	// Python. In a repository made by `hg share`, hg reads the hgrc of the repository that
	// sharedpath names.
	{".hg", "where it is a link it leads hg to another repository; where it is a directory, another would take its place", []ruleGroup{
		{".hg/hgrc .hg/hgrc-not-shared", "hg runs the hooks and aliases it names, and loads its extensions"},
		{".hg/store/journal .hg/store/journal.backupfiles .hg/store/undo .hg/store/undo.backupfiles", "hg recover and hg rollback put back what it lists, over any file of the owner's"},
		{".hg/sharedpath", "leads hg to another configuration"},
	}, nil},
	// svn(1): wc.db has a queue of unfinished work (work_queue). The next command carries it
	// out: file-install and file-move write to any path of the owner's, ".." included.
	// Hooks lie in the repository (see bares), and tunnels are configured in the owner's
	// home directory.
	{".svn", "where it is a link it leads svn to another working copy; where it is a directory, another would take its place", []ruleGroup{
		{".svn/wc.db .svn/wc.db-journal .svn/wc.db-wal", "svn cleanup does the work that is queued there: it writes any file of the owner's"},
	}, nil},
	// sl(1), a descendant of hg, which also works in .git/sl of a git repository.
	{".sl", "where it is a link it leads sl to another repository; where it is a directory, another would take its place", []ruleGroup{
		{".sl/config .sl/hgrc .git/sl/config .git/sl/hgrc", "sl runs the hooks and aliases it names"},
		{".sl/store/journal .sl/store/journal.backupfiles .sl/store/undo .sl/store/undo.backupfiles", "sl recover and sl rollback put back what it lists, over any file of the owner's"},
		{".sl/sharedpath", "leads sl to another configuration"},
	}, nil},
	// jj(1): fix.tools, merge-tools, ui.editor, ui.pager and signing name programs.
	// Since version 0.38 the configuration lies in the home directory, and the config-id
	// files hold the identifier by which jj finds it. In a further workspace .jj/repo is a
	// file that names the repository of the first workspace. git_target names the git
	// repository, whose hooks and configuration git uses when jj calls git.
	{".jj", "where it is a link it leads jj to another repository; where it is a directory, another would take its place", []ruleGroup{
		{".jj/repo/config.toml .jj/workspace-config.toml", "jj runs the programs it names (fix.tools, editors, pagers)"},
		{".jj/repo/config-id .jj/config-id .jj/workspace-config-id .jj/repo/store/git_target", "leads jj to another configuration"},
		{".jj/repo/store/git/hooks .jj/repo/store/git/config", "git runs the programs it names when jj calls git"},
	}, nil},
	// bzr(1) and brz(1): post_commit of branch.conf names a Python function, and
	// external_merge and bzr.mergetool.* name commands. location leads to another branch.
	{".bzr", "where it is a link it leads bzr to another repository; where it is a directory, another would take its place", []ruleGroup{
		{".bzr/branch/branch.conf .bzr/branches/**/branch.conf .bzr/control.conf", "bzr runs the commands it names (post_commit, merge tools)"},
		{".bzr/branch/location", "leads bzr to another configuration"},
	}, nil},
	// pijul(1): the key record in [hooks] of the repository's configuration is a command.
	{".pijul", "where it is a link it leads pijul to another repository; where it is a directory, another would take its place", []ruleGroup{
		{".pijul/config .pijul/config.toml", "pijul runs the hooks it names"},
	}, nil},
	// darcs(1): prehook, posthook and "external-merge" in defaults, and test in prefs, are
	// commands.
	{"_darcs", "where it is a link it leads darcs to another repository; where it is a directory, another would take its place", []ruleGroup{
		{"_darcs/prefs/defaults _darcs/prefs/prefs", "darcs runs the hooks and the test it names"},
	}, nil},
	// mtn(1): monotonerc is a Lua program.
	{"_MTN", "where it is a link it leads mtn to another workspace; where it is a directory, another would take its place", []ruleGroup{
		{"_MTN/monotonerc _MTN/options", "mtn runs it, or the one it leads to"},
	}, nil},
	// fossil(1): the checkout's database names the repository's database, whose settings
	// (editor, pager-command, diff-command, ssh-command) and hooks are commands. SQLite
	// writes the contents of a journal into the database that lies beside the journal.
	{".fslckout _FOSSIL_", "leads fossil to a repository, whose settings name programs", []ruleGroup{
		{".fslckout-journal .fslckout-wal _FOSSIL_-journal _FOSSIL_-wal *.fossil-journal *.fossil-wal", fossilRuns},
	}, []ruleGroup{{"*.fossil", fossilRuns}}},
	// repo(1) runs its main program, in Python, from .repo/repo. The projects that it checks
	// out are git repositories.
	{".repo", "where it is a link it leads repo to another client; where it is a directory, another would take its place", []ruleGroup{
		{".repo/repo .repo/hooks .repo/**/*.git/hooks .repo/**/*.git/config .repo/manifest.xml .repo/local_manifests", "repo runs it, or the hooks and programs it names"},
	}, nil},
	// cvs(1): the repository's name may contain the program that connects to it
	// (:ext;CVS_RSH=PROGRAM:). p4(1) takes its editor and diff from .p4config.
	{"", "", []ruleGroup{
		{"CVS/Checkin.prog CVS/Update.prog", cvsRuns},
		{".p4config .p4enviro", "p4 runs the programs it names (P4EDITOR, P4DIFF)"},
		{".hgsub", "names the repositories that hg fetches, and by which tool"},
	}, []ruleGroup{{"CVS/Root", cvsRuns}}},
}

// gitWork has the directories of unfinished work of git (rebase, am, cherry-pick). They are
// protected, but may be created if they are missing: git creates them when it begins, and the
// root's users may continue their own work.
const (
	gitWork       = ".git/rebase-merge .git/rebase-apply .git/sequencer .git/worktrees/*/rebase-merge .git/worktrees/*/rebase-apply .git/worktrees/*/sequencer .git/modules/**/rebase-merge .git/modules/**/rebase-apply .git/modules/**/sequencer"
	gitWorkReason = "git rebase --continue runs the commands that are listed there"
)

// bare is a kind of repository that a tool recognises by the names in its directory, not by the
// directory's own name. `git init --bare`, `git init --separate-git-dir` and `svnadmin create` make
// such repositories.
type bare struct {
	condition pattern.Condition
	parts     string      // names that such a directory holds; they may be replaced, but not removed or moved
	runs      []ruleGroup // as vcs.runs
	work      string      // directories of unfinished work, see gitWork
}

const partsReason = "git or svn knows a repository by it: without it, the rules for repositories would not hold"

var bares = []bare{
	{pattern.GitDir, "HEAD objects refs", []ruleGroup{
		{"hooks", "git runs hooks as the owner"},
		{"config config.worktree config.lock config.worktree.lock worktrees/*/config.worktree worktrees/*/config.worktree.lock",
			"git runs the programs it names (pagers, editors, fsmonitor, filters)"},
		{"commondir worktrees/*/commondir", "leads git to another configuration"},
	}, "rebase-merge rebase-apply sequencer worktrees/*/rebase-merge worktrees/*/rebase-apply worktrees/*/sequencer"},
	// svn(1) runs the hooks of a repository that it reaches as file://.
	{pattern.SvnDir, "format db locks", []ruleGroup{
		{"hooks conf", "svn and svnserve run hooks, with the environment that conf says"},
	}, ""},
}

// Parts returns the names in a directory by which a tool recognises a repository of the
// condition's kind. It returns nil for other conditions.
func Parts(c pattern.Condition) []string {
	for _, b := range bares {
		if b.condition == c {
			return strings.Fields(b.parts)
		}
	}
	return nil
}

// Tops are the names by which version control systems recognise the top of a project.
var Tops = func() (out []string) {
	for _, s := range systems {
		out = append(out, strings.Fields(s.tops)...)
	}
	return out
}()

// vcsRules returns the rules for systems, gitWork and bares.
func vcsRules() []pattern.Rule {
	var out []pattern.Rule
	add := func(texts, reason string, c pattern.Condition, change func(*pattern.Rule)) {
		for text := range strings.FieldsSeq(texts) {
			r := pattern.Rule{List: pattern.BuiltinProtect, Text: "**/" + text, Condition: c, Reason: reason}
			change(&r)
			out = append(out, r)
		}
	}
	unchanged := func(*pattern.Rule) {}
	creatable := func(r *pattern.Rule) { r.NameOnly, r.Creatable = true, true }
	fixed := func(r *pattern.Rule) { r.NameOnly, r.Fixed = true, true }
	below := func(r *pattern.Rule) { r.Text += "/**" }
	for _, s := range systems {
		for _, g := range s.runs {
			add(g.texts, g.reason, pattern.Control, unchanged)
		}
		for _, g := range s.creatable {
			add(g.texts, g.reason, pattern.Control, creatable)
		}
		add(s.tops, s.topsReason, pattern.Control, creatable)
	}
	add(gitWork, gitWorkReason, pattern.Control, creatable)
	add(gitWork, gitWorkReason, pattern.Control, below)
	for _, b := range bares {
		for _, g := range b.runs {
			add(g.texts, g.reason, b.condition, unchanged)
		}
		add(b.parts, partsReason, b.condition, fixed)
		add(b.work, gitWorkReason, b.condition, creatable)
		add(b.work, gitWorkReason, b.condition, below)
	}
	return out
}
