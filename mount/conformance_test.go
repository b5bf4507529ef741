package mount

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// A mount gives the answers that the conformance suite of the front ends expects, at every cache
// level. The suite grants and revokes roots while the mount serves. R063, R064, R110, R134, R151.
func TestConformance(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		if level != Max {
			conform(t, Options{Level: level}, 300)
			return
		}
		// A mount at level max takes either writable roots or, if it is read-only, read-only
		// ones.
		t.Run("rw", func(t *testing.T) { conform(t, Options{Level: level}, 150) })
		t.Run("ro", func(t *testing.T) { conform(t, Options{Level: level, ReadOnly: true}, 10) })
	})
}

// A mount of staged roots, whose changes are kept apart from their sources, gives the same
// answers. No call changes a source.
func TestConformanceStaged(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		if level == Max {
			return // level max takes no staged roots, see TestStagedRefused
		}
		opt := Options{Level: level}
		guardtest.Run(t, suite(opt, 200, func(s *guardtest.Suite) {
			s.Opener, s.Staged = vfs.StagingOpener(t.TempDir(), "test"), true
			inner, tree := s.Make, (*vfs.Tree)(nil)
			s.Make = func(t testing.TB, reg *guard.Registry) guardtest.Front {
				tree = vfs.New(reg)
				return inner(t, reg)
			}
			s.Apply = func(root guard.RootName) error {
				got, err := tree.StageApply(context.Background(), root, vfs.StageApply{Links: true})
				if err == nil && len(got.Left) > 0 {
					err = fmt.Errorf("left: %v", got.Left)
				}
				return err
			}
		}))
	})
}

func conform(t *testing.T, opt Options, atLeast int) {
	guardtest.Run(t, suite(opt, atLeast, func(*guardtest.Suite) {}))
}

// suite returns the conformance suite for a mount with the options opt, after change has adapted
// the suite. atLeast is the number of cases that have to run.
func suite(opt Options, atLeast int, change func(*guardtest.Suite)) guardtest.Suite {
	s := guardtest.Suite{
		Opener: vfs.Opener(), Subject: "peer",
		Can: guardtest.Can{Attributes: true, Links: true, RawNames: true, GoneIsAbsent: true,
			LearnsLater: opt.Level == Max, ReadOnlyByKernel: opt.ReadOnly},
		Make: func(t testing.TB, reg *guard.Registry) guardtest.Front {
			opt.Subject = "peer"
			return mountFront(t, opt, reg)
		},
		AtLeast: atLeast,
	}
	change(&s)
	return s
}

func mountFront(t testing.TB, opt Options, reg *guard.Registry) childfs.Front {
	t.Helper()
	if err := mountpoint.CheckFUSE(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to mount: %v", err)
		}
		t.Skip(err)
	}
	opt.Point = t.TempDir()
	m, err := New(reg, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = reg.RevokeAll(context.Background())
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	return childfs.Front{Point: opt.Point}
}
