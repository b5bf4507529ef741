package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// workInRepository is the process of childRepository. It works in the repository dir, writes a
// repositoryWork to out, and waits for the end of in. Then it writes which rules do not hold. It
// writes "" if the rules that checkRules tries hold, or if confined is false.
func workInRepository(dir string, confined bool, in io.Reader, out io.Writer) error {
	w, err := gitWork(dir)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(w); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	var wrong string
	if confined {
		if err := checkRules(dir); err != nil {
			wrong = err.Error()
		}
	}
	return json.NewEncoder(out).Encode(wrong)
}

// gitWork times everyday work with git, and leaves the repository as it was.
func gitWork(dir string) (w repositoryWork, err error) {
	timed := func(to *float64, args ...string) {
		if err != nil {
			return
		}
		began := time.Now()
		var text string
		text, err = git(dir, args...)
		*to += time.Since(began).Seconds()
		if err == nil && args[0] == "status" && text != "" {
			err = fmt.Errorf("git status is not clean: %.200s", text)
		}
	}
	var untimed float64
	timed(&untimed, "status", "--porcelain") // git writes its index
	timed(&w.Status, "status", "--porcelain")
	for i := range 100 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "d0", fmt.Sprintf("new%02d", i)), []byte("new\n"), 0o644))
	}
	timed(&w.Add, "add", ".")
	timed(&w.Commit, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "new")
	timed(&w.Worktree, "worktree", "add", "-q", "--detach", ".trees/side")
	timed(&w.Worktree, "worktree", "remove", "--force", ".trees/side")
	timed(&untimed, "reset", "-q", "--hard", "HEAD~1")
	return w, err
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(cmd.Environ(), gitEnv...)
	return output(cmd)
}

// checkRules tries the rules as a program inside does, on names that were there at the start
// and on names that appeared later.
func checkRules(dir string) error {
	var errs []error
	for _, name := range []string{hiddenFile, laterDir + "/server.pem"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s is there: %v", name, err))
		}
	}
	for _, name := range []string{protectedFile, laterDir + "/Dockerfile"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, fs.ErrPermission) {
			errs = append(errs, fmt.Errorf("%s was opened for writing: %v", name, err))
		}
	}
	for _, name := range []string{hookFile, laterDir + "/Makefile"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); !errors.Is(err, fs.ErrPermission) {
			errs = append(errs, fmt.Errorf("%s was made: %v", name, err))
		}
	}
	return errors.Join(errs...)
}

// commitAll makes a repository of a directory, with one commit of all its files.
func commitAll(ctx context.Context, dir string) error {
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."},
		{"-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "bench"},
	} {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(cmd.Environ(), gitEnv...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return writeBack(dir)
}

// repositoryTable has one line for the start and end of a run, and one for each kind of work.
func (r *report) repositoryTable() string {
	v := r.Repository
	if !v.measured() {
		return ""
	}
	medianWork := func(all []repositoryWork, what func(repositoryWork) float64) float64 {
		var s []float64
		for _, w := range all {
			s = append(s, what(w))
		}
		return median(s)
	}
	ms := func(s float64) string { return fmt.Sprintf("%.1f ms", s*1e3) }
	table := [][]string{
		{fmt.Sprintf("%d files, %d hidden and %d protected patterns", v.Files, len(hiddenPatterns), len(protectedPatterns)), "without", "with", ""},
		{"start and end of a run", ms(median(v.Plain)), ms(median(v.WithRules)), ms(median(v.WithRules)-median(v.Plain)) + " added"},
	}
	for _, m := range []struct {
		name string
		what func(repositoryWork) float64
	}{
		{"git status", func(w repositoryWork) float64 { return w.Status }},
		{"git add ., 100 new files", func(w repositoryWork) float64 { return w.Add }},
		{"git commit", func(w repositoryWork) float64 { return w.Commit }},
		{"git worktree add and remove", func(w repositoryWork) float64 { return w.Worktree }},
	} {
		native, inside := medianWork(v.Native, m.what), medianWork(v.Inside, m.what)
		table = append(table, []string{m.name, ms(native), ms(inside), fmt.Sprintf("%.2f of native", inside/native)})
	}
	return format(table)
}
