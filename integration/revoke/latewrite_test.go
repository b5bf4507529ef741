package revoke

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/hangfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A source hangs, and a write to it through `rootsfs mount` is refused because the root is
// revoked. That write does not reach the source once `rootsfs revoke` has returned 0. If the
// source has already received the write, the write may finish: revoke reports this, and returns 1.
func TestRefusedWriteOnAHangingSource(t *testing.T) {
	for request, c := range map[string]struct {
		message string // part of revoke's output
		content string // the start of the source's file after the test
		exit    int
		arrived []string // the changes that reach the source before the revocation
	}{
		"getattr f": {"r: revoked", "before", 0, nil},
		"write":     {"1 call that changes the source has not returned and may still arrive", "late", 1, []string{"write"}},
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			back := t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(back, "f"), []byte("before"), 0o600))
			var source *hangfs.FS
			p := newProgramOn(t, func(src string) { source = hangfs.Mount(t, back, src) })
			writer := start(t, "holder", nil)
			var fd int
			writer.call("open", callArg{Path: filepath.Join(p.point, "r", "f"), Flags: unix.O_RDWR}, &fd)
			// The kernel asks for attributes before the first write to a file.
			writer.call("write", callArg{FD: fd, Text: "before"}, nil)
			source.Changes()
			held := source.Hold(request)
			testkit.Must(t, writer.send("write", callArg{FD: fd, Text: "late"}))
			<-held.Entered

			out, err := p.run(p.binary, "revoke", "r")
			exit := 0
			if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
				exit = failed.ExitCode()
			} else {
				testkit.Must(t, err)
			}
			if exit != c.exit || !strings.Contains(out, c.message) {
				t.Errorf("revoke: exit code %d, want %d\n%s", exit, c.exit, out)
			}
			if err := writer.receive("write", nil); err == nil {
				t.Error("the write was not refused")
			}
			if got := source.Changes(); !slices.Equal(got, c.arrived) {
				t.Errorf("before the source continues, the changes %v have arrived, want %v", got, c.arrived)
			}
			last := source.Hold("release f") // the daemon closes the file after the last call that uses the file
			held.Release()
			testkit.Must(t, writer.try("close", callArg{FD: fd}, nil))
			<-last.Entered
			last.Release()
			if got := source.Changes(); len(got) > 0 {
				t.Errorf("changes that arrived after the revocation: %v", got)
			}
			if got, err := os.ReadFile(filepath.Join(back, "f")); err != nil || !strings.HasPrefix(string(got), c.content) {
				t.Errorf("the source holds %q, %v, want %q", got, err, c.content)
			}
		})
	}
}
