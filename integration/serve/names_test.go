package serve

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If a command cannot choose a session, its error also lists sessions without a mount. If the owner
// gives revoke a name that is not a root's, for example a session's, the error refers to
// `rootsfs roots list`. unmount also ends a session that has no mount.
func TestSessionsWithoutMount(t *testing.T) {
	h := newHome(t)
	root := "r=" + t.TempDir()
	one := start(t, h.command("serve", "--root", root, "--name", "t4"))
	two := start(t, h.command("serve", "--root", root, "--name", "t5"))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"consent list", 4, "several sessions are live (t4, t5): say which"},
		{"status --session zzz", 4, "live are t4, t5"},
		{"revoke --session t4 t4", 4, "see: rootsfs roots list\n"},
		{"revoke --session t4 x", 4, "see: rootsfs roots list\n"},
		{"__complete unmount t", 0, "t4\tt4"},
		{"unmount t4", 0, "ended session t4; 1 root revoked"},
		{"unmount t5 --json", 0, `"session": "t5"`},
	} {
		cmd := h.command(strings.Fields(c.args)...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("rootsfs %s: exit %d: %s; want %d, %q", c.args, got, out, c.code, c.want)
		}
	}
	for _, s := range []*stdioServer{one, two} {
		<-s.ended
		testkit.Must(t, s.cmd.Wait())
	}
}
