package vfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// MkdirPath makes one directory. Links of the directories above are followed
// where they stay inside; what stands at the path itself, a link too, is EEXIST.
func (t *Tree) MkdirPath(ctx context.Context, c guard.Caller, p guard.Path, mode uint32) (Info, error) {
	req := guard.Request{Caller: c, Op: names.OpMkdir, Path: p, Names: 1}
	return do(ctx, t, req, nil, func(l *guard.Lease) (Info, int64, error) {
		info, err := followed(ctx, l, p, false, func(q guard.Path) (Info, error) {
			if q.IsRoot() {
				return Info{}, unix.EEXIST
			}
			d, base, err := beneath.Parent(l, q)
			if err != nil {
				return Info{}, err
			}
			defer d.Close()
			return beneath.Mkdir(d, base, umasked(c, d, mode&07777), owner(c))
		})
		return info, 0, err
	})
}
