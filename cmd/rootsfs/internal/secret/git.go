package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"strings"
)

// findGit finds the credential that git would use for a host: git is asked first, and then the
// files that git and curl read.
func (s *Secret) findGit(ctx context.Context, o *owner) (found, error) {
	f, err := o.fillGit(ctx, s.URL)
	for _, file := range s.preset().files {
		if !errors.Is(err, errNone) {
			break
		}
		find := findGitCredentials
		if path.Base(file) == ".netrc" {
			find = findNetrc
		}
		f, err = o.findIn(file, find, s.URL)
	}
	return f, err
}

// fillGit asks git's credential helpers. Nobody is asked for a password.
func (o *owner) fillGit(ctx context.Context, u URL) (found, error) {
	if err := o.judgeGit(ctx); err != nil {
		return found{}, noGit(err)
	}
	text, err := o.output(ctx, program{
		words: []string{"git", "credential", "fill"}, isQuiet: true,
		input: fmt.Sprintf("protocol=https\nhost=%s\npath=%s\n\n", u.Authority(), strings.TrimPrefix(u.Prefix, "/")),
		env:   []string{"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "GCM_INTERACTIVE=never"},
	})
	if err != nil {
		return found{}, noGit(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		values[key] = value
	}
	if values["password"] == "" || values["host"] != u.Authority() {
		return found{}, errNone
	}
	return loginOf(values["username"], values["password"], "`git credential fill`"), nil
}

// noGit returns errNone for a git that is not installed, or has no credential.
func noGit(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*exec.ExitError)) {
		return errNone
	}
	return err
}

// judgeGit refuses a configuration of git that programs can write, and helpers and files of it
// that they can.
func (o *owner) judgeGit(ctx context.Context) error {
	text, err := o.output(ctx, program{words: []string{"git", "config", "--null", "--show-origin", "--list"}, isQuiet: true})
	if err != nil {
		return err
	}
	words := strings.Split(string(text), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		if file, ok := strings.CutPrefix(words[i], "file:"); ok {
			if err := o.judge.File(path.Join("/", file)); err != nil {
				return err
			}
		}
		key, value, _ := strings.Cut(words[i+1], "\n")
		isHelper := strings.HasPrefix(key, "credential.") && strings.HasSuffix(key, ".helper")
		if !isHelper && !strings.HasPrefix(key, "alias.credential-") { // which names a helper, too
			continue
		}
		if err := o.judgeHelper(value); err != nil {
			return fmt.Errorf("git's %s: %w", key, err)
		}
	}
	for _, file := range presets["git"].files { // git's helper store reads the first ones
		if place, err := outside(file); err == nil {
			if err := o.judge.File(place); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeHelper refuses a helper of git's that programs can write. Git runs it by its path, by a shell
// or, as git-credential-NAME, from PATH.
func (o *owner) judgeHelper(value string) error {
	fields := strings.Fields(value)
	switch {
	case len(fields) == 0:
		return nil
	case strings.HasPrefix(fields[0], "/"):
		_, err := o.judge.Command(fields)
		return err
	case !strings.HasPrefix(value, "!"):
		_, err := o.judge.Program("git-credential-" + fields[0])
		if err != nil && !errors.Is(err, exec.ErrNotFound) { // git has some of its own elsewhere
			return err
		}
	}
	_, err := o.judge.Command([]string{"sh", "-c", strings.TrimPrefix(value, "!")})
	return err
}
