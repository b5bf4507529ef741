package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// stageAt returns a stage of a root at a directory.
func stageAt(store, root, path string) vfs.StageSummary {
	s := vfs.StageSummary{Dir: "/stages/" + store, Changed: 1}
	s.Meta.Root, s.Meta.Path = names.RootName(root), path
	return s
}

// A command line selects the stages of --root, of its first path or of the working directory, or
// else all stages.
func TestCandidateStages(t *testing.T) {
	all := []vfs.StageSummary{stageAt("p-1", "p", "/home/u/p"), stageAt("p-1-2", "p", "/home/u/p"), stageAt("q-2", "q", "/home/u/q")}
	for _, tt := range []struct {
		root, dir string
		paths     []string
		want      string
	}{
		{"", "/", nil, "p-1 p-1-2 q-2"},
		{"", "/home/u/q", nil, "q-2"},
		{"", "/home/u/q/src", []string{"a"}, "q-2"},
		{"", "/home/u/qq", []string{"q/a"}, "q-2"},
		{"", "/home/u/p", []string{"/home/u/q/a"}, "q-2"},
		{"", "/home/u/p", []string{"/etc/passwd"}, ""},
		{"", "/home/u/p", nil, "p-1 p-1-2"},
		{"p-1-2", "/home/u/q", nil, "p-1-2"},
		{"p", "/home/u/q", nil, "p-1 p-1-2"},
		{"/home/u/q", "/", nil, "q-2"},
		{"nosuch", "/home/u/q", nil, ""},
		{"", "/", []string{"nosuch/a"}, ""},
	} {
		got, err := candidateStages(all, tt.root, tt.dir, tt.paths)
		var have []string
		for i := range got {
			have = append(have, filepath.Base(got[i].Dir))
		}
		if err != nil || strings.Join(have, " ") != tt.want {
			t.Errorf("--root %q in %s, %v: %v, %v; want %s", tt.root, tt.dir, tt.paths, have, err, tt.want)
		}
	}
}

// A relative path on the command line begins at the working directory, if that is in the root, and
// otherwise with the root's name. Commands show paths in the form that they accept.
func TestStagePaths(t *testing.T) {
	top := t.TempDir()
	if top, err := filepath.EvalSymlinks(top); err != nil || os.MkdirAll(top+"/p/src", 0o755) != nil || os.Symlink("src", top+"/p/link") != nil {
		t.Fatal(err)
	}
	inside := &chosenStage{StageSummary: stageAt("p-1", "p", top+"/p"), dir: top + "/p/src"}
	outside := &chosenStage{StageSummary: stageAt("p-1", "p", top+"/p"), dir: top}
	for _, tt := range []struct {
		c          *chosenStage
		path, want string
		ok         bool
	}{
		{inside, "", "", false},
		{inside, "a", "src/a", true},
		{inside, "../b", "b", true},
		{inside, "..", "", true},
		{inside, "../link", "link", true}, // the link itself
		{inside, "../link/a", "src/a", true},
		{inside, "../../x", "", false},
		{inside, top + "/p/new/deep", "new/deep", true},
		{inside, "/etc/passwd", "", false},
		{outside, "p/src/a", "src/a", true},
		{outside, "p", "", true},
		{outside, "src/a", "", false},
		{outside, "p/../x", "", false},
	} {
		got, err := tt.c.below(tt.path)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("in %s, %s: %q, %v; want %q", tt.c.dir, tt.path, got, err, tt.want)
		}
		if err == nil && got != "" {
			if again, err := tt.c.below(tt.c.displayPath(names.Foreign(got)).Raw()); err != nil || again != got {
				t.Errorf("%q is shown as %s, which is %q, %v", got, tt.c.displayPath(names.Foreign(got)), again, err)
			}
		}
	}
}

// side is a file as it is on one side: in the root, or in the stage.
type side struct {
	mode uint32
	text string
}

