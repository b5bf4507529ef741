package fleet

import (
	"bufio"
	"errors"
	"io/fs"
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

// An owner reads the status of a machine from afar and revokes its roots. The owner can change the mode
// of a root only if the machine's user allows grants. The machine's records have these acts. Commands
// that are not for sessions are refused.
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
	check("a command that is not for sessions", out, code, 2, "only commands for live sessions")
	out, code = f.with("net", "add", "--save=true", "example.org")
	check("a change of the configuration here", out, code, 2, "--save would write the configuration of this machine")
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
	for _, want := range []string{"list of sessions from afar by owner SHA256:", "session mnt: roots.set from afar by owner SHA256:", "session mnt: revoke from afar by owner", "session mnt: status from afar by owner"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in the records:\n%s", want, out)
		}
	}
	stop(m.agent)
	out, code = f.with("status")
	check("a machine without an agent", out, code, 1, "the machine m1 does not answer; see: rootsfs fleet machines")
	out, code = f.run(f.home, "fleet", "with", "m2", "--", "rootsfs", "status")
	check("an unknown machine", out, code, 4, `there is no machine "m2"`)
	if left, _ := filepath.Glob(f.home + "/run/rootsfs/.with-*"); left != nil {
		t.Errorf("directories of rootsfs fleet with are left, perhaps by the killed command: %q", left)
	}
}

// When an owner's command has set a ceiling, the machine has ended the roots that the ceiling forbids.
// The machine's commands name the ceiling. A machine that leaves the fleet no longer has the ceiling.
func TestCeilingOfAFleet(t *testing.T) {
	f, all := newRealFleet(t, "m1")
	m := all[0]
	file := filepath.Join(f.home, "agents.toml")
	set := func(text string) (string, int) {
		t.Helper()
		f.must(os.WriteFile(file, []byte(text), 0o600))
		return f.run(f.home, "fleet", "ceiling", "set", file, "--wait", "20s")
	}
	if out, code := set("[[root]]\npath = \"/srv\"\nmode = \"x\"\n"); code != 2 || !strings.Contains(out, "agents.toml:3: root.mode") {
		t.Errorf("a ceiling with a mistake: %d\n%s", code, out)
	}
	if out, code := set("# none of it\n[[root]]\npath = \"/srv\"\n"); code != 0 || !strings.Contains(out, " ms, roots ended: 1\n") || m.reads() {
		t.Errorf("a ceiling that forbids the root: %d, and it is served: %v\n%s", code, m.reads(), out)
	}
	const line = "fleet acme, ceiling 1"
	for _, c := range [][]string{
		{"config", "ceiling"}, {"status"}, {"doctor"}, {"why", m.home + "/code/f"}, {"mount", "--daemon", "--root", m.home + "/code", m.home + "/mnt2"},
	} {
		if out, _ := f.run(m.home, append([]string{"rootsfs"}, c...)...); !strings.Contains(out, line) {
			t.Errorf("%q does not name the ceiling:\n%s", c, out)
		}
	}
	// An owner who may grant from afar gives no more than the ceiling allows.
	// cmd/rootsfs/ceilingways_test.go reads the next two lines.
	// ceiling: root.path by fleet with
	// ceiling: root.mode by fleet with
	f.must(os.MkdirAll(filepath.Join(m.home, "config", "rootsfs"), 0o700))
	f.must(os.WriteFile(filepath.Join(m.home, "config", "rootsfs", "config.toml"), []byte("[fleet]\nallow = [\"grant\"]\n"), 0o600))
	if out, code := f.with("roots", "add", m.home+"/code"); code != 3 || !strings.Contains(out, "no place for a root") || !strings.Contains(out, line) {
		t.Errorf("a root from afar: %d\n%s", code, out)
	}
	if out, code := f.with("roots", "add", "x=/srv:rw"); code != 3 || !strings.Contains(out, "at most ro") || !strings.Contains(out, line+", line 2") {
		t.Errorf("a mode from afar: %d\n%s", code, out)
	}
	if out, _ := f.run(m.home, "rootsfs", "config", "ceiling"); !strings.Contains(out, line+", line 2") {
		t.Errorf("the line is missing:\n%s", out)
	}
	if out, code := f.run(f.home, "fleet", "ceiling", "show"); code != 0 || !strings.Contains(out, "# ceiling 1 for all, by owner SHA256:") || !strings.Contains(out, `path = "/srv"`) {
		t.Errorf("show: %d\n%s", code, out)
	}
	// If somebody puts back an older file, the agent writes the newest one again.
	ceilingFile := filepath.Join(m.home, "state", "rootsfs", "fleet", "ceiling.json")
	stop(m.agent)
	f.must(os.WriteFile(ceilingFile, []byte(`{"fleet":"acme","ceilings":[]}`), 0o600))
	m.startAgent()
	if out, _ := f.run(m.home, "rootsfs", "config", "ceiling"); !strings.Contains(out, line) {
		t.Errorf("after an older file was put back:\n%s", out)
	}
	stop(m.agent)
	if out, code := f.run(f.home, "fleet", "ceiling", "remove", "--wait", "1ms"); code != 1 || !strings.Contains(out, "m1: no answer; it is no longer bound by this ceiling when it hears the order") {
		t.Errorf("remove, while the agent is away: %d\n%s", code, out)
	}
	if out, code := f.run(m.home, "fleet", "leave"); code != 0 {
		t.Errorf("leave: %d\n%s", code, out)
	}
	if out, _ := f.run(m.home, "rootsfs", "config", "ceiling"); !strings.Contains(out, "this machine has no ceiling") {
		t.Errorf("after leaving:\n%s", out)
	}
	if _, err := os.Stat(ceilingFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the ceiling's file after leaving: %v", err)
	}
}
