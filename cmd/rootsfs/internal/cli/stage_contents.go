package cli

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/vfs"
)

// stageReader reads the contents of changes. A request to a session takes longer than reading a
// small file. So if the caller reads the files in the order of the list, the request for one file also
// gets the files after it.
type stageReader struct {
	ask   func(context.Context, control.StageContentsRequest) (control.StageContentsAnswer, error)
	files []control.StageFile  // in the order in which a patcher reads them
	index map[stageSide]int    // the index of each file in files
	last  int                  // the index of the file that the caller read last; -1: none
	ahead map[stageSide][]byte // contents that a request got and the caller has not read yet
}

// stageSide is a file in the stage, or the file at the same path in the root.
type stageSide struct {
	path   string
	staged bool
}

// mostNext is how many files one request gets.
const mostNext = 256

func newStageReader(o *openStage, list []vfs.StageChange) *stageReader {
	r := &stageReader{index: map[stageSide]int{}, last: -1}
	r.ask = func(ctx context.Context, req control.StageContentsRequest) (control.StageContentsAnswer, error) {
		req.Store = o.Dir
		return askStage(ctx, o, control.StageContents, session.StageContents, req)
	}
	for i := range list {
		for _, staged := range []bool{false, true} {
			mode := list[i].OldMode
			if staged {
				mode = list[i].Mode
			}
			if mode == 0 || mode&unix.S_IFMT == unix.S_IFDIR {
				continue
			}
			path := list[i].Path.Raw()
			r.index[stageSide{path, staged}] = len(r.files)
			r.files = append(r.files, control.StageFile{Path: []byte(path), Staged: staged})
		}
	}
	return r
}

// read returns the contents of a file. If there are more than mostText bytes, the error is
// names.Quota.
func (r *stageReader) read(ctx context.Context, path string, staged bool) ([]byte, error) {
	key := stageSide{path, staged}
	at, isListed := r.index[key]
	isNext := isListed && at == r.last+1
	if isListed {
		r.last = at
	}
	if text, ok := r.ahead[key]; ok {
		delete(r.ahead, key)
		return text, nil
	}
	req := control.StageContentsRequest{Path: []byte(path), Staged: staged, Most: mostText}
	if isNext {
		req.Next = r.files[at+1 : min(at+mostNext, len(r.files))]
	}
	a, err := r.ask(ctx, req)
	if isNext {
		r.ahead = map[stageSide][]byte{}
		for i, text := range a.Next {
			if text != nil {
				r.ahead[stageSide{string(req.Next[i].Path), req.Next[i].Staged}] = text
			}
		}
	}
	return a.Contents, err
}
