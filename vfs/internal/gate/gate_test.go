package gate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// A dry run of an operation that returns a descriptor is refused before it begins, so that no
// dry run gives one out.
func TestDryRunOpensNothing(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	g := guard.Grant{Root: "r", Dir: names.Foreign(t.TempDir()), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}
	if _, err := reg.Grant(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	p, err := guard.NewPath("r", "a")
	if err != nil {
		t.Fatal(err)
	}
	req := guard.Request{Caller: guard.Caller{Via: guard.ViaFiles}, Op: names.OpOpen, Path: p, Dry: &guard.DryRun{}}
	_, err = gate.Do(context.Background(), reg, req, func(int) {}, func(*guard.Lease) (int, int64, error) {
		t.Error("the operation was run")
		return 1, 0, nil
	})
	if !errors.Is(err, names.Internal) {
		t.Error(err)
	}
}
