package serve

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A mount and `rootsfs serve --session` share one session: each reads the other's writes. If a root
// is revoked, neither of them can read it any more. The end of the session ends both. R070.
func TestSharedSession_R070(t *testing.T) {
	lab.NeedFUSE(t)
	h := newHome(t)
	base := lab.Dir(t)
	point, dir, other := filepath.Join(base, "mnt"), filepath.Join(base, "w"), filepath.Join(base, "o")
	for _, d := range []string{point, dir, other} {
		testkit.Must(t, os.Mkdir(d, 0o755))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(other, "f"), []byte("other"), 0o644))
	h.mustRun("mount", "--daemon", "--name", "work", "--root", "w="+dir+":rw", "--root", "o="+other, point)
	t.Cleanup(func() {
		if lab.Mounted(point) {
			h.mustRun("unmount", point)
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
	h.mustRun("revoke", "--session", "work", "w")
	if got, err := exec.Command("cat", point+"/w/a").CombinedOutput(); err == nil {
		t.Errorf("the mount still has %q", got)
	}
	s.mustFail("read_text_file", m{"path": "w/a"}, "")
	if got := s.ok("read_text_file", m{"path": "o/f"}); got != "other" {
		t.Errorf("another root: %q", got)
	}
	if got := h.mustRun("audit", "show", "--session", "work"); !strings.Contains(got, "serve") {
		t.Errorf("the records name no subject serve:\n%s", got)
	}
	h.mustRun("unmount", point)
	<-s.ended
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(s.log.String(), "no such session: work has ended") {
		t.Errorf("the server ended with %v: %s", err, s.log)
	}
}

// `rootsfs serve --session --http` forwards its clients' connections to the live session, which
// answers them. A revocation ends the clients' access, and the end of the session ends the program.
func TestSharedSessionOverHTTP_R070(t *testing.T) {
	lab.NeedFUSE(t)
	h := newHome(t)
	base := lab.Dir(t)
	point, dir := filepath.Join(base, "mnt"), filepath.Join(base, "r")
	for _, d := range []string{point, dir} {
		testkit.Must(t, os.Mkdir(d, 0o755))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o644))
	h.mustRun("mount", "--daemon", "--name", "work", "--root", "r="+dir, point)
	t.Cleanup(func() {
		if lab.Mounted(point) {
			h.mustRun("unmount", point)
		}
	})
	s := h.httpEnding(4, "--session", "work")
	s.checkAlive()
	for name, c := range map[string]struct {
		status int
		change func(*http.Request)
	}{
		"no token":     {401, func(r *http.Request) { r.Header.Del("Authorization") }},
		"foreign host": {403, func(r *http.Request) { r.Host = "evil.example" }},
		"guessed id":   {404, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "AAAAAAAAAAAAAAAAAAAAAAAAAA") }},
		"another path": {404, func(r *http.Request) { r.URL.Path = "/v1/status" }},
	} {
		if got, _ := s.post(strings.NewReader(hello), c.change); got != c.status {
			t.Errorf("%s: %d, want %d", name, got, c.status)
		}
	}
	// One client of each protocol revision is connected when the root is revoked.
	old, single := s.client("2025-11-25"), s.client("2026-07-28")
	h.mustRun("revoke", "--session", "work", "r")
	for _, cs := range []*mcp.ClientSession{old, single} {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_text_file", Arguments: m{"path": "r/a.txt"}})
		if err == nil && !res.IsError {
			t.Errorf("after the revocation: %+v", res)
		}
	}
	if got := h.mustRun("audit", "show", "--session", "work", "--denied"); !strings.Contains(got, "HTTP request from 127.0.0.1:") {
		t.Errorf("the audit records do not name the sender of the refused HTTP requests:\n%s", got)
	}
	h.mustRun("unmount", point)
	s.checkLog("no such session: work has ended")
}
