package vfs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// maxGaps bounds the pieces of an upload that do not touch: each is remembered.
const maxGaps = 4096

type span struct{ from, to int64 }

// WriteAt takes one piece. Pieces may come in any order and overlap, the later
// one wins; bytes are charged to the quotas as they come. It returns how many
// were written; fewer than given come with an error.
func (u *Upload) WriteAt(ctx context.Context, c guard.Caller, data []byte, off int64) (int, error) {
	u.busy.RLock()
	defer u.busy.RUnlock()
	end := off + int64(len(data))
	req := guard.Request{Caller: c, Op: names.OpReplace, Bytes: int64(len(data)), Size: end, Quiet: true}
	if u.ended() {
		return 0, u.refuse(ctx, req)
	}
	var wrote atomic.Int64
	own := func() func() {
		data = bytes.Clone(data)
		return u.take()
	}
	committing := u.committing.Load() // the file may have its name already
	_, err := doUpload(ctx, u, req, own, func(l *guard.Lease) (struct{}, int64, error) {
		if committing {
			return struct{}{}, 0, &guard.Error{Kind: names.Timeout}
		}
		if off < 0 || end < off {
			return struct{}{}, 0, unix.EINVAL
		}
		if err := u.room(off, end); err != nil {
			return struct{}{}, 0, err
		}
		n, err := beneath.Pwritev(l, u.s.fd, [][]byte{data}, off, false)
		wrote.Store(int64(n))
		return struct{}{}, int64(n), err
	})
	n := wrote.Load()
	u.add(off, off+n)
	return int(n), err
}

// room refuses a piece that would leave too many gaps.
func (u *Upload) room(from, to int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.spans) < maxGaps {
		return nil
	}
	for _, s := range u.spans {
		if from <= s.to && to >= s.from {
			return nil
		}
	}
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("the upload has more than %d gaps; send pieces nearer to one another", maxGaps)}
}

func (u *Upload) add(from, to int64) {
	if from >= to {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	i, _ := slices.BinarySearchFunc(u.spans, from, func(s span, from int64) int {
		if s.to < from {
			return -1
		}
		return 1
	})
	j := i
	for j < len(u.spans) && u.spans[j].from <= to {
		from, to = min(from, u.spans[j].from), max(to, u.spans[j].to)
		j++
	}
	u.spans = slices.Replace(u.spans, i, j, span{from, to})
}

// complete reports a gap. Commit holds busy.
func (u *Upload) complete() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case len(u.spans) == 0, len(u.spans) == 1 && u.spans[0].from == 0:
		return nil
	case u.spans[0].from > 0:
		return gapError(0, u.spans[0].from)
	}
	return gapError(u.spans[0].to, u.spans[1].from)
}

func gapError(from, to int64) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("the upload has a gap: bytes %d to %d did not come", from, to)}
}
