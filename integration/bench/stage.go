package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// stageName is the name for -only.
const stageName = "stage"

// The goals for a stage, in seconds: for a diff of stageDiffed changed files in a tree of
// stageNames, and for an apply of stageApplied files of 4 KiB.
const (
	diffGoal, applyGoal       = 0.100, 1.0
	stageNames                = 100_000
	stageDiffed, stageApplied = 100, 1000
)

// stagedGoal is how many times as long the rows of stagedRows may take on a staged root as on a
// root of mode rw.
const stagedGoal = 1.15

var stagedRows = []string{
	"find+stat cold", "find+stat warm", "seq read 1M warm", "rand read 4k warm", "git status cold", "git status warm",
	"work npm install", "work go build",
}

// stages has the rows of `rootsfs stage diff` and `rootsfs stage apply`, timed from start to
// exit.
type stages struct {
	Diff   []float64 `json:"diff"`
	Apply  []float64 `json:"apply"`
	Broken string    `json:"broken,omitempty"`
}

func (s *stages) measured() bool { return s.Broken == "" && len(s.Apply) > 0 }

// stageRows measures the two commands on the stage of an ended session.
func (l *lab) stageRows(ctx context.Context, r *report) error {
	if l.rootsfs == "" {
		r.Skipped = append(r.Skipped, stageName+": "+l.rootsfsMissing)
		return nil
	}
	names := stageNames
	if r.Size.Name != "full" {
		names = 2 * stageApplied
	}
	src := l.path("stage")
	if err := makeStageSource(ctx, src, names); err != nil {
		return err
	}
	env, err := l.privateHome("stage")
	if err != nil {
		return err
	}
	r.Stages = &stages{}
	for rep := range r.Repetitions {
		fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), stageName, rep+1, r.Repetitions)
		if err := l.stageOnce(ctx, r.Stages, env, src); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Stages.Broken = err.Error()
			return nil
		}
	}
	return nil
}

// stageOnce is one repetition. It lets a program change stageDiffed files and times the diff, then
// lets a program change stageApplied files and times the apply.
func (l *lab) stageOnce(ctx context.Context, s *stages, env []string, src string) error {
	change := func(n int) error {
		// The shell itself writes the files, without starting a program for each.
		script := `cd "$1"; x=$(printf %4096s x); i=0; while [ $i -lt $0 ]; do echo "$x$$" > d$((i / 1000))/f$((i % 1000)); i=$((i + 1)); done`
		_, err := timeCommand(ctx, env, l.rootsfs, "run", "--name", "bench-stage", "--mcp", "off", "--root", src+":stage", "--", "sh", "-c", script, fmt.Sprint(n), src)
		return err
	}
	if err := change(stageDiffed); err != nil {
		return err
	}
	diff, err := timeCommand(ctx, env, l.rootsfs, "stage", "diff", "--root", src)
	if err != nil {
		return err
	}
	if err := change(stageApplied); err != nil {
		return err
	}
	apply, err := timeCommand(ctx, env, l.rootsfs, "stage", "apply", "--root", src)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(src, namesFile(stageApplied-1)))
	if err != nil || !strings.HasPrefix(string(b), "   ") {
		return errors.Join(fmt.Errorf("the last file of an apply has %.20q", b), err)
	}
	s.Diff, s.Apply = append(s.Diff, diff), append(s.Apply, apply)
	return nil
}

// makeStageSource makes a directory with as many empty files as names says, namesPerDir in each
// subdirectory. It keeps files that exist already.
func makeStageSource(ctx context.Context, dir string, names int) error {
	for i := range names {
		path := filepath.Join(dir, namesFile(i))
		if i%namesPerDir == 0 {
			if err := errors.Join(ctx.Err(), os.MkdirAll(filepath.Dir(path), 0o700)); err != nil {
				return err
			}
		}
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) stageTable() string {
	s := r.Stages
	if s == nil || !s.measured() {
		return ""
	}
	return format([][]string{
		{"rootsfs stage", "from start to exit"},
		{fmt.Sprintf("diff of %d files", stageDiffed), fmt.Sprintf("%.0f ms", median(s.Diff)*1e3)},
		{fmt.Sprintf("apply of %d files", stageApplied), fmt.Sprintf("%.0f ms", median(s.Apply)*1e3)},
	})
}

// judgeStage compares a staged root with one of mode rw, and judges the commands.
func judgeStage(r *report) []outcome {
	var all []outcome
	for _, name := range stagedRows {
		row := r.row(name)
		if row == nil {
			continue
		}
		stage, ok1 := row.ratio(staged)
		rw, ok2 := row.ratio(audit)
		if !ok1 || !ok2 {
			continue
		}
		all = append(all, judge(name+", "+staged+" against "+audit, fmt.Sprint(stagedGoal), true, fmt.Sprintf("%.2f", stage/rw), stage/rw <= stagedGoal))
	}
	s := r.Stages
	if s == nil {
		return all
	}
	one := func(what string, goal float64, samples []float64) outcome {
		return judge(what, fmt.Sprintf("%.0f ms", goal*1e3), s.measured(), fmt.Sprintf("%.0f ms", median(samples)*1e3), median(samples) <= goal)
	}
	return append(all,
		one(fmt.Sprintf("stage diff of %d files in a tree of %d", stageDiffed, stageNames), diffGoal, s.Diff),
		one(fmt.Sprintf("stage apply of %d files of 4 KiB", stageApplied), applyGoal, s.Apply))
}
