package sessionhub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/textdiff"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Bounds of the shown part of a staged change: bytes of a file, and lines of its diff.
const (
	maxDiffed    = 1 << 20
	maxDiffLines = 2000
)

// classWords describes the classes of changes for people.
var classWords = map[vfs.StageClass]string{
	vfs.StageNew: "new", vfs.StageChanged: "changed", vfs.StageMode: "only its mode, ACL or attributes changed", vfs.StageRemoved: "removed",
	vfs.StageReplaced: "replaced by another kind of file", vfs.StageConflict: "conflict", vfs.StageInUse: "in use",
	vfs.StageProtected: "protected", vfs.StageLink: "link out of the root", vfs.StageSpecial: "special file", vfs.StageUnsure: "unsure",
	vfs.StageRefused: "refused by the file system",
}

// UnitClass is the class of a row for one unit of build output.
const UnitClass = 'B'

// StageRow is a staged change, or one unit of build output.
type StageRow struct {
	control.StageChange
	Kind string `json:"kind"` // what applying the change would do, or why it is not applied, in a few words
}

// StageListAnswer has the rows of a stage, those of build output last, and its checkpoints, the
// oldest first.
type StageListAnswer struct {
	Rows        []StageRow           `json:"rows"`
	Checkpoints []control.Checkpoint `json:"checkpoints"`
}

// StageList lists the changes of a stage, with one row for each unit of build output.
func StageList(ctx context.Context, c *control.Client, req control.StageRequest) (StageListAnswer, error) {
	out := StageListAnswer{Rows: []StageRow{}}
	ans, err := control.ListStage.Call(ctx, c, req)
	if err != nil {
		return out, err
	}
	list, units := vfs.ReviewStage(ans.Result().Done, nil)
	for _, change := range control.AnswerOf(&vfs.StageResult{Done: list}).Done {
		out.Rows = append(out.Rows, StageRow{change, classWords[vfs.StageClass(change.Class)]})
	}
	for _, u := range units {
		out.Rows = append(out.Rows, StageRow{control.StageChange{Path: []byte(u.Path), Class: UnitClass, Size: u.Bytes},
			fmt.Sprintf("build output, applied and dropped as a whole; files: %d, bytes: %d", u.Files, u.Bytes)})
	}
	points, err := control.ListCheckpoints.Call(ctx, c, control.StageRequest{Store: req.Store})
	out.Checkpoints = points.Checkpoints
	return out, err
}

// StageDiffRequest asks for the diff of one staged change.
type StageDiffRequest struct {
	Store  string              `json:"store"` // directory of the stage
	Change control.StageChange `json:"change"`
}

// StageDiffAnswer is the diff of one staged change. Lines hold unescaped text of the files: the
// reader must escape them.
type StageDiffAnswer struct {
	Lines []string `json:"lines"`
	// Note says why there are no lines, or that more are left out.
	Note string `json:"note,omitempty"`
}

// StageDiff compares the files that the stage and the root have at the path of a change.
func StageDiff(ctx context.Context, c *control.Client, req StageDiffRequest) (StageDiffAnswer, error) {
	ans := StageDiffAnswer{Lines: []string{}}
	kind := func(mode uint32) uint32 { return mode & unix.S_IFMT }
	if kind(req.Change.Mode) == unix.S_IFDIR || kind(req.Change.OldMode) == unix.S_IFDIR {
		ans.Note = "a directory; the files in it are changes of their own"
		return ans, nil
	}
	var texts [2]string
	for i, mode := range []uint32{req.Change.OldMode, req.Change.Mode} {
		if kind(mode) != unix.S_IFREG && kind(mode) != unix.S_IFLNK {
			continue
		}
		got, err := control.StageContents.Call(ctx, c, control.StageContentsRequest{Store: req.Store, Path: req.Change.Path, Staged: i == 1, Most: maxDiffed})
		if errors.Is(err, names.Quota) {
			ans.Note = fmt.Sprintf("too large to be shown: more than %d bytes", maxDiffed)
			return ans, nil
		}
		if err != nil {
			return ans, err
		}
		texts[i] = string(got.Contents)
	}
	if !isText(texts[0]) || !isText(texts[1]) {
		ans.Note = "no text: its bytes are not shown"
		return ans, nil
	}
	changes, err := textdiff.Lines(ctx, texts[0], texts[1], 1<<30)
	if err != nil {
		return ans, err
	}
	var b strings.Builder
	textdiff.WriteHunks(&b, texts[0], changes, 3)
	for line := range strings.Lines(b.String()) {
		if len(ans.Lines) == maxDiffLines {
			ans.Note = "there is more; see all of it with rootsfs stage diff"
			break
		}
		ans.Lines = append(ans.Lines, strings.TrimSuffix(line, "\n"))
	}
	if len(ans.Lines) == 0 {
		ans.Note = "the contents are equal"
	}
	return ans, nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
