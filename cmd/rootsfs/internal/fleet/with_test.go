package fleet

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// with runs a command of rootsfs with the sessions of m1.
func (f *realFleet) with(words ...string) (string, int) {
	f.Helper()
	return f.run(f.home, append([]string{"fleet", "with", "m1", "--", "rootsfs"}, words...)...)
}

// An owner looks and revokes at a machine from afar, and grants where the machine's user lets him.
// All that is on record there, and nothing else is in reach.
func TestWithMachine(t *testing.T) {
	f, all := newRealFleet(t, "m1")
	m := all[0]
	check := func(what, out string, code, wantCode int, want string) {
		t.Helper()
		if code != wantCode || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", what, code, wantCode, want, out)
		}
	}
	out, code := f.with("status")
	check("status", out, code, 0, "session mnt@m1")
	out, code = f.with("roots", "set", "code", "ro")
	check("a grant that the user does not allow", out, code, 3, `the machine m1 does not let owners grant anything; its user allows it there`)
	out, code = f.with("stage", "list")
	check("a command that is none for sessions", out, code, 2, "only commands for live sessions")
	f.must(os.MkdirAll(filepath.Join(m.home, "config", "rootsfs"), 0o700))
	f.must(os.WriteFile(filepath.Join(m.home, "config", "rootsfs", "config.toml"), []byte("[fleet]\nallow = [\"grant\"]\n"), 0o600))
	out, code = f.with("roots", "set", "code", "ro")
	check("a grant", out, code, 0, "ro")
	if err := os.WriteFile(m.file, []byte("word"), 0o600); err == nil {
		t.Error("the root can still be written")
	}
	watch := f.command(f.home, "fleet", "with", "m1", "--", "rootsfs", "status", "--watch", "--json")
	events, err := watch.StdoutPipe()
	f.must(err)
	f.must(watch.Start())
	f.Cleanup(func() { stop(watch) })
	f.until("the events of the machine are followed", patience, func() bool {
		out, _ := f.run(m.home, "rootsfs", "audit", "show", "--session", "fleet")
		return strings.Contains(out, "session mnt: watch from afar by owner")
	})
	out, code = f.with("revoke", "--all")
	check("a revocation", out, code, 0, "code")
	if m.reads() {
		t.Error("the root is served after its revocation")
	}
	if line, err := bufio.NewReader(events).ReadString('\n'); err != nil || !strings.Contains(line, `"mnt@m1"`) {
		t.Errorf("the first event: %v %s", err, line)
	}
	stop(watch)
	out, _ = f.run(m.home, "rootsfs", "audit", "show", "--session", "fleet")
	for _, want := range []string{"session mnt: roots.set from afar by owner SHA256:", "session mnt: revoke from afar by owner", "session mnt: status from afar by owner"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in the records:\n%s", want, out)
		}
	}
	stop(m.agent)
	out, code = f.with("status")
	check("a machine without an agent", out, code, 1, "the machine m1 does not answer; see: rootsfs fleet machines")
	out, code = f.run(f.home, "fleet", "with", "m2", "--", "rootsfs", "status")
	check("a machine that is none", out, code, 4, `there is no machine "m2"`)
	if left, _ := filepath.Glob(f.home + "/run/rootsfs/.with-*"); left != nil {
		t.Errorf("directories are left, also that of a command that was killed: %q", left)
	}
}
