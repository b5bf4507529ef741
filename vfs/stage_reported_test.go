package vfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
)

// reportedLosses lists situations in which other tools that stage or undo changes have failed,
// according to reports of their users: files were lost, came back, or were taken from their owner.
var reportedLosses = []struct {
	name   string
	source string // files, "path=text", or directories, "path/"
	steps  string
	want   string // what programs see, and what the source has once all is applied
}{
	// containers/fuse-overlayfs#271
	{"a directory is removed, and another one gets its name", "a/b/c=c a/b/d=d bak/b/c=c bak/b/d=d",
		"rm a/b/c, rm a/b/d, rmdir a/b, rmdir a, mv bak/b/c bak/b/c2, mv bak a", "a/ a/b/ a/b/c2=c a/b/d=d"},
	// containers/fuse-overlayfs#354
	{"a file gets the name of a removed one", "one=1 two=2", "rm two, put one=new, mv one two", "two=new"},
	// containers/fuse-overlayfs#151
	{"a file in a directory has the name of a removed file", "test=1 d/test=2", "rm test, put d/test=new", "d/ d/test=new"},
	// containers/fuse-overlayfs#306
	{"a directory moves out of one that was made anew", "a/b/c=c", "rm a/b/c, rmdir a/b, rmdir a, mkdir a, mkdir a/b, mv a/b b", "a/ b/"},
	// containers/fuse-overlayfs#307
	{"a file that nobody may write is removed, or its mode changed", "gone=x kept=x", "owner-chmod gone, owner-chmod kept, rm gone, chmod kept", "kept=x"},
	// anthropics/claude-code#34368
	{"an undo brings a removed file back", "f=x", "checkpoint, rm f, undo", "f=x"},
	// anthropics/claude-code#20671
	{"the old name of a moved file stays absent", "f=x", "put f=new, checkpoint, mv f g", "g=new"},
	// juanandresgs/claude-ctrl#118
	{"an undo removes what was made since", "f=x", "checkpoint, put new=n, mkdir d, put d/n=n, undo", "f=x"},
	// entireio/cli#1408
	{"what was removed at a checkpoint stays removed", "keep=k gone=g", "rm gone, checkpoint, put keep=new, undo", "keep=k"},
	// github/copilot-cli#1675
	{"an undo leaves the owner's new files alone", "f=x", "checkpoint, put f=new, owner out/data=big, undo", "f=x out/ out/data=big"},
	// ilovepixelart/pi-code#89
	{"an undo to an empty directory", "", "checkpoint, put d=n, undo", ""},
	// rmusser01/tldw_chatbook#1243
	{"an undo where a directory has the name of a file", "f=x d/g=y", "checkpoint, rm f, mkdir f, put f/in=n, rm d/g, rmdir d, put d=n, undo", "d/ d/g=y f=x"},
	// containers/fuse-overlayfs#478
	{"a removed tree is made anew, moved and made again", "p/t/a/b/info=i p/t/a/b/page=p",
		"rm p/t/a/b/info, rm p/t/a/b/page, rmdir p/t/a/b, rmdir p/t/a, rmdir p/t, mkdir p/t, mkdir p/t/a, mkdir p/t/a/b, put p/t/a/b/new=n, mv p/t p/u, " +
			"mkdir p/t, mkdir p/t/a, mkdir p/t/a/b, rmdir p/t/a/b, rmdir p/t/a", "p/ p/t/ p/u/ p/u/a/ p/u/a/b/ p/u/a/b/new=n"},
	// microsoft/vscode#264707
	{"a discard removes what was made", "f=x", "put f=new, put made=m, mkdir d, put d/made=m, discard", "f=x"},
	// zed-industries/zed#31617
	{"a discard leaves what the owner wrote at the name of a new file", "", "put n=agent, owner n=mine, discard", "n=mine"},
	// UKGovernmentBEIS/inspect_ai#5390
	{"an apply of a file leaves the modes of its directories", "d/f=x", "put d/f=new, chmod d, apply d/f, has-mode d 755, discard", "d/ d/f=new"},
	// zed-industries/zed#59099
	{"an undo leaves the times of other files", "f=x g=y", "owner-old g, checkpoint, put f=new, undo, is-old g, put f=more, is-old g", "f=more g=y"},
	// containers/fuse-overlayfs#400
	{"a change of modes leaves the times", "d/f=x", "owner-old d/f, owner-old d, chmod d/f, chmod d, is-old d/f, is-old d", "d/ d/f=x"},
	// cline/cline#12831
	{"files that no repository tracks come back", ".gitignore=*.log a.log=1", "checkpoint, put a.log=2, put b.log=3, undo", ".gitignore=*.log a.log=1"},
}

