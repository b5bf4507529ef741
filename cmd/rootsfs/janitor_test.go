package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
)

// A janitor that is told Done has initialised nothing that only the rest of the
// program needs; one that is not goes on to clean up.
func TestJanitorWaitsEarly(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, said string
		code       int
		early      bool
	}{
		{"done", janitor.Done, 0, true},
		{"done and more", janitor.Done + "x", 0, true},
		{"killed", "", exitUsage, false}, // the directory is none of a run
		{"killed while it spoke", "do", exitUsage, false},
		{"something else", "stop\n", exitUsage, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trace strings.Builder
			cmd := &exec.Cmd{
				Path: exe, Args: []string{"rootsfs", janitor.Name, filepath.Join(t.TempDir(), "none")},
				Env: append(os.Environ(), "GODEBUG=inittrace=1"), Stdin: strings.NewReader(c.said), Stderr: &trace,
			}
			code := 0
			if err := cmd.Run(); err != nil {
				code = cmd.ProcessState.ExitCode()
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, trace.String())
			}
			if !strings.Contains(trace.String(), "init os ") {
				t.Fatalf("no trace of what was initialised:\n%s", trace.String())
			}
			for _, late := range []string{"init net/http ", "init encoding/json ", "init github.com/spf13/cobra "} {
				if strings.Contains(trace.String(), late) == c.early {
					t.Errorf("%q in the trace: %v", late, c.early)
				}
			}
		})
	}
}
