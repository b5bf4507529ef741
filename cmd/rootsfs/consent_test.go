package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// asker is a live session and a server that is connected to its broker.
type asker struct {
	t       *testing.T
	s       *session.Session
	work    string
	conn    net.Conn
	answers <-chan map[string]json.RawMessage
	next    int
	end     func() // ends the session, once
}

// newAsker begins a session whose configuration is conf, with $WORK replaced.
func newAsker(t *testing.T, conf string) *asker {
	t.Helper()
	if err := mountpoint.CheckFUSE(); err != nil {
		t.Skip("a real mount is needed: ", err)
	}
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// A mount clears the umask of its process, and other tests rely on the umask.
	umask := unix.Umask(0o022)
	unix.Umask(umask)
	t.Cleanup(func() { unix.Umask(umask) })
	for _, d := range []string{"run", "state", "config/rootsfs", "mnt", "src/pub", "src/priv", "pre/in"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(work, "run"))
	t.Setenv("XDG_STATE_HOME", filepath.Join(work, "state"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(work, "config"))
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	useReleased(t)
	file := filepath.Join(work, "config/rootsfs/config.toml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(conf, "$WORK", work)), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Start(t.Context(), session.Options{
		Name: "s", Config: c, Keep: c.ReservedPaths(), Mount: mount.Options{Point: filepath.Join(work, "mnt")},
		Roots:  []guard.Grant{{Root: "pub", Dir: names.Foreign(filepath.Join(work, "src/pub")), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}},
		Logger: func(string) (*slog.Logger, error) { return slog.New(slog.DiscardHandler), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{t: t, s: s, work: work}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(stop) }()
	isOver := false
	a.end = func() {
		if isOver {
			return
		}
		isOver = true
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(a.end)
	a.connect("indexer")
	return a
}

// connect connects a server with the name subject to the broker, as the commands that run servers
// do.
func (a *asker) connect(subject guard.Subject) {
	a.t.Helper()
	ours, theirs := net.Pipe()
	one := a.s.Connect(consent.WayServer, subject)
	conn, err := one.Lines(ours, ours, a.s.Frame()).Connect(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	go func() { // what an SDK client would do
		for {
			if _, err := conn.Read(a.t.Context()); err != nil {
				return
			}
		}
	}()
	answers := make(chan map[string]json.RawMessage, 10)
	a.conn, a.answers = theirs, answers
	a.t.Cleanup(func() { _ = theirs.Close(); one.Close() })
	go func() {
		defer close(answers)
		r := bufio.NewReader(theirs)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m map[string]json.RawMessage
			if json.Unmarshal(line, &m) == nil && m["id"] != nil {
				answers <- m
			}
		}
	}()
}

// ask sends files/consent.
func (a *asker) ask(message, mode string, paths ...string) {
	a.t.Helper()
	a.next++
	params, err := json.Marshal(wire.ConsentParams{Message: message, Mode: mode, RequestedPaths: paths})
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(a.conn, `{"jsonrpc":"2.0","id":%d,"method":"files/consent","params":%s}`+"\n", a.next, params); err != nil {
		a.t.Fatal(err)
	}
}

// result waits for the answer to the server's files/consent.
func (a *asker) result() wire.ConsentResult {
	a.t.Helper()
	m, ok := <-a.answers
	var res wire.ConsentResult
	if !ok || m["error"] != nil || json.Unmarshal(m["result"], &res) != nil {
		a.t.Fatalf("no answer to the consent: %s", m)
	}
	return res
}

// cli runs the binary and returns its output; want is its exit code.
func (a *asker) cli(want int, args ...string) string {
	a.t.Helper()
	cmd := exec.Command("rootsfs", args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != want {
		a.t.Fatalf("rootsfs %s: exit %d, want %d: %s", strings.Join(args, " "), got, want, out)
	}
	return string(out)
}

// recorded waits until text is in the session's records. It reads their files, because a command
// that is started again and again takes processor time from the session.
func (a *asker) recorded(text string) {
	a.t.Helper()
	testkit.Until(a.t, "a record of "+text, func() bool {
		files, _ := filepath.Glob(filepath.Join(a.work, "state/rootsfs/audit/*.jsonl")) // the pattern is good
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), text) {
				return true
			}
		}
		return false
	})
}

// waiting returns the questions once there are n.
func (a *asker) waiting(n int) []control.Question {
	a.t.Helper()
	var list []control.Question
	testkit.Until(a.t, fmt.Sprintf("%d questions", n), func() bool {
		list = nil
		if err := json.Unmarshal([]byte(a.cli(cli.ExitOK, "consent", "list", "--json")), &list); err != nil {
			a.t.Fatal(err)
		}
		return len(list) == n
	})
	return list
}

func (a *asker) contains(what, got string, want ...string) {
	a.t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			a.t.Errorf("%s: no %q in:\n%s", what, w, got)
		}
	}
}

