package proxy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// rootsfs is the program, built once, in a directory that every user may enter, because the
// server's user starts it.
var rootsfs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rootsfs-run-test")
	if err != nil {
		return "", err
	}
	lab.After(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rootsfs")
	return path, testkit.Build(path, "../../cmd/rootsfs")
})

// confinedRunner runs a server by `rootsfs run`.
type confinedRunner struct {
	t       testing.TB
	program string
	name    string
	env     []string
	roots   []Root
	flags   []string
}

var runners atomic.Int64

func newConfinedRunner(t testing.TB, roots ...Root) runner {
	t.Helper()
	program, err := rootsfs()
	testkit.Must(t, err)
	p := &confinedRunner{t: t, program: program, name: fmt.Sprintf("runner%d", runners.Add(1)), roots: roots}
	for _, v := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		dir := t.TempDir()
		testkit.Must(t, os.Chmod(dir, 0o700))
		p.env = append(p.env, v+"="+dir)
	}
	return p
}

func (p *confinedRunner) command(server ...string) []string {
	p.t.Helper()
	argv := append([]string{"env"}, p.env...)
	argv = append(argv, p.program, "run", "--name", p.name)
	argv = append(argv, p.flags...)
	for _, r := range p.roots {
		argv = append(argv, "--root", spec(r.Name, r.Mode, r.Dir))
	}
	return append(append(append(argv, p.ownFileFlags(server)...), "--"), server...)
}

func spec(name, mode, dir string) string { return name + "=" + dir + ":" + mode }

// ownFileFlags returns the flags that grant the server its own files, as read-only roots. A user
// would give the same flags, or install the server among the system's programs.
func (p *confinedRunner) ownFileFlags(server []string) []string {
	var flags []string
	have := map[string]bool{}
	for _, r := range p.roots {
		have[r.Dir] = true
	}
	modules := needPeers(p.t).Module()
	for _, arg := range server {
		st, err := os.Stat(arg)
		switch {
		case err != nil || !filepath.IsAbs(arg):
			continue
		case strings.HasPrefix(arg, modules+"/"):
			arg = modules
		case !st.IsDir():
			arg = filepath.Dir(arg)
		}
		if strings.HasPrefix(arg, "/usr/") || strings.HasPrefix(arg, "/bin/") || have[arg] {
			continue
		}
		have[arg] = true
		flags = append(flags, "--root", spec(fmt.Sprintf("own%d", len(have)), "ro", arg))
	}
	return flags
}

