package console

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// installModules installs the npm packages of package-lock.json in a temporary directory, and
// returns the directory.
func installModules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("npm ci: %v\n%s", err, out)
		}
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// checkVendored checks that web/vendor, which the binary serves, has the bytes of uPlot that npm
// has installed in dir.
func checkVendored(t *testing.T, dir string) {
	t.Helper()
	for ours, theirs := range map[string]string{"uPlot.js": "dist/uPlot.esm.js", "uPlot.css": "dist/uPlot.min.css", "uPlot.LICENSE": "LICENSE"} {
		a, err := os.ReadFile(filepath.Join("../../cmd/rootsfs/internal/console/web/vendor", ours))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "node_modules/uplot", theirs))
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(a) != sha256.Sum256(b) {
			t.Errorf("web/vendor/%s is not uplot's %s; copy it from: npm ci in integration/console", ours, theirs)
		}
	}
}

// browserCommand returns a command that runs flows.mjs on the lab. dir has the npm packages. If shots
// is not "", the flows write screenshots there.
func (l *lab) browserCommand(dir, shots string) *exec.Cmd {
	l.t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		l.t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"work": l.work, "binary": binary, "modules": dir, "chromium": path, "flags": browserFlags, "shots": shots,
		"soak": os.Getenv("ROOTSFS_SOAK") != "", "env": environ(l.env)})
	if err != nil {
		l.t.Fatal(err)
	}
	script, err := filepath.Abs("flows.mjs")
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.CommandContext(l.t.Context(), "node", script)
	cmd.Env = append(slices.Clone(l.env), "LAB="+string(data), "TMPDIR="+l.work)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func environ(list []string) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		out[k] = v
	}
	return out
}

// TestPage runs the flows of flows.mjs. Each flow names the requirements that it covers.
func TestPage(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "node", "npm", "python3")
	dir := installModules(t)
	checkVendored(t, dir)
	l := newLab(t)
	l.startBriefServer()
	l.startSessions()
	l.startServer("clerk", "desk") // asks in place of agent, because each server has only six questions a minute
	cmd := l.browserCommand(dir, "")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	flows := report(t, out)
	if err := cmd.Wait(); err != nil || flows < 10 {
		t.Errorf("%d flows, %v\n%s", flows, err, errs.Bytes())
	}
}

// report runs a test for each line that a script writes, and returns how many there are.
func report(t *testing.T, out io.Reader) (checks int) {
	t.Helper()
	for in := bufio.NewScanner(out); in.Scan(); checks++ {
		var r struct {
			Name, Error, Note string
			OK                bool
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Errorf("%s: %v", in.Bytes(), err)
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			if !r.OK {
				t.Error(r.Error)
			} else if r.Note != "" {
				t.Log(r.Note)
			}
		})
	}
	return checks
}

// TestScreenshots writes the README's pictures, for make screenshots.
func TestScreenshots(t *testing.T) {
	if os.Getenv("ROOTSFS_SCREENSHOTS") == "" {
		t.Skip("make screenshots does this")
	}
	need(t, "chromium", "node", "npm", "python3")
	shots, err := filepath.Abs("screenshots")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(shots, 0o755); err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	l.startSessions()
	cmd := l.browserCommand(installModules(t), shots)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := l.top()
	s.waitFor("2 ask (1)", "out", "of 20.0M")
	text := strings.TrimRight(s.last, " \n") + "\n\n"
	s.press("2")
	s.waitFor("would hide: 2")
	text += strings.TrimRight(s.last, " \n") + "\n"
	if err := os.WriteFile(filepath.Join(shots, "top.txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
