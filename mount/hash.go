package mount

import (
	"context"
	"hash/maphash"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
)

// ctxNone is for go-fuse calls that take a context and do nothing with it.
var ctxNone = context.Background()

var seed = maphash.MakeSeed()

func chanHash(c <-chan struct{}) uint64 { return maphash.Comparable(seed, c) }

func errnoOf(err error) syscall.Errno { return names.Errno(err) }
