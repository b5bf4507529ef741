package control

import (
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// These are the requests and answers of the owner's commands about the stage of a root in a live
// session. Paths are bytes, because names need not be UTF-8.

// StageRequest is about a stage, or about its changes at some paths.
type StageRequest struct {
	Store string   `json:"store"`           // directory of the stage
	Paths [][]byte `json:"paths,omitempty"` // below the root; none: everything
}

// StageApplyRequest asks to apply changes; see vfs.StageApply.
type StageApplyRequest struct {
	StageRequest
	Partial bool   `json:"partial,omitempty"`
	Links   bool   `json:"links,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Take    string `json:"take,omitempty"`
}

// StageContentsRequest asks for the contents of a file in the stage, or in the source.
type StageContentsRequest struct {
	Store  string `json:"store"`
	Path   []byte `json:"path"`
	Staged bool   `json:"staged"`
	Most   int64  `json:"most"` // most bytes of the contents; if there are more, the request is refused
	// Next has the files that the client wants to read after this one. The answer may have their
	// contents, too.
	Next []StageFile `json:"next,omitempty"`
}

// StageFile is a file in the stage, or in the source.
type StageFile struct {
	Path   []byte `json:"path"`
	Staged bool   `json:"staged"`
}

// StageChange is one change.
type StageChange struct {
	Path    []byte     `json:"path"`
	Class   byte       `json:"class"`
	Mode    uint32     `json:"mode"`
	OldMode uint32     `json:"old_mode"`
	Size    int64      `json:"size"`
	OldSize int64      `json:"old_size"`
	Why     names.Text `json:"why,omitempty"`
	Output  []byte     `json:"output,omitempty"` // the build output that it belongs to, below the root
}

// StageAnswer has the result of a request. If the request only lists changes, all are in Done.
type StageAnswer struct {
	Done    []StageChange `json:"done"`
	Left    []StageChange `json:"left,omitempty"`
	Dropped []StageChange `json:"dropped,omitempty"`
	Output  []StageChange `json:"output,omitempty"` // build output that was left in the stage, because no path named it
}

// StageContentsAnswer is the contents of a file.
type StageContentsAnswer struct {
	Contents []byte `json:"contents"`
	// Next has the contents of the first files of the request's Next; null for a file that must be
	// requested by itself.
	Next [][]byte `json:"next,omitempty"`
}

// StagePaths converts paths for a request.
func StagePaths(paths []string) (out [][]byte) {
	for _, p := range paths {
		out = append(out, []byte(p))
	}
	return out
}

// PathStrings returns the paths of the request as strings.
func (r *StageRequest) PathStrings() (out []string) {
	for _, p := range r.Paths {
		out = append(out, string(p))
	}
	return out
}

// AnswerOf converts a result for an answer.
func AnswerOf(r *vfs.StageResult) StageAnswer {
	return StageAnswer{Done: changesToSend(r.Done), Left: changesToSend(r.Left), Dropped: changesToSend(r.Dropped), Output: changesToSend(r.Output)}
}

// Result returns the result in the answer.
func (a *StageAnswer) Result() vfs.StageResult {
	return vfs.StageResult{Done: changesReceived(a.Done), Left: changesReceived(a.Left), Dropped: changesReceived(a.Dropped), Output: changesReceived(a.Output)}
}

func changesToSend(list []vfs.StageChange) []StageChange {
	out := make([]StageChange, 0, len(list))
	for i := range list {
		c := &list[i]
		out = append(out, StageChange{[]byte(c.Path), byte(c.Class), c.Mode, c.OldMode, c.Size, c.OldSize, c.Why, []byte(c.Output)})
	}
	return out
}

func changesReceived(list []StageChange) []vfs.StageChange {
	out := make([]vfs.StageChange, 0, len(list))
	for i := range list {
		c := &list[i]
		out = append(out, vfs.StageChange{Path: names.Foreign(c.Path), Class: vfs.StageClass(c.Class), Mode: c.Mode, OldMode: c.OldMode, Size: c.Size, OldSize: c.OldSize, Why: c.Why, Output: names.Foreign(c.Output)})
	}
	return out
}
