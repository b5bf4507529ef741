package serve

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// A mount and `rootsfs serve --session` are one session: what one writes the other
// reads, one revocation ends both, and so does the session's end. R070.
func TestSharedSession_R070(t *testing.T) {
	lab.NeedFUSE(t)
	h := newHome(t)
	base := lab.Dir(t)
	point, dir, other := filepath.Join(base, "mnt"), filepath.Join(base, "w"), filepath.Join(base, "o")
	for _, d := range []string{point, dir, other} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(other, "f"), []byte("other"), 0o644))
	h.tell("mount", "--daemon", "--name", "work", "--root", "w="+dir+":rw", "--root", "o="+other, point)
	t.Cleanup(func() {
		if lab.Mounted(point) {
			h.tell("unmount", point)
		}
	})
	cmd := h.command("serve", "--session", "work")
	s := start(t, cmd)
	s.ok("write_file", m{"path": "w/a", "content": "one"})
	if got, err := exec.Command("cat", point+"/w/a").CombinedOutput(); string(got) != "one" {
		t.Errorf("the mount has %q, %v", got, err)
	}
	if out, err := exec.Command("sh", "-c", "echo two >"+point+"/w/a").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := s.ok("read_text_file", m{"path": dir + "/a"}); got != "two\n" {
		t.Errorf("the tools have %q", got)
	}
	h.tell("revoke", "--session", "work", "w")
	if got, err := exec.Command("cat", point+"/w/a").CombinedOutput(); err == nil {
		t.Errorf("the mount still has %q", got)
	}
	s.refused("read_text_file", m{"path": "w/a"}, "")
	if got := s.ok("read_text_file", m{"path": "o/f"}); got != "other" {
		t.Errorf("another root: %q", got)
	}
	if got := h.tell("audit", "show", "--session", "work"); !strings.Contains(got, "serve") {
		t.Errorf("the records name no subject serve:\n%s", got)
	}
	h.tell("unmount", point)
	<-s.ended
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(s.log.String(), "no such session: work has ended") {
		t.Errorf("it ended with %v: %s", err, s.log)
	}
}
