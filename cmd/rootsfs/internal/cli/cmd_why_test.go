package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// For a path that does not exist, and for a link that a server made, why proposes no root that
// is or contains a home directory.
func TestWhyProposesNoHome(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	e, err := whySpec(t.Context(), &whyFlags{root: dir + ":rw", op: "write"}, filepath.Join(home, "missing"))
	if err != nil || e.Allow != "" || !strings.Contains(e.Advice.Raw(), "too much") {
		t.Errorf("%+v, %v", e, err)
	}
	inside := filepath.Join(home, "inside")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	for dest, want := range map[string]bool{"/": false, home: false, filepath.Dir(home): false, inside: true} {
		_ = os.Remove(link)
		if err := os.Symlink(dest, link); err != nil {
			t.Fatal(err)
		}
		e := &explanation{CheckAnswer: control.CheckAnswer{Op: "read", Reason: names.Escaped.String(), Link: linkAt(link)}, RootPath: names.Foreign(dir), Mode: "ro", Confinement: "namespaces"}
		if w := e.remedy(nil, link); (w != nil) != want {
			t.Errorf("%s: %v", dest, w)
		}
		if line := e.runLine(link); (line != "") != want || (e.Advice == "") != want {
			t.Errorf("%s: %s, %s", dest, line, e.Advice)
		}
	}
}

// For a path of which only / exists, why proposes no root: every proposal would fail.
func TestWhyProposesNoMissingPath(t *testing.T) {
	const missing = "/no-such-directory-of-a-test/file"
	e := &explanation{CheckAnswer: control.CheckAnswer{Op: "read", Reason: names.NoConsent.String()}}
	if w := e.remedy(nil, missing); w != nil || e.Advice == "" {
		t.Errorf("%s; %q", w.line(), e.Advice)
	}
	e.Advice = ""
	if line := e.runLine(missing); line != "" || e.Advice == "" {
		t.Errorf("%s; %q", line, e.Advice)
	}
	e.Advice = ""
	existing := t.TempDir()
	if w := e.remedy(nil, existing+"/file"); w.line() != names.Text("rootsfs roots add "+existing+":ro") || e.Advice != "" {
		t.Errorf("%s; %q", w.line(), e.Advice)
	}
}

// why --root gives the verdict that run would: a link that leaves the root is refused, unless it
// leads to what the confinement shows of the system. A link that stays in the root is not refused.
func TestWhySpecFollowsLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for link, dest := range map[string]string{"out": outside, "in": "sub", "chain": "in/../out", "usr": "/usr"} {
		if err := os.Symlink(dest, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"out": false, "chain": false, "in": true, "sub": true, "usr/bin": true} {
		e, err := whySpec(t.Context(), &whyFlags{root: dir + ":ro", op: "read"}, filepath.Join(dir, path))
		if err != nil || e.Allowed != want || !want && e.Reason != names.Escaped.String() {
			t.Errorf("%s: %+v, %v", path, e, err)
		}
	}
}

// recordPath returns the name of the refused file unchanged, whatever characters it contains.
func TestWhyOfRecordKeepsName(t *testing.T) {
	const odd = ".env\x1b\"\\x"
	for _, at := range []struct{ path, want string }{{odd, "code/" + odd}, {"", "code"}} {
		r := &audit.Entry{Root: "code", Path: names.Foreign(at.path), Op: "open"}
		if got := recordPath(r); got.Raw() != at.want {
			t.Errorf("%q, want %q", got, at.want)
		}
	}
}

// hostOf returns the refused host, with its port, for the command that why proposes. It returns "" if
// a host was refused for another reason than a missing rule or a missing answer, and "" if no rule
// can permit the name, because it is not the name of one host.
func TestWhyNamesHost(t *testing.T) {
	other := fmt.Errorf("TLS asks for another server: %w", network.ErrNoRule)
	for _, c := range []struct {
		event network.Event
		want  string
	}{
		{network.Event{Host: "a.test", Reason: network.ErrNoRule}, "a.test"},
		{network.Event{Host: "a.test", Port: 443, Reason: network.ErrNoRule}, "a.test:443"},
		{network.Event{Host: "192.0.2.1", Port: 80, Reason: network.ErrNoRule, Program: network.Program{Path: "/usr/bin/curl"}}, "192.0.2.1:80"},
		{network.Event{Host: "a.test", Reason: network.ErrDenied, Program: network.Program{Path: "/x: no rule permits it"}}, ""},
		{network.Event{Host: "2001:db8::", Port: 80, Reason: network.ErrNoRule}, "[2001:db8::]:80"},
		{network.Event{Host: "a.test", Port: 443, ServerName: "b.test", Reason: other}, "b.test:443"},
		{network.Event{Host: "a.test", Port: 443, ServerName: "*.b.test", Reason: other}, ""},
		{network.Event{Host: "a.test", Port: 443, ServerName: "b.test --net", Reason: network.ErrNoRule}, ""},
		{network.Event{Host: "key.secret.internal", Port: 80, Reason: network.ErrNoRule}, ""},
		{network.Event{Host: "a.test", Port: 443, Reason: network.ErrLimit}, ""},
		{network.Event{Host: "10.0.0.0/8", Port: 1, Reason: network.ErrNoRule}, ""},
		{network.Event{Host: "a.test", Port: 443, Reason: network.ErrUnanswered}, "a.test:443"},
	} {
		for _, c.event.State = range []network.State{network.Refused, network.Ended} { // Ended: because of the server name that TLS asks for
			rec := connectionRecord(c.event)
			r := &audit.Entry{Host: names.Foreign(rec.Host), Port: int(rec.Port), ServerName: names.Foreign(rec.ServerName), NoRule: rec.NoRule, Detail: names.Foreign(rec.Detail)}
			if got := hostOf(r); got != c.want {
				t.Errorf("%+v: %q, want %q", c.event, got, c.want)
			}
		}
	}
}