func (p *confinedRunner) mustRun(args ...string) {
	p.t.Helper()
	cmd := exec.Command(p.program, args...)
	cmd.Env = append(os.Environ(), p.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("rootsfs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (p *confinedRunner) grant(name, mode, dir string) {
	p.t.Helper()
	p.mustRun("roots", "add", "--session", p.name, spec(name, mode, dir))
}

func (p *confinedRunner) revoke(name string) {
	p.t.Helper()
	p.mustRun("revoke", "--session", p.name, name)
}

// R070: after a revocation during a tool call, the call can no longer read its open file, and the
// next call cannot open the file. The session continues, and its other root can be read.
func TestRevokeDuringAToolCall(t *testing.T) {
	dir := tree(t, "hello")
	other := tree(t, "other")
	r := newConfinedRunner(t, Root{"work", "rw", dir}, Root{"other", "ro", other})
	const reads = `
import json, os, sys, time
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "reads", "version": "1"}}
    if m["method"] == "tools/list":
        r = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
    if m["method"] == "tools/call":
        path, until = m["params"]["arguments"]["path"], m["params"]["arguments"].get("until")
        try:
            f = open(path)
            text = f.read()
            if until:
                open(until, "w").close()  # tell that the call is under way
                while True:
                    f.seek(0)
                    text = f.read()
                    time.sleep(0.01)
        except OSError as e:
            text = "refused: " + os.strerror(e.errno)
        r = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`
	p := host(t, r.command("python3", "-u", "-c", reads), nil, handshake)
	got := make(chan string)
	began := filepath.Join(dir, "began")
	go func() {
		got <- p.tool("read", map[string]any{"path": dir + "/a.txt", "until": began})
	}()
	testkit.Until(t, "the call begins", func() bool { _, err := os.Stat(began); return err == nil })
	r.revoke("work")
	if text := <-got; !strings.HasPrefix(text, "refused: ") {
		t.Errorf("the call under way: %q", text)
	}
	if text := p.tool("read", map[string]any{"path": dir + "/a.txt"}); !strings.HasPrefix(text, "refused: ") {
		t.Errorf("the next call: %q", text)
	}
	if text := p.tool("read", map[string]any{"path": other + "/a.txt"}); text != "other" {
		t.Errorf("another root: %q", text)
	}
}

// npx fetches a server into an empty HOME, with a network. Then it starts the server from the
// files that HOME has kept, without a network.
func TestFetched(t *testing.T) {
	if _, err := exec.LookPath("npx"); err != nil {
		t.Skip("npx is missing")
	}
	dir, home := tree(t, "hello"), filepath.Join(t.TempDir(), "home")
	for _, c := range []struct {
		cache string
		flags []string
	}{{"cold", []string{"--net", "--home", home}}, {"warm", []string{"--home", home}}} {
		r := newConfinedRunner(t, Root{"work", "ro", dir})
		r.(*confinedRunner).flags = c.flags
		if os.Getenv("NODE_EXTRA_CA_CERTS") != "" { // the network reaches the registry through a proxy of its own
			r.(*confinedRunner).flags = append(c.flags, "--env", "NODE_EXTRA_CA_CERTS")
		}
		p := host(t, r.command("npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31", dir), nil, handshake)
		if got := p.tool("read_text_file", map[string]any{"path": dir + "/a.txt"}); got != "hello" {
			t.Errorf("%s: the server read %q", c.cache, got)
		}
		if got := p.tool("write_file", map[string]any{"path": dir + "/a.txt", "content": "x"}); !strings.Contains(got, "EROFS") {
			t.Errorf("%s: writing: %q", c.cache, got)
		}
	}
}

// R084: if a server floods the proxy with refused lines and ends, the records count all of the
// lines, and take a fraction of the size of the server's output. Then the run ends.
func TestFlood(t *testing.T) {
	const lines = 200_000
	r := newConfinedRunner(t).(*confinedRunner)
	r.flags = []string{"--mcp", "on"}
	cmd := commandOf(r.command("python3", "-c", fmt.Sprintf(`
import sys
sys.stdout.write("[" + ",".join(['{"jsonrpc":"2.0","id":1,"method":"files/evil"}'] * 1000000) + "]\n")
for n in range(%d):
    sys.stdout.write('{"jsonrpc":"2.0","id":%%d,"id":1,"method":"ping"}\n' %% n)
`, lines)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	state := ""
	for _, e := range r.env {
		if dir, ok := strings.CutPrefix(e, "XDG_STATE_HOME="); ok {
			state = dir
		}
	}
	files, err := filepath.Glob(filepath.Join(state, "rootsfs/audit/*"))
	testkit.Must(t, err)
	size, twice, batches := 0, 0, 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		testkit.Must(t, err)
		size += len(text)
		for line := range strings.Lines(string(text)) {
			rec := struct {
				Detail string
				Count  int // how many equal records this one stands for
			}{Count: 1}
			if json.Unmarshal([]byte(line), &rec) != nil {
				continue // a line of another kind of file
			}
			n := 1
			_, _ = fmt.Sscanf(rec.Detail, "%d more within a second", &n) // without this text n stays 1
			n *= rec.Count
			switch {
			case strings.Contains(rec.Detail, "a field twice"):
				twice += n
			case strings.Contains(rec.Detail, "more than the 1000 messages"):
				batches += n
			}
		}
	}
	if twice != lines || batches != 1 {
		t.Errorf("the records count %d messages and %d batches, want %d and 1", twice, batches, lines)
	}
	if size > 4<<20 {
		t.Errorf("the records have %d bytes", size)
	}
}