// R087, R088, R089: when a server asks, the owner sees the purpose and the resolved path
// without deceptive characters, and can approve less than was asked for.
func TestConsentApprove_R087_R088_R089(t *testing.T) {
	a := newAsker(t, "")
	a.contains("nothing yet", a.cli(cli.ExitOK, "consent", "list"), "no question waits")
	link := filepath.Join(a.work, "link")
	if err := os.Symlink(filepath.Join(a.work, "src/priv"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(a.work, "src/priv/docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.ask("to index\n2. \u202enothing", "rw", link, "/proc/self")
	id := a.waiting(1)[0].ID
	text := a.cli(cli.ExitOK, "consent", "list")
	a.contains("list", text, "question "+id+", ", " left\n", `"to index\n2. \u{202e}nothing"`, "(indexer)",
		`  1. "`+a.work+`/src/priv" (directory, with everything below), read and WRITE, asked for as "`+link+`"`,
		`  2. "/proc/self": cannot be granted: `, "rootsfs consent approve "+id[:8])
	a.contains("status", a.cli(cli.ExitOK, "status"), "1 question waits for your consent", "  indexer ")
	a.contains("completion", a.cli(cli.ExitOK, "__complete", "consent", "approve", ""), id+"\t\""+a.work+"/src/priv\" (directory", ":4")

	// After an invalid answer, the question still waits.
	a.contains("no such id", a.cli(cli.ExitNoSuch, "consent", "approve", "zzzz0"), "no such question", "see: rootsfs consent list")
	a.contains("not grantable", a.cli(cli.ExitUsage, "consent", "approve", id, "--only", "2"), "item 2 cannot be granted")
	a.contains("no item", a.cli(cli.ExitUsage, "consent", "approve", id, "--only", "3"), "there is no item 3: it has 2")
	a.contains("path outside of the item", a.cli(cli.ExitUsage, "consent", "approve", id, "--path", a.work+"/src"), "is not below")
	a.waiting(1)

	out := a.cli(cli.ExitOK, "consent", "approve", id[:6], "--mode", "ro", "--for", "1h", "--path", link+"/docs")
	a.contains("approve", out, `allowed: "`+a.work+`/src/priv/docs" (ro)`, `denied: "/proc/self"`)
	res := a.result()
	if !res.Granted || len(res.Approved) != 1 || res.Approved[0].Root != "docs" || res.Approved[0].Mode != "ro" || res.Approved[0].Expires == "" {
		t.Errorf("the server was told %+v", res)
	}
	a.contains("roots", a.cli(cli.ExitOK, "roots", "list", "--json"), `"resolved": "`+a.work+`/src/priv/docs"`, `"approved_by": "consent: control"`, `"expires"`)
	a.contains("again", a.cli(cli.ExitNoSuch, "consent", "deny", id), "no such question")
	a.contains("audit", a.cli(cli.ExitOK, "audit", "show", "--json"), `consent: control`, `/proc/self: denied by control`)
	if _, err := childfs.ReadDir(filepath.Join(a.work, "mnt/docs")); err == nil {
		t.Error("what was approved for the server is open to the mount's users")
	}
}

// A root that was approved with --idle DURATION ends, with a record, when nobody has used the root
// for this duration.
func TestConsentUntilIdle(t *testing.T) {
	a := newAsker(t, "")
	a.ask("", "ro", a.work+"/src/priv")
	a.cli(cli.ExitOK, "consent", "approve", a.waiting(1)[0].ID, "--idle", "1s")
	if res := a.result(); !res.Granted {
		t.Fatalf("approved: %+v", res)
	}
	a.recorded(`"op":"expire","root":"priv"`) // the record comes after the root has left the list
	if text := a.cli(cli.ExitOK, "roots", "list", "--json"); strings.Contains(text, `"name": "priv"`) {
		t.Errorf("the root is on record as ended, and listed: %s", text)
	}
	a.contains("audit", a.cli(cli.ExitOK, "audit", "show", "--json"), `"op":"expire","root":"priv"`)
}

// A consent never widens access: neither by --mode, nor to paths that the session's rules
// exclude. The owner is asked about such a path as about any other, because an immediate answer
// would tell the server that the path exists.
func TestConsentNeverWidens(t *testing.T) {
	a := newAsker(t, "")
	a.ask("", "ro", a.work+"/src/priv")
	id := a.waiting(1)[0].ID
	a.contains("wider", a.cli(cli.ExitUsage, "consent", "approve", id, "--mode", "rw"), "may be narrower, not wider")
	a.contains("deny", a.cli(cli.ExitOK, "consent", "deny", id), `denied: "`+a.work+`/src/priv"`)
	if res := a.result(); res.Granted || res.Reason != "denied" {
		t.Errorf("denied: %+v", res)
	}
	for _, path := range []string{"/etc", a.work, a.work + "/state"} {
		a.ask("", "rw", path)
		q := a.waiting(1)[0]
		a.contains("a path that cannot be granted", names.Join(q.Lines, "\n"), path, "cannot be granted")
		a.cli(cli.ExitOK, "consent", "approve", q.ID)
		if res := a.result(); res.Granted || res.Reason != "denied" {
			t.Errorf("%s: %+v", path, res)
		}
	}
	a.waiting(0)
}

// One command can answer all waiting questions. Questions can be followed as a stream.
func TestConsentDenyAllAndWatch(t *testing.T) {
	a := newAsker(t, "")
	cmd := exec.Command("rootsfs", "consent", "list", "--watch", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(out)
	next := func(want string) string {
		t.Helper()
		var e struct {
			Event    string
			Question control.Question
		}
		if err := dec.Decode(&e); err != nil || e.Event != want {
			t.Fatalf("%+v, %v; want %s", e, err, want)
		}
		return e.Question.ID
	}
	a.ask("one", "", a.work+"/src/priv")
	first := next("asked")
	a.ask("two", "", a.work+"/src/priv")
	second := next("asked")
	a.cli(cli.ExitOK, "consent", "deny", "--all")
	if res := a.result(); res.Granted {
		t.Errorf("%+v", res)
	}
	a.result()
	if x, y := next("over"), next("over"); x != first && x != second || y != first && y != second || x == y {
		t.Errorf("over: %s and %s; asked: %s and %s", x, y, first, second)
	}
	a.contains("nothing left", a.cli(cli.ExitOK, "consent", "deny", "--all"), "no question waits")
	a.end() // ends the server's connection to the broker, and the command with --watch
	if rest, err := io.ReadAll(io.MultiReader(dec.Buffered(), out)); err != nil || strings.TrimSpace(string(rest)) != "" {
		t.Errorf("%s, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := len(a.s.Broker().Sessions()); n != 0 {
		t.Errorf("%d servers are served after the end", n)
	}
	a.ask("three", "", a.work+"/src/priv")
	if m := <-a.answers; m["error"] == nil {
		t.Errorf("after the end: %s", m)
	}
}

// Pre-approved paths are granted without a question. They match whole path elements, and mean the
// files to which they led when the configuration was read. A reload takes effect in the running
// session.
func TestConsentByConfiguration(t *testing.T) {
	conf := "[files]\nconsent = \"deny\"\n[[files.allow]]\npath = \"$WORK/pre\"\nmode = \"rw\"\n[[files.allow]]\npath = \"$WORK/later\"\n"
	a := newAsker(t, conf)
	if err := os.Symlink(filepath.Join(a.work, "src/priv"), filepath.Join(a.work, "later")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(a.work, "pre2"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, mode string
		ok         bool
	}{
		{"pre/in", "rw", true},
		{"pre2", "ro", false},
		{"src/priv", "ro", false},
		{"later", "ro", false}, // a link made after the configuration was read
		{"pre/../src", "ro", false},
	} {
		a.ask("", tt.mode, a.work+"/"+tt.path)
		if res := a.result(); res.Granted != tt.ok {
			t.Errorf("%s: %+v", tt.path, res)
		}
	}
	a.contains("roots", a.cli(cli.ExitOK, "roots", "list", "--json"), `"approved_by": "consent: configuration"`)
	file := filepath.Join(a.work, "config/rootsfs/config.toml")
	if err := os.WriteFile(file, []byte("[[files.allow]]\npath = \""+a.work+"/pre2\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.recorded("widened: files.consent deny -> ask; files.allow ")
	a.contains("audit", a.cli(cli.ExitOK, "audit", "show"), "widened: files.consent deny -> ask; files.allow ")
	a.connect("other") // another server, which has six questions a minute of its own
	a.ask("", "ro", a.work+"/pre2")
	if res := a.result(); !res.Granted {
		t.Errorf("after the reload: %+v", res)
	}
	// After the reload a person is asked about other paths.
	a.ask("", "ro", a.work+"/src/priv")
	a.waiting(1)
	a.cli(cli.ExitOK, "consent", "deny", "--all")
	a.result()
}

// R080, R081: status and metrics show each server's requests and bytes, the roots' free space, and
// the daemon's own figures.
func TestFiguresOfServers_R080_R081(t *testing.T) {
	a := newAsker(t, "[files]\nconsent_timeout = \"1s\"\nops_per_second = 1000\n")
	// Nobody answers: denied.
	a.ask("", "", a.work+"/src/priv")
	if res := a.result(); res.Granted || res.Reason != "timeout" {
		t.Errorf("unanswered: %+v", res)
	}
	if err := os.WriteFile(filepath.Join(a.work, "src/pub/f"), []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(a.conn, `{"jsonrpc":"2.0","id":"r","method":"files/read","params":{"path":"pub/f"}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if m := <-a.answers; m["result"] == nil {
		t.Fatalf("read: %s", m)
	}
	var list []control.Status
	if err := json.Unmarshal([]byte(a.cli(cli.ExitOK, "status", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	st := list[0]
	if len(st.Files) != 1 || st.Files[0].Subject != "indexer" || st.Files[0].Requests != 2 || st.Files[0].Read != 5 {
		t.Errorf("servers: %+v", st.Files)
	}
	p := st.Process
	if p.CPU <= 0 || p.FDs <= 0 || p.FDLimit == 0 || p.Resident <= 0 || p.Read < 5 || p.Ops < 1 {
		t.Errorf("process: %+v", p)
	}
	if r := st.Roots[0]; r.Free == nil || *r.Free <= 0 {
		t.Errorf("free space: %v", r.Free)
	}
	a.contains("metrics", a.cli(cli.ExitOK, "metrics"), `rootsfs_files_requests_total{subject="indexer"} 2`, `rootsfs_files_read_bytes_total{subject="indexer"} 5`,
		`rootsfs_files_sessions{subject="indexer"} 1`, `rootsfs_root_free_bytes{root="pub"} `, `rootsfs_root_live{root="pub"} 1`,
		`rootsfs_process_cpu_seconds_total `, `rootsfs_process_open_fds `, `rootsfs_process_resident_memory_bytes `, `rootsfs_session_info{mountpoint="`)
	a.connectAgain(t)
	a.contains("two connections of one subject", a.cli(cli.ExitOK, "metrics"), `rootsfs_files_sessions{subject="indexer"} 2`, `rootsfs_files_requests_total{subject="indexer"} 2`)
}

// connectAgain makes another connection of the same subject, on which nothing is sent.
func (a *asker) connectAgain(t *testing.T) {
	t.Helper()
	one := a.s.Connect(consent.WayServer, "indexer")
	t.Cleanup(one.Close)
}
