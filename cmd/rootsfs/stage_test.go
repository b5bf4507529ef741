package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The init of a confined command does its work before the rest of the program is
// initialised, and it refuses to be one by hand.
func TestStageStartsEarly(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, env string
		early     bool
	}{
		{"init", "ROOTSFS_SANDBOX_STAGE=init", true},
		{"no stage", "ROOTSFS_SANDBOX_STAGE_=init", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trace strings.Builder
			cmd := exec.Command(exe, "-test.run", "^$")
			cmd.Env, cmd.Stderr = append(os.Environ(), "GODEBUG=inittrace=1", c.env), &trace
			err := cmd.Run()
			var exit *exec.ExitError
			if refused := errors.As(err, &exit) && strings.Contains(trace.String(), "unset it"); refused != c.early {
				t.Errorf("refused: %v, error %v, in:\n%s", refused, err, trace.String())
			}
			for _, late := range []string{"init net/http ", "init github.com/prometheus/client_golang/prometheus ", "init github.com/spf13/cobra "} {
				if strings.Contains(trace.String(), late) == c.early {
					t.Errorf("%q in the trace: %v", late, c.early)
				}
			}
		})
	}
}

// What is to begin early is initialised before nine tenths of the program.
func TestEarlyIsEarly(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	before, after, found := strings.Cut(string(out), "init github.com/rootsfs/rootsfs/cmd/rootsfs/internal/early ")
	if n, m := strings.Count(before, "init "), strings.Count(after, "init "); !found || n > m/5 {
		t.Errorf("%d packages before it, %d after it:\n%s", n, m, out)
	}
}