// oldTime is the time of files that nobody changes.
var oldTime = time.Unix(1e9, 0)

// A stage loses no file in the situations in which users have reported losses by other tools.
func TestReportedLosses(t *testing.T) {
	for _, c := range reportedLosses {
		t.Run(c.name, func(t *testing.T) {
			s := newStaged(t, strings.Fields(c.source)...)
			for _, step := range strings.Split(c.steps, ", ") {
				s.reportedStep(step)
			}
			if got := plain(s.seen()); got != c.want {
				t.Errorf("programs see %q, want %q", got, c.want)
			}
			if r := s.applyAll(vfs.StageApply{}); len(r.Left) > 0 {
				t.Errorf("left: %+v", r.Left)
			}
			if got := plain(seenIn(t, s.source)); got != c.want {
				t.Errorf("the source has %q, want %q", got, c.want)
			}
		})
	}
}

func (s *stageScene) reportedStep(step string) {
	s.Helper()
	arg := append(strings.Fields(step), "", "")
	name, text, _ := strings.Cut(arg[1], "=")
	mode := uint32(0o640)
	switch arg[0] {
	case "rm":
		s.unlink(name)
	case "rmdir":
		s.rmdir(name)
	case "mkdir":
		s.mkdir(name)
	case "mv":
		s.must(s.rename(name, arg[2], 0))
	case "put":
		s.must(s.putTemp("put~", text))
		s.must(s.rename("put~", name, 0))
	case "chmod":
		_, err := s.tree.Setattr(s.Context(), s.who, s.at(name), nil, vfs.Attrs{Mode: &mode})
		s.must(err)
	case "owner":
		s.must(os.MkdirAll(filepath.Dir(filepath.Join(s.source, name)), 0o755))
		s.must(os.WriteFile(filepath.Join(s.source, name), []byte(text), 0o644))
	case "owner-chmod":
		s.must(unix.Chmod(filepath.Join(s.source, name), 0o444))
	case "owner-old":
		s.must(os.Chtimes(filepath.Join(s.source, name), oldTime, oldTime))
	case "is-old":
		if got := time.Unix(s.lstat(name).Mtime.Sec, 0); !got.Equal(oldTime) {
			s.Errorf("%s is of %v, want %v", name, got, oldTime)
		}
	case "has-mode":
		if info, err := os.Stat(filepath.Join(s.source, name)); err != nil || fmt.Sprintf("%o", info.Mode().Perm()) != arg[2] {
			s.Errorf("%s: %v, %v, want mode %s", name, info.Mode(), err, arg[2])
		}
	case "apply":
		s.applyAll(vfs.StageApply{Paths: []string{name}})
	case "discard":
		_, err := s.tree.StageDiscard(s.Context(), "r", nil)
		s.must(err)
	case "checkpoint":
		_, _, err := s.tree.StageCheckpoint(s.Context(), "r", "now", vfs.CheckpointAsked)
		s.must(err)
	case "undo":
		_, err := s.tree.StageUndo(s.Context(), "r", "now", false)
		s.must(err)
	default:
		s.Fatalf("no step %q", step)
	}
}

var seenText = regexp.MustCompile(`^(\d+) \d+ "(.*)"$`)

// plain describes a tree without modes: "path=text" for files, "path/" for directories.
func plain(tree map[string]string) string {
	var out []string
	for path, text := range tree {
		if part := seenText.FindStringSubmatch(text); strings.HasPrefix(part[1], "40") {
			out = append(out, path+"/")
		} else {
			out = append(out, path+"="+part[2])
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// A session that continues a store without staged changes, such as one that is kept for its
// checkpoints, does not say that it continues changes of earlier sessions.
func TestContinuesOnlyChanges(t *testing.T) {
	s := newStaged(t, "a=old")
	for _, want := range []bool{true, false} {
		s.put("a", "staged")
		_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "kept", vfs.CheckpointAsked)
		s.must(err)
		if !want {
			s.applyAll(vfs.StageApply{})
		}
		s.end()
		s.start()
		if !want {
			s.put("b", "new")
		}
		for _, st := range s.reg.Roots() {
			if st.Stage.Continued != want {
				t.Errorf("continued is %v, want %v", st.Stage.Continued, want)
			}
		}
	}
}
