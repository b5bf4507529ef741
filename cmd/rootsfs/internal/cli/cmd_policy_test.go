package cli

import (
	"os"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If the working directory is gone, a path that begins with . or .. is refused, with advice. Other
// paths need no working directory.
func TestCheckedPathWithoutWorkingDir(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Must(t, os.Remove(dir))
	for path, want := range map[string]string{
		"./f":    "the working directory is gone; cd to one that exists",
		"..":     "the working directory is gone; cd to one that exists",
		"root/f": "", "/f": "",
	} {
		err := setCheckPath(&control.CheckRequest{}, path)
		if got := errText(err); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
