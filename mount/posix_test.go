package mount

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/rootsfs/rootsfs/guard"
)

// go-fuse's posixtest, whole, at every cache level.
func TestPosixtest(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		for name, f := range posixtest.All {
			t.Run(name, func(t *testing.T) {
				if name == "FcntlFlockLocksFile" {
					// go-fuse's own run leaves it out ("TODO - fix this
					// test"): it expects a process to exclude itself with
					// POSIX locks, and fails on ext4 for the same reason.
					t.Skip("wrong by POSIX: fails on ext4 too")
				}
				m := newTestMount(t, guard.ReadWrite, func(o *Options, g *guard.Grant) {
					o.Level = level
					g.Policy.PosixFull = true
				})
				f(t, m.root)
			})
		}
	})
}
