package beneath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A file can be opened as a root while an editor saves it again and again by rename.
func TestOpenRootWhileReplaced(t *testing.T) {
	dir := t.TempDir()
	file, next := filepath.Join(dir, "f"), filepath.Join(dir, "next")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			err := os.WriteFile(next, nil, 0o600)
			if err == nil {
				err = os.Rename(next, file)
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 2000 {
		s, err := Opener{}.OpenRoot(file)
		if err != nil {
			t.Error(err)
			break
		}
		if s.File() != "f" || s.Resolved() != file {
			t.Errorf("the root is %q, at %q", s.File(), s.Resolved())
		}
		testkit.Must(t, s.Close())
	}
	close(stop)
	testkit.Must(t, <-stopped)
}
