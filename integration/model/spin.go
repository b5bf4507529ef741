package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed *.pml
var sources embed.FS

// Limits of one search.
const (
	memory = 2400      // MiB
	depth  = 2_000_000 // steps of one execution
)

// result is the result of a search.
type result struct {
	states, depth int
	took          time.Duration
	memory        float64 // MiB
	// exhaustive: every state was visited.
	exhaustive bool
	// fault is the property that does not hold, in Spin's words, "" for none; trail
	// is the number of steps of the execution that shows the fault.
	fault string
	trail int
}

// search makes Spin search a run's states. If shortest is set, the search is breadth first,
// so that a counterexample is the shortest one. An error means that the result is unknown.
func search(ctx context.Context, r run, shortest bool) (result, error) {
	dir, err := os.MkdirTemp("", "model-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, sources); err != nil {
		return result{}, err
	}
	flags := make([]string, 0, len(r.flags)+2)
	for _, f := range r.flags {
		flags = append(flags, "-D"+f)
	}
	if _, err := command(ctx, dir, "spin", append(append([]string{"-a"}, flags...), r.file)...); err != nil {
		return result{}, err
	}
	// In a small run, optimizing would take longer than searching.
	optimise := "-O2"
	if r.small {
		optimise = "-O0"
	}
	compile := []string{optimise, "-w", "-DSAFETY", "-DCOLLAPSE", "-DNOFAIR", "-DVECTORSZ=1024", fmt.Sprintf("-DMEMLIM=%d", memory)}
	if shortest {
		compile = append(compile, "-DBFS")
	}
	if _, err := command(ctx, dir, "cc", append(compile, "-o", "pan", "pan.c")...); err != nil {
		return result{}, err
	}
	began := time.Now()
	out, err := command(ctx, dir, filepath.Join(dir, "pan"), "-n", fmt.Sprintf("-m%d", depth))
	if err != nil {
		return result{}, err
	}
	res, err := parse(out)
	res.took = time.Since(began)
	return res, err
}

// command runs a program at a low priority, and returns its output. The program is killed when
// ctx ends.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: the time is up: %w", filepath.Base(name), context.Cause(ctx))
	case err != nil:
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, out)
	}
	return string(out), nil
}

var (
	faultLine  = regexp.MustCompile(`(?m)^pan:1: (.*) \(at depth (\d+)\)`)
	statesLine = regexp.MustCompile(`(?m)^ *(\d+) states, stored|^ *(\d+) nominal states`)
	depthLine  = regexp.MustCompile(`(?m)depth reached (\d+), errors: (\d+)`)
	memoryLine = regexp.MustCompile(`(?m)^ *([\d.]+)\ttotal actual memory usage`)
)

// parse reads the report of pan, the verifier that Spin generates.
func parse(out string) (result, error) {
	var r result
	states, reached := statesLine.FindStringSubmatch(out), depthLine.FindStringSubmatch(out)
	if states == nil || reached == nil {
		return r, errors.New("pan printed no report:\n" + out)
	}
	r.states, _ = strconv.Atoi(states[1] + states[2])
	r.depth, _ = strconv.Atoi(reached[1])
	if m := memoryLine.FindStringSubmatch(out); m != nil {
		r.memory, _ = strconv.ParseFloat(m[1], 64)
	}
	if f := faultLine.FindStringSubmatch(out); f != nil {
		r.fault = f[1]
		r.trail, _ = strconv.Atoi(f[2])
	} else if reached[2] != "0" {
		return r, errors.New("pan counts an error that it does not name:\n" + out)
	}
	r.exhaustive = r.fault == "" && strings.Contains(out, "Full statespace search for:") &&
		!strings.Contains(out, "Search not completed") && !strings.Contains(out, "max search depth too small")
	return r, nil
}
