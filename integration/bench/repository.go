package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// repositoryName is the name for -only.
const repositoryName = "repository"

// childRepository is the mode in which this program works in a repository; see workInRepository.
// The first argument is the directory of the repository. A second argument tells that the program
// runs in rootsfs run.
const childRepository = "child-repository"

// Rules as an owner writes them for a repository. Each hides or protects names at every depth,
// including names that appear later.
var (
	hiddenPatterns = []string{".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "id_rsa", "id_ed25519",
		"credentials.json", "service-account*.json", "*.tfstate", ".netrc", "secrets/"}
	protectedPatterns = []string{"Makefile", "*.mk", "Dockerfile", "Cargo.lock", "package-lock.json", "go.sum", ".npmrc", ".eslintrc*", ".envrc",
		".editorconfig", "CODEOWNERS", "Jenkinsfile", ".gitlab-ci.yml", ".travis.yml", ".circleci/", ".husky/", "lefthook.yml", "*.service",
		"*.sudoers", "crontab"}
)

// Names of files in the fixture, of the directory of files that appear later, and of a hook.
const (
	deepDir       = "d0/a/b/c"
	hiddenFile    = deepDir + "/.env"
	protectedFile = deepDir + "/Makefile"
	laterDir      = "later/a/b/c"
	hookFile      = ".git/hooks/pre-commit"
)

// repositoryWork has the time, in seconds, that each kind of work in the repository took.
type repositoryWork struct {
	Status   float64 `json:"statusSeconds"`
	Add      float64 `json:"addSeconds"`
	Commit   float64 `json:"commitSeconds"`
	Worktree float64 `json:"worktreeSeconds"` // of adding and removing a worktree with all files
}

// repositoryReport has the cost of fifteen patterns that hide names and twenty that protect names,
// in a large repository. There is one sample a repetition.
type repositoryReport struct {
	Files     int              `json:"files"`
	Plain     []float64        `json:"startSeconds"`      // of rootsfs run -- true, without patterns
	WithRules []float64        `json:"startWithPatterns"` // with them
	Native    []repositoryWork `json:"native"`
	Inside    []repositoryWork `json:"inside"`
	Broken    string           `json:"broken,omitempty"`
}

func (r *repositoryReport) measured() bool { return r != nil && r.Broken == "" && len(r.Inside) > 0 }

func (l *lab) repositoryDir() string {
	return l.path(fmt.Sprintf("repository-%d", l.size.RepositoryDirs))
}

// makeRepository makes a repository whose git status is clean. Files that the rules hide or
// protect are ignored: otherwise no second worktree could be checked out.
func makeRepository(ctx context.Context, dir string, dirs int) error {
	if err := makeTree(ctx, dir, dirs, repoFile); err != nil {
		return err
	}
	err := os.MkdirAll(filepath.Join(dir, deepDir), 0o755)
	for name, content := range map[string]string{hiddenFile: "KEY=1\n", protectedFile: "all:\n", ".gitignore": ".env\nMakefile\n/later\n/.trees\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return errors.Join(err, commitAll(ctx, dir))
}

// repositoryRows measures the rows of the repository, in turns natively and in rootsfs run. A rule
// that does not hold breaks the rows.
func (l *lab) repositoryRows(ctx context.Context, r *report) error {
	if missing := l.fuseMissing + l.rootsfsMissing; missing != "" {
		r.Skipped = append(r.Skipped, repositoryName+": "+missing)
		return nil
	}
	dir := l.repositoryDir()
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(l.log, "bench: making %s\n", dir)
		partial := dir + ".partial"
		if err := errors.Join(os.RemoveAll(partial), makeRepository(ctx, partial, l.size.RepositoryDirs), os.Rename(partial, dir)); err != nil {
			return err
		}
	}
	env, err := l.privateHome(repositoryName)
	if err != nil {
		return err
	}
	r.Repository = &repositoryReport{Files: l.size.RepositoryDirs * perDir}
	for rep := range r.Repetitions {
		fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), repositoryName, rep+1, r.Repetitions)
		if err := l.repositoryRound(ctx, r.Repository, env); err != nil {
			r.Repository.Broken = err.Error()
			return ctx.Err()
		}
	}
	return nil
}

// repositoryRound measures one repetition.
func (l *lab) repositoryRound(ctx context.Context, r *repositoryReport, env []string) error {
	dir := l.repositoryDir()
	withRules := []string{l.rootsfs, "run", "--name", "bench-repository", "--root", dir + ":rw", "--root", l.self}
	plain := append(append([]string{}, withRules...), "--", "true")
	for _, p := range hiddenPatterns {
		withRules = append(withRules, "--hide", p)
	}
	for _, p := range protectedPatterns {
		withRules = append(withRules, "--protect", p)
	}
	for _, m := range []struct {
		argv []string
		to   *[]float64
	}{{plain, &r.Plain}, {append(append([]string{}, withRules...), "--", "true"), &r.WithRules}} {
		var tries []float64
		for range startTries {
			cmd := exec.CommandContext(ctx, m.argv[0], m.argv[1:]...)
			cmd.Env, cmd.Dir = append(os.Environ(), env...), dir
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %.500s", m.argv, err, out)
			}
			tries = append(tries, time.Since(began).Seconds())
		}
		*m.to = append(*m.to, median(tries))
	}
	for _, m := range []struct {
		argv []string
		to   *[]repositoryWork
	}{{nil, &r.Native}, {append(withRules, "--"), &r.Inside}} {
		w, err := l.workIn(ctx, append(m.argv, l.self, childRepository, dir), env)
		if err != nil {
			return err
		}
		*m.to = append(*m.to, w)
	}
	return nil
}

// workIn has a child work in the repository. Then it makes files that the rules cover, and closes
// the child's standard input. A child in rootsfs run then checks the rules (see checkRules).
func (l *lab) workIn(ctx context.Context, argv, env []string) (w repositoryWork, err error) {
	dir := l.repositoryDir()
	if argv[0] == l.rootsfs {
		argv = append(argv, "confined")
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), env...), dir, os.Stderr, 10*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return w, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return w, err
	}
	if err := cmd.Start(); err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "later"))) }()
	results := json.NewDecoder(out)
	err = results.Decode(&w)
	later := filepath.Join(dir, laterDir)
	err = errors.Join(err, os.MkdirAll(later, 0o755),
		os.WriteFile(filepath.Join(later, "server.pem"), []byte("KEY"), 0o644),
		os.WriteFile(filepath.Join(later, "Dockerfile"), nil, 0o644))
	in.Close() // the child then goes on
	var wrong string
	err = errors.Join(err, results.Decode(&wrong), cmd.Wait())
	if err == nil && wrong != "" {
		err = errors.New(wrong)
	}
	return w, err
}
