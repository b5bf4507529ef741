package console

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestClicks runs the checks of clicks.mjs: a click that the owner aims at Deny grants nothing,
// even if the questions on the page move or change meanwhile. ROOTSFS_SOAK=1 clicks 1,000 times.
// ROOTSFS_SEED sets the random seed, so that a run can be repeated.
func TestClicks(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "node", "npm")
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	clicks, seed := 60, 36
	if os.Getenv("ROOTSFS_SOAK") != "" {
		clicks = 1000
	}
	if text := os.Getenv("ROOTSFS_SEED"); text != "" {
		if seed, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	settings, err := json.Marshal(map[string]any{"web": "../../cmd/rootsfs/internal/console/web", "vectors": "../../guard/names/testdata/showable.json",
		"modules": installModules(t), "chromium": path, "flags": browserFlags, "clicks": clicks, "seed": seed})
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("clicks.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", script)
	home := t.TempDir() // the browser's, not the user's
	cmd.Env = append(os.Environ(), "LAB="+string(settings), "TMPDIR="+home, "HOME="+home, "XDG_RUNTIME_DIR="+home,
		"XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_STATE_HOME="+home)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if flows := report(t, bytes.NewReader(out)); err != nil || flows < 7 {
		t.Errorf("%d checks, %v\n%s", flows, err, errs.Bytes())
	}
}