// For a recorded open, opWord returns the operation that the open's rights stand for: rw is write.
func TestOpWordOfRecordedOpen(t *testing.T) {
	for _, c := range []struct{ op, rights, want string }{
		{"open", "rw", "write"}, {"open", "read,write", "write"}, {"open", "read,append", "append"}, {"open", "read", "read"}, {"open", "", "read"}, {"unlink", "delete", "unlink"},
	} {
		if got := opWord(&audit.Entry{Op: names.Foreign(c.op), Rights: names.Foreign(c.rights)}); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.op, c.rights, got, c.want)
		}
	}
}

// If the proposed command lifts the rules of every .gitignore for the sake of one path, a note says
// so.
func TestWhySaysWhatGitignoreLoses(t *testing.T) {
	rule := control.PolicyRule{Effect: "hide", Pattern: "out", From: "sub/.gitignore", Line: 1}
	own := control.PolicyRule{Effect: "hide", Pattern: "*.pem", From: "command line"}
	rules := &control.RootPolicy{Root: "code", Rules: []control.PolicyRule{rule, {Effect: "hide", Pattern: "secrets", From: ".gitignore", Line: 1}, own, {Effect: "hide", Pattern: ".env*", From: control.BuiltIn}}}
	e := &explanation{CheckAnswer: control.CheckAnswer{Path: "code/sub/out", Op: "read", Root: "code", Rule: &rule}}
	if e.Allow = e.remedy(rules, "").line(); e.Allow != "rootsfs policy set code --hide '*.pem'" || !strings.Contains(e.Advice.Raw(), ".gitignore") {
		t.Errorf("%s, %q", e.Allow, e.Advice)
	}
	var out strings.Builder
	if newApp(nil, Stdio{Out: &out}).printExplanation(e); !strings.Contains(out.String(), "note: ") {
		t.Error(out.String())
	}
}

// An ended root is proposed again only if its directory is recorded. The directory is not in records
// of an older version, nor in records without paths.
func TestWhyProposesNoRootWithoutDirectory(t *testing.T) {
	now := time.Now()
	e := &explanation{CheckAnswer: control.CheckAnswer{Path: "code/a", Op: "read", Root: "code", Reason: names.Revoked.String()}, Mode: "ro", RevokedAt: &now}
	if w := e.remedy(nil, "code/a"); w != nil {
		t.Error(w.line())
	}
	e.RootPath = "/home/me/code"
	if w := e.remedy(nil, "code/a"); w.line() != "rootsfs roots add code=/home/me/code:ro" {
		t.Error(w.line())
	}
}

// limitText returns the value of each limit of config.Limits that is set, and "" for a limit that
// is not set. shown has the expected texts of some limits.
func TestLimitText(t *testing.T) {
	shown := map[string]string{"ops_per_second": "7", "max_file": "7", "max_created": "7", "timeout": "1h0m0s", "idle": "1h0m0s"}
	for _, k := range config.Limits() {
		var l guard.Limits
		if got := limitText(k.Name(), l); got != "" {
			t.Errorf("%s: %q, and it is not set", k.Name(), got)
		}
		if k.Set(&l, "1h") != nil && k.Set(&l, "7") != nil {
			t.Errorf("%s takes neither a duration nor a number", k.Name())
		}
		if got := limitText(k.Name(), l); got == "" || shown[k.Name()] != "" && got != shown[k.Name()] {
			t.Errorf("%s: %q, want %q", k.Name(), got, shown[k.Name()])
		}
	}
}