// patchOf makes the patch that turns the files old into the files staged.
func patchOf(t *testing.T, old, staged map[string]side) string {
	t.Helper()
	p := &patcher{renamed: map[names.Foreign]names.Foreign{}, read: func(_ context.Context, path string, isStaged bool) ([]byte, error) {
		of := old
		if isStaged {
			of = staged
		}
		f, ok := of[path]
		if !ok {
			return nil, &names.Error{Kind: names.NotExist}
		}
		return []byte(f.text), nil
	}}
	var list []vfs.StageChange
	for path, o := range old {
		n := staged[path]
		c := vfs.StageChange{Path: names.Foreign(path), OldMode: o.mode, OldSize: int64(len(o.text)), Mode: n.mode, Size: int64(len(n.text)), Class: vfs.StageChanged}
		if n.mode == 0 {
			c.Class = vfs.StageRemoved
		}
		list = append(list, c)
	}
	for path, n := range staged {
		if _, has := old[path]; !has {
			list = append(list, vfs.StageChange{Path: names.Foreign(path), Mode: n.mode, Size: int64(len(n.text)), Class: vfs.StageNew})
		}
	}
	if err := p.findRenames(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range list {
		one, err := p.patch(t.Context(), &list[i])
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(one)
	}
	return b.String()
}

// Git applies the patch of a stage. The patch has new, changed, renamed and removed files, links, a
// new mode, a file that becomes a link, and names with special characters.
func TestStagePatchForGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git")
	}
	const plain, run, link = unix.S_IFREG | 0o644, unix.S_IFREG | 0o755, unix.S_IFLNK | 0o777
	old := map[string]side{
		"a": {plain, "one\ntwo\nthree\n"}, "gone": {plain, "x\n"}, "mode": {plain, "m\n"}, "end": {plain, "no end"},
		"d/with space": {plain, "s\n"}, "quo\"te\n": {plain, "q\n"}, "kind": {plain, "was a file\n"}, "moved": {plain, "the same\n"},
	}
	staged := map[string]side{
		"a": {plain, "one\n2\nthree\nfour\n"}, "mode": {run, "m\n"}, "end": {plain, "an end\n"}, "new/né": {run, "n\n"},
		"d/with space": {plain, "t\n"}, "quo\"te\n": {plain, "r\n"}, "kind": {link, "a"}, "l": {link, "somewhere"}, "to": {plain, "the same\n"},
	}
	patch := patchOf(t, old, staged)
	dir := t.TempDir()
	for path, f := range old {
		at := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(f.text), os.FileMode(f.mode&0o777))); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(git, "apply", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, patch)
	}
	for path := range old {
		if _, has := staged[path]; has {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q is still there", path)
		}
	}
	for path, want := range staged {
		at := filepath.Join(dir, path)
		info, err := os.Lstat(at)
		if err != nil {
			t.Error(err)
			continue
		}
		var text string
		if want.mode&unix.S_IFMT == unix.S_IFLNK {
			text, err = os.Readlink(at)
		} else {
			var data []byte
			data, err = os.ReadFile(at)
			text = string(data)
			if (info.Mode()&0o100 != 0) != (want.mode&0o100 != 0) {
				t.Errorf("%q has mode %v", path, info.Mode())
			}
		}
		if err != nil || text != want.text {
			t.Errorf("%q has %q, %v; want %q", path, text, err, want.text)
		}
	}
}

// Lines of the patch that begin with #, which git ignores, mention renames, directories, and
// changes that are not applied.
func TestStagePatchNotes(t *testing.T) {
	const plain = unix.S_IFREG | 0o644
	patch := patchOf(t, map[string]side{"moved": {plain, "the same\n"}}, map[string]side{"to": {plain, "the same\n"}})
	if !strings.Contains(patch, "# renamed from moved\n") {
		t.Errorf("the patch does not mention the rename:\n%s", patch)
	}
	p := &patcher{}
	for _, tt := range []struct {
		c    vfs.StageChange
		want string
	}{
		{vfs.StageChange{Path: "d", Class: vfs.StageRemoved, OldMode: unix.S_IFDIR | 0o755}, "# removed directory d\n"},
		{vfs.StageChange{Path: "d", Class: vfs.StageNew, Mode: unix.S_IFDIR | 0o755}, "# new directory d\n"},
		{vfs.StageChange{Path: "d", Class: vfs.StageConflict, Why: "changed by you,\nand here", OldMode: unix.S_IFDIR | 0o755, Mode: unix.S_IFDIR | 0o700},
			"# conflict: changed by you, and here\n# directory d: mode 040700, was 040755\n"},
	} {
		if got, err := p.patch(t.Context(), &tt.c); err != nil || got != tt.want {
			t.Errorf("%q, %v; want %q", got, err, tt.want)
		}
	}
}

