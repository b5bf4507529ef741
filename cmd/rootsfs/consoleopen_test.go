package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fakeOpen puts an xdg-open into PATH, which runs a script with $1, the file.
func fakeOpen(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("OUT", filepath.Join(dir, "out"))
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The browser is started with a file that only its owner can read: no user of the
// machine finds the link among the arguments. The file is gone when the link was
// used. Ctrl-C here does not reach the browser.
func TestTheLinkIsInNoArguments(t *testing.T) {
	dir := fakeOpen(t, `{ tr '\0' '\n' </proc/$$/cmdline; stat -c 'mode %a' "$1"; cat "$1"; cut -d' ' -f1,6 /proc/$$/stat; } >$OUT.part; mv $OUT.part $OUT`)
	var used atomic.Bool
	const link = "http://127.0.0.1:1/#SECRET"
	bad := func(err error) { t.Errorf("failed: %v", err) }
	if _, err := openPage(t.Context(), link, func() bool { return !used.Load() }, bad); err != nil {
		t.Fatal(err)
	}
	var out string
	await(t, "the browser", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "out"))
		out = string(data)
		return err == nil
	})
	args, rest, _ := strings.Cut(out, "mode ")
	if strings.Contains(args, "SECRET") || !strings.HasPrefix(rest, "600\n") || strings.Count(rest, "url="+link+`"`) != 1 {
		t.Errorf("%s", out)
	}
	lines := strings.Fields(rest)
	if pid, session := lines[len(lines)-2], lines[len(lines)-1]; pid != session {
		t.Errorf("process %s is in session %s", pid, session)
	}
	left := func() int {
		list, _ := filepath.Glob(filepath.Join(dir, "state/rootsfs/console-*"))
		return len(list)
	}
	if left() != 1 {
		t.Errorf("%d files while the link waits", left())
	}
	used.Store(true)
	await(t, "the file's end", func() bool { return left() == 0 })
}

// Whoever is left without a browser is told why, and how to go on.
func TestNoBrowser(t *testing.T) {
	for _, v := range []string{"DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"} {
		t.Setenv(v, "")
	}
	if err := noBrowser(1000); err == nil || !strings.Contains(err.Error(), "no desktop") {
		t.Errorf("without a desktop: %v", err)
	}
	t.Setenv("DISPLAY", ":0")
	if err := noBrowser(1000); err != nil {
		t.Errorf("with a desktop: %v", err)
	}
	if err := noBrowser(0); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("root: %v", err)
	}
	dir := fakeOpen(t, "exit 3")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := make(chan error, 1)
	gone, err := openPage(ctx, "http://x/#S", func() bool { return true }, func(err error) { said <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-said; !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it failed: %v", err)
	}
	cancel()
	<-gone
	if list, _ := filepath.Glob(filepath.Join(dir, "state/rootsfs/console-*")); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
	// What a killed console left goes with the next; what is not so old stays.
	old, young := filepath.Join(dir, "state/rootsfs/console-1.html"), filepath.Join(dir, "state/rootsfs/console-2.html")
	for _, f := range []string{old, young} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "xdg-open")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if _, err := openPage(t.Context(), "http://x/#S", func() bool { return true }, func(error) {}); err == nil || !strings.Contains(err.Error(), "xdg-open") {
		t.Errorf("there is no xdg-open: %v", err)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "state/rootsfs/console-*")); len(list) != 1 || list[0] != young {
		t.Errorf("left: %v", list)
	}
}
