package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
)

// withOlderRecords sets HOME and XDG variables to temporary directories. The state directory among
// them has the audit records of package audit's test data. The last version of rootsfs that used
// format 1 wrote these records.
func withOlderRecords(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "state", "rootsfs"), os.DirFS("../../../../guard/audit/testdata/format1")); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "HOME": "home"} {
		if err := os.MkdirAll(filepath.Join(dir, value), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, filepath.Join(dir, value))
	}
}

// command runs a command line, and returns what it prints and its exit code.
func command(args ...string) (string, int) {
	var out strings.Builder
	code := Main(args, Stdio{Out: &out, Err: &out})
	return out.String(), code
}

// Records of an older version are shown and verified.
func TestOlderRecordsAreShown(t *testing.T) {
	withOlderRecords(t)
	out, code := command("audit", "show")
	for _, line := range []string{
		`grant        code  (control, /tmp/records.old/src (command line); built-in protections lifted for "/a (b")`,
		`mount        -  (control, /tmp/records.old/mnt --cache=audit --locks=local --posix=safe)`,
		`lookup       one/.env  (Hidden, ENOENT, fuse, pid 22900, hide ".env*" (built in))`,
		`revoke       one  (control, /tmp/records.old/src (one))`,
		`connect      -  (Permission, net, refused.example.test: no rule permits it)`,
		`request      -  (IO, 1ms, net, GET "/x", at api.example.test, secret API_TOKEN, status 502: `,
		`run          -  (control, confined by namespaces, uid 65600)`,
	} {
		if !strings.Contains(out, line) || code != 0 {
			t.Errorf("exit code %d; nothing shows %s\n%s", code, line, out)
		}
	}
	if out, code := command("audit", "show", "--json", "--session", "mounted"); code != 0 || strings.Count(out, "\n") != 12 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := command("audit", "verify"); code != 0 || strings.Count(out, ": ok, ") != 4 || strings.Count(out, "anchored") != 4 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// lines is a writer that counts the lines written to it. After each write it calls stop with the
// number of all lines so far.
type lines struct {
	mu   sync.Mutex
	n    int
	stop func(n int)
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += strings.Count(string(b), "\n")
	l.stop(l.n)
	return len(b), nil
}

// Records of an older version are followed.
func TestOlderRecordsAreFollowed(t *testing.T) {
	withOlderRecords(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const all = 12 + 8 + 13 + 6 // without the headers
	out := &lines{stop: func(n int) {
		if n == all {
			cancel()
		}
	}}
	a := newApp(nil, Stdio{Out: out, Err: out})
	dir, session, err := auditLocation(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.auditFollow(ctx, dir, session, audit.Filter{Since: time.Unix(1, 0)}); err != nil || out.n != all {
		t.Errorf("%d lines, %v", out.n, err)
	}
}

// If a record of an older version has a fact only as text for people, `rootsfs why` reports the
// fact as not known. It still reports the refused operation and the reason.
func TestWhyOfOlderRecords(t *testing.T) {
	withOlderRecords(t)
	for session, want := range map[string][]string{
		"mounted": {"create one/new: refused: the root is read-only", "root:        one, mode rw; its directory is not known: written by an older version"},
		"ran": {`create code/.git/hooks/x: refused: protect "**/hooks" (built in)`, "its directory is not known: written by an older version",
			"confinement: not known: written by an older version", "to allow it: not known: written by an older version"},
		"netted": {"connect: refused: refused.example.test: no rule permits it", "to allow it: not known: written by an older version"},
		"served": {`replace src/.env: refused: deny ".env*" (built in)`, "to allow it: not known: written by an older version"},
	} {
		out, code := command("why", "--session", session)
		for _, text := range want {
			if !strings.Contains(out, text) || code != exitNotApproved {
				t.Errorf("%s: exit code %d; nothing says %q\n%s", session, code, text, out)
			}
		}
		if strings.Contains(out, "rootsfs run") || strings.Contains(out, "/tmp/records.old/src") {
			t.Errorf("%s: the answer has a fact from the text of the detail:\n%s", session, out)
		}
		out, _ = command("why", "--session", session, "--json")
		var e explanation
		if err := json.Unmarshal([]byte(out), &e); err != nil || !e.Older || e.RootPath != "" || e.Allow != "" {
			t.Errorf("%s: %v %s", session, err, out)
		}
	}
}
