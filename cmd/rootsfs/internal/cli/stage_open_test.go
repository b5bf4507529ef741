package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// heldStage makes a stage with the new file "new". A session that answers no requests holds the
// stage until the returned function is called.
func heldStage(t *testing.T) (c *chosenStage, release func()) {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "p")
	for _, name := range []string{"XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		at := filepath.Join(dir, name)
		testkit.Must(t, os.Mkdir(at, 0o700))
		t.Setenv(name, at)
	}
	testkit.Must(t, os.Mkdir(source, 0o755))
	stages, err := session.Stages()
	testkit.Must(t, err)
	reg := guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(stages, "ending")})
	_, err = reg.Grant(t.Context(), guard.Grant{Root: "p", Dir: names.Foreign(source), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite | guard.Stage}})
	testkit.Must(t, err)
	at, err := guard.NewPath("p", "")
	testkit.Must(t, err)
	f, _, _, err := vfs.New(reg).Create(t.Context(), guard.Caller{Via: guard.ViaFUSE, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, vfs.At{Path: at}, "new", unix.O_WRONLY, 0o644)
	testkit.Must(t, err)
	f.Close()
	release = func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = reg.RevokeAll(ctx)
		_ = reg.AwaitStages(ctx)
	}
	t.Cleanup(release)
	all := everyStage()
	if len(all) != 1 || !all[0].Held {
		t.Fatalf("stages are %+v, want one that is held", all)
	}
	return &chosenStage{StageSummary: all[0], dir: source}, release
}

// A command waits for a stage that a session is about to close, instead of telling the owner to
// try again.
func TestOpenWaitsForTheStage(t *testing.T) {
	c, release := heldStage(t)
	go func() {
		time.Sleep(50 * time.Millisecond) // the command has begun
		release()
	}()
	o, err := c.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := o.changes(t.Context(), nil)
	testkit.Must(t, err, o.close(t.Context()))
	if len(list) != 1 || list[0].Path != "new" {
		t.Errorf("changes are %+v, want those of new", list)
	}
}

// The wait for a stage ends when the owner interrupts the command. The error then says that the
// stage is in use.
func TestOpenIsInterrupted(t *testing.T) {
	was := closingTime
	closingTime = 24 * time.Hour // nothing but the interrupt ends the wait
	t.Cleanup(func() { closingTime = was })
	c, _ := heldStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.open(ctx)
		ended <- err
	}()
	testkit.Until(t, "the wait has ended", func() bool { return len(ended) > 0 })
	if err := <-ended; !errors.Is(err, names.Locked) {
		t.Errorf("the error does not say that the stage is in use: %v", err)
	}
}
