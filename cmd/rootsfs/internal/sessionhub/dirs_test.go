package sessionhub

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A published session is found, also if its directory was seen before, and a session is dropped
// when its directory is removed. Like Run, the test looks only after changes of the directories.
func TestSessionsAreFound(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	dirs := watchSessions(ctx)
	defer dirs.close()
	defer cancel()
	// await repeats the steps of Run's loop until the live sessions are the wanted ones.
	await := func(what string, want ...string) {
		t.Helper()
		t.Log(what)
		for {
			<-dirs.changes
			list, err := control.List()
			testkit.Must(t, err)
			testkit.Must(t, dirs.follow())
			var got []string
			for _, in := range list {
				got = append(got, in.Name)
			}
			if slices.Equal(got, want) {
				return
			}
		}
	}
	await("no directory of the sessions")
	for range 2 { // the second time under names that were used before
		one, err := control.Create("one")
		testkit.Must(t, err)
		for quiet := false; !quiet; { // the directory is seen before the session is published
			select {
			case <-dirs.changes:
				testkit.Must(t, dirs.follow())
			case <-time.After(time.Second / 2):
				quiet = len(dirs.stops) == 1
			}
		}
		testkit.Must(t, one.Publish(control.Info{}))
		await("published", "one")
		two, err := control.Create("two")
		testkit.Must(t, err)
		testkit.Must(t, two.Publish(control.Info{}))
		await("another one", "one", "two")
		testkit.Must(t, one.Remove())
		await("the first has ended", "two")
		testkit.Must(t, two.Remove())
		await("none is left")
	}
}