// A file that cannot be read is no error of findRenames, patch or size, so that other changes are
// still shown. The file's patch, and its line of --stat, say that it cannot be read.
func TestStagePatchOfUnreadable(t *testing.T) {
	for _, kind := range []error{names.Permission, names.IO, names.NotExist} {
		p := &patcher{renamed: map[names.Foreign]names.Foreign{}, read: func(context.Context, string, bool) ([]byte, error) { return nil, kind }}
		list := []vfs.StageChange{
			{Path: "old", Class: vfs.StageRemoved, OldMode: unix.S_IFREG | 0o600, OldSize: 3},
			{Path: "new", Class: vfs.StageNew, Mode: unix.S_IFREG, Size: 3},
		}
		testkit.Must(t, p.findRenames(t.Context(), list))
		patch, err := p.patch(t.Context(), &list[1])
		if err != nil || !strings.Contains(patch, "# cannot be read: new\n") {
			t.Errorf("%v: the patch is %q, %v", kind, patch, err)
		}
		if text, err := p.size(t.Context(), &list[0]); err != nil || text != "cannot be read" {
			t.Errorf("%v: the line of --stat says %q, %v", kind, text, err)
		}
	}
}

// A terminal shows the line of a file unchanged, except for characters that the terminal would
// obey or not show, and for spaces that would push the rest out of sight.
func TestVisibleText(t *testing.T) {
	for in, want := range map[string]string{
		"+\tx   = 1": "+\tx   = 1", `+say("a\n")`: `+say("a\n")`, "+\x1b[2J": `+\u{1b}[2J`, "+a\u202eb": `+a\u{202e}b`,
		"+" + strings.Repeat(" ", 300) + "rm -rf": `+\{300 spaces}rm -rf`, "+\r-x": `+\u{d}-x`,
	} {
		if got := visibleText(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// Changes in a .git are counted in a note. Further notes list the removals in the .git, and the
// changes that are not applied.
func TestStagePatchOfGit(t *testing.T) {
	const plain = unix.S_IFREG | 0o644
	for path, want := range map[string]bool{".git": true, ".git/index": true, "sub/.git/HEAD": true, ".gitignore": false, "a.git/x": false} {
		if isOfGit(names.Foreign(path)) != want {
			t.Errorf("isOfGit(%s) is %v", path, !want)
		}
	}
	got := gitNotes([]vfs.StageChange{
		{Path: ".git/index", Class: vfs.StageChanged, Mode: plain, OldMode: plain},
		{Path: ".git/old\n", Class: vfs.StageRemoved, OldMode: plain},
		{Path: ".git/config", Class: vfs.StageProtected, Mode: plain, OldMode: plain, Why: "a rule"},
	})
	want := "# .git: 1 changed, 1 removed, 1 protected; applied as a whole, listed by --stat\n# removed \".git/old\\012\"\n# protected .git/config: a rule\n"
	if got != want || gitNotes(nil) != "" {
		t.Errorf("%q, want %q", got, want)
	}
}

// The present rules and those of the last session both apply. A negation in the last session's
// rules lifts no present rule.
func TestStricterPatterns(t *testing.T) {
	text := func(list []rules.Pattern) string {
		var out []string
		for _, p := range list {
			out = append(out, p.Text.Raw())
		}
		return strings.Join(out, " ")
	}
	now := guard.Patterns{Hide: guard.Texts("a", "!b"), Protect: guard.Texts("p"), Allow: guard.Texts("x", "y")}
	if got := stricter(&now, nil); text(got.Hide) != "a !b" || text(got.Allow) != "x y" {
		t.Errorf("without a last session: %+v", got)
	}
	last := guard.Patterns{Hide: guard.Texts("a", "c", "!a"), Deny: guard.Texts("d"), Allow: guard.Texts("y", "z"), Gitignore: true}
	got := stricter(&now, &last)
	if text(got.Hide) != "a !b a c" || text(got.Protect) != "p" || text(got.Deny) != "d" || text(got.Allow) != "y" || !got.Gitignore {
		t.Errorf("together: %+v", got)
	}
	now.NoDefaults = true
	if got := stricter(&now, &last); got.NoDefaults || text(got.Allow) != "y z" {
		t.Errorf("without built-in rules now: %+v", got)
	}
	last.NoDefaults = true
	if got := stricter(&now, &last); !got.NoDefaults {
		t.Errorf("without built-in rules in both: %+v", got)
	}
}

// Together, two lists of patterns refuse what either list refuses, and lift only the built-in rules
// that both lift, also where the lists have negations.
func TestStricterNegations(t *testing.T) {
	hide := func(texts ...string) guard.Patterns { return guard.Patterns{Hide: guard.Texts(texts...)} }
	allow := func(texts ...string) guard.Patterns { return guard.Patterns{Allow: guard.Texts(texts...)} }
	ignore := func(p guard.Patterns) guard.Patterns { p.Gitignore, p.NoDefaults = true, true; return p }
	for _, tc := range []struct {
		name      string
		now, last guard.Patterns
		path      string
		isRefused bool
	}{
		{"new negation", hide("*.dat", "!x.dat"), hide("*.dat"), "x.dat", true},
		{"same negation", hide("*.dat", "!x.dat"), hide("*.dat", "!x.dat"), "x.dat", false},
		{"more patterns now", hide("*.dat", "!x.dat", "*.bin"), hide("*.dat", "!x.dat"), "x.dat", false},
		{"removed negation", hide("*.dat"), hide("*.dat", "!x.dat"), "x.dat", true},
		{"moved pattern", hide("!x.dat", "*.dat"), hide("*.dat", "!x.dat"), "x.dat", true},
		{"both lift", allow(".env"), allow(".env"), ".env", false},
		{"a negation now", allow(".env*", "!.env"), allow(".env*"), ".env", true},
		{"a negation in the last session", allow(".env*"), allow(".env*", "!.env"), ".env", true},
		{"a negation in both", allow(".env*", "!.env.x"), allow(".env*", "!.env.x"), ".env", false},
		{"only one lifts .gitignore", ignore(guard.Patterns{}), allow(".env"), ".env", true},
	} {
		got := stricter(&tc.now, &tc.last)
		set, err := got.Preview()
		if err != nil {
			t.Fatal(err)
		}
		if v := set.At("").Judge("", tc.path, pattern.Other, nil); (v.Effect != pattern.None) != tc.isRefused {
			t.Errorf("%s: %+v: %s is refused: %v", tc.name, got, tc.path, !tc.isRefused)
		}
	}
}

// TestApplyErrorOfAnInterrupt checks that an apply that a signal interrupted says which changes
// are left, with and without a session, and that applyError replaces no other error.
func TestApplyErrorOfAnInterrupt(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const want = "interrupted: what was applied stays applied"
	none := &vfs.StageResult{}
	some := &vfs.StageResult{Done: make([]vfs.StageChange, 1), Left: []vfs.StageChange{{Class: vfs.StageNew}, {Class: vfs.StageConflict}}}
	for _, err := range []error{
		fmt.Errorf("stage.apply: %w", context.Canceled),
		&guard.Error{Kind: names.IO, Err: unix.EINTR},
		&control.Error{Text: "context canceled"},
	} {
		if got := applyError(ended, err, none); !strings.HasPrefix(got.Error(), want) {
			t.Errorf("after a signal, %v became %q", err, got)
		}
		if got := applyError(ended, err, some).Error(); got != "interrupted: 1 change applied; left staged: 1 new, 1 conflict" {
			t.Errorf("after a signal that left something, %v became %q", err, got)
		}
		if got := applyError(t.Context(), err, none); got != err {
			t.Errorf("without a signal, %v became %q", err, got)
		}
	}
	full := &guard.Error{Kind: names.IO, Err: unix.ENOSPC}
	if got := applyError(ended, full, none); got != error(full) {
		t.Errorf("a full disk became %q", got)
	}
	if got := applyError(ended, nil, none); got != nil {
		t.Errorf("an apply that was done became %q", got)
	}
}

// TestLeftError checks that the error says "nothing was applied" only if that is true: a change
// can also be left during the apply, after others were applied.
func TestLeftError(t *testing.T) {
	c := []vfs.StageChange{{Class: vfs.StageConflict, Path: "f"}}
	for _, test := range []struct {
		f    applyFlags
		done []vfs.StageChange
		want string
	}{
		{applyFlags{}, nil, "nothing was applied: 1 conflict; apply the rest with --partial"},
		{applyFlags{}, c, "left staged: 1 conflict"},
		{applyFlags{partial: true}, nil, "left staged: 1 conflict"},
		{applyFlags{dryRun: true}, c, "nothing would be applied: 1 conflict; apply the rest with --partial"},
	} {
		if got := leftError(&test.f, &vfs.StageResult{Done: test.done, Left: c}).Error(); got != test.want {
			t.Errorf("%+v with %d applied: %q, want %q", test.f, len(test.done), got, test.want)
		}
	}
}

// The age of a stage is a part of a sentence, also below a minute.
func TestAgoText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 0: "just now", 59 * time.Second: "just now",
		time.Minute: "1m ago", 3 * time.Hour: "3h ago", 72 * time.Hour: "3d ago",
	} {
		if got := agoText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
