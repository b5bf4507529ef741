package cli

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// A grant that is made before begin is called returns only after that call.
func TestGrantBeforeTheCommandRuns(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	l := newLaterRoots()
	reg.AddView(l)
	defer reg.RemoveView(l)
	dir := t.TempDir()
	var begun atomic.Bool
	asked, answered := make(chan struct{}), make(chan error, 1)
	go func() {
		close(asked)
		_, err := reg.Grant(context.Background(), guard.Grant{Root: "later", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "the test"})
		if !begun.Load() {
			t.Errorf("the grant was answered before the command ran: %v", err)
		}
		answered <- err
	}()
	<-asked
	testkit.Until(t, "the root is granted", func() bool { return len(reg.Roots()) > 0 })
	begun.Store(true)
	l.begin(runningCommand{}, nil)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
