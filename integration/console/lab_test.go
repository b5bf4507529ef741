package console

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

var binary string // rootsfs, built once

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rootsfs-console-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "rootsfs")
	code := 1
	if err := testkit.Build(binary, "../../cmd/rootsfs"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// browserFlags are Chromium's flags, for every script. With the last of them Chromium starts fewer
// processes: none for the parts of its own window, no renderer in advance, one renderer for all pages,
// and none for graphics. Chromium takes only the last list of disabled features. So the list here
// repeats those features of Playwright's list with which Chromium would change or send requests.
var browserFlags = []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--in-process-gpu", "--renderer-process-limit=1",
	"--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,SpareRendererForSitePerProcess," +
		"AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,PaintHolding," +
		"ThirdPartyStoragePartitioning,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,MediaRouter"}

// need skips the test where a program or FUSE is missing. In CI it fails the test instead.
func need(t *testing.T, programs ...string) {
	t.Helper()
	missing := func(format string, args ...any) {
		if os.Getenv("CI") != "" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing("%s is needed: %v", p, err)
		}
	}
	if err := mountpoint.CheckFUSE(); err != nil {
		missing("a real mount is needed: %v", err)
	}
}

// lab is a temporary home directory, with directories to grant. startSessions begins two sessions
// in the lab: "work", a mount, and "agent", a confined MCP server that sends requests files/*.
type lab struct {
	t      *testing.T
	work   string
	env    []string
	lastID int // id of the server's last request
}

func newLab(t *testing.T) *lab {
	t.Helper()
	work, err := os.MkdirTemp("", "console-")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, work: work, env: append(os.Environ(),
		"HOME="+work, "XDG_RUNTIME_DIR="+work+"/run", "XDG_STATE_HOME="+work+"/state", "XDG_CONFIG_HOME="+work+"/config", "DBUS_SESSION_BUS_ADDRESS=")}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	for _, d := range []string{"run", "state", "config", "mnt", "code/docs", "out", "box", "brief", "desk", "ask/proj/docs", "ask/proj/.ssh", "ask/other", "ask/more"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"code/README.md": "# hello\n", "code/docs/guide.md": "guide\n", "ask/proj/a.txt": "a\n", "ask/proj/docs/b.md": "b\n",
		"ask/proj/.env": "TOKEN=x\n", "ask/proj/.ssh/id_rsa": "key\n", "ask/other/c": "c\n",
	} {
		l.write(name, text)
	}
	server, err := os.ReadFile("server.py")
	if err != nil {
		t.Fatal(err)
	}
	l.write("box/server.py", string(server))
	l.write("brief/server.py", string(server))
	l.write("desk/server.py", string(server))
	return l
}

func (l *lab) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.work, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// rootsfs runs a command, which must succeed.
func (l *lab) rootsfs(args ...string) string {
	l.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = l.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("rootsfs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// startSessions begins "work" and "agent".
func (l *lab) startSessions() {
	l.t.Helper()
	l.startMount()
	l.startServer("agent", "box")
}

// startBriefServer begins one more server, in the directory brief. Its questions wait for a few
// seconds only: long enough to be seen on a slow machine. Questions of servers that start later
// wait for longer than any test.
func (l *lab) startBriefServer() {
	l.t.Helper()
	config := filepath.Join(l.work, "config/rootsfs")
	if err := os.MkdirAll(config, 0o700); err != nil {
		l.t.Fatal(err)
	}
	l.write("config/rootsfs/config.toml", "[files]\nconsent_timeout = \"8s\"\n")
	l.startServer("brief", "brief")
	l.write("config/rootsfs/config.toml", "[files]\nconsent_timeout = \"15m\"\n")
}

// startServer begins a session with a confined server, which has the directory as its
// root.
func (l *lab) startServer(name, dir string) {
	l.t.Helper()
	cmd := exec.Command(binary, "run", "--mcp", "on", "--name", name, "--net=api.example.org:443", "--root", dir+"="+l.work+"/"+dir+":rw", "--", "python3", l.work+"/"+dir+"/server.py")
	cmd.Env = l.env
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = stdin.Close() // the host hangs up
		_ = cmd.Wait()    // how the server ends does not matter here
	})
	testkit.Until(l.t, "the server is live", func() bool {
		out, _ := l.try("status", "--session", name, "--json")
		return strings.Contains(out, `"requests"`)
	})
}

// startMount begins the session "work".
func (l *lab) startMount() {
	l.t.Helper()
	l.rootsfs("mount", "--daemon", "--name", "work", "--max-written", "20M", "--root", "code="+l.work+"/code:ro", "--root", "out="+l.work+"/out:rw", l.work+"/mnt")
	l.t.Cleanup(func() { l.rootsfs("unmount", l.work+"/mnt") })
}

func (l *lab) try(args ...string) (string, error) {
	cmd := exec.Command(binary, args...)
	cmd.Env = l.env
	out, err := cmd.Output()
	return string(out), err
}

// ask makes the server agent ask for consent.
func (l *lab) ask(message, mode string, paths ...string) {
	l.t.Helper()
	l.lastID++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": l.lastID, "method": "files/consent",
		"params": map[string]any{"message": message, "mode": mode, "requestedPaths": paths}})
	if err != nil {
		l.t.Fatal(err)
	}
	f, err := os.OpenFile(l.work+"/box/say", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		_ = f.Close()
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// awaitAnswer waits for the answer to the last request of the server agent, and returns the answer.
func (l *lab) awaitAnswer() string {
	l.t.Helper()
	found := ""
	testkit.Until(l.t, "the server has got the answer", func() bool {
		data, _ := os.ReadFile(l.work + "/box/heard") // not there before the first answer
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, fmt.Sprintf(`"id":%d,`, l.lastID)) {
				found = line
			}
		}
		return found != ""
	})
	return found
}
