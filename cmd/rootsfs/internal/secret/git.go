package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"strings"
	"unicode"
)

// findGit finds the credential that git would use for a host. It asks git first, and then looks
// into the files that git and curl read.
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

// fillGit runs `git credential fill`, which asks git's credential helpers. No person is asked for a
// password.
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

// noGit returns errNone if err says that git, or a file that git needs, does not exist, or that git
// failed: then git has no credential. It returns any other error as it is.
func noGit(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*exec.ExitError)) {
		return errNone
	}
	return err
}

// judgeGit refuses git if programs can write its configuration, its helpers or its files with
// credentials.
func (o *owner) judgeGit(ctx context.Context) error {
	text, err := o.output(ctx, program{words: []string{"git", "config", "--null", "--show-origin", "--list"}, isQuiet: true})
	if err != nil {
		return err
	}
	words := strings.Split(string(text), "\x00")
	aliases, helpers := gitAliases{}, [][2]string{} // a helper is a key and a value
	for i := 0; i+1 < len(words); i += 2 {
		if file, ok := strings.CutPrefix(words[i], "file:"); ok {
			if err := o.judge.File(path.Join("/", file)); err != nil {
				return err
			}
		}
		key, value, _ := strings.Cut(words[i+1], "\n")
		if name, ok := strings.CutPrefix(key, "alias."); ok {
			aliases.add(name, value)
		}
		if strings.HasPrefix(key, "credential.") && strings.HasSuffix(key, ".helper") {
			helpers = append(helpers, [2]string{key, value})
		}
	}
	for _, h := range helpers {
		if err := o.judgeHelper(h[1], aliases); err != nil {
			return fmt.Errorf("git's %s: %w", h[0], err) // the value may hold a password
		}
	}
	// Git's helper "store" reads the first two files; git's HTTP library reads .netrc.
	for _, file := range presets["git"].files {
		if path, err := ownersPath(file); err == nil {
			if err := o.judge.File(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeHelper refuses a helper of git's that programs can write. Git runs every helper in a shell. If
// the value begins with !, the rest of it is the shell's text. If the value is an absolute path, with
// or without arguments, the value is the text. For any other value NAME the text is `git
// credential-NAME`, and credential-NAME is an alias, a program git-credential-NAME in PATH, or git's
// own.
func (o *owner) judgeHelper(value string, aliases gitAliases) error {
	fields := strings.Fields(value)
	switch {
	case len(fields) == 0:
		return nil
	case strings.HasPrefix(fields[0], "/"):
		if _, err := o.judge.Program(fields[0]); err != nil { // judgeAliases does not look at its interpreter
			return err
		}
		return o.judgeAliases("!"+strings.TrimSpace(value), aliases)
	case strings.HasPrefix(value, "!"):
		return o.judgeAliases(value, aliases)
	}
	return o.judgeAliases("credential-"+value, aliases)
}

// gitAliases has the values of aliases by their names in lower case.
type gitAliases map[string][]string

// add adds an alias. Git compares names without case, and knows alias.NAME.command, too.
func (a gitAliases) add(name, value string) {
	name = strings.TrimSuffix(strings.ToLower(name), ".command")
	a[name] = append(a[name], value)
}

// judgeAliases refuses the value of a helper or an alias if the value names a file that programs
// can write, or leads to an alias that names such a file. Any word in the value may be the name of an
// alias or program that git or a shell runs, so judgeAliases checks each word.
func (o *owner) judgeAliases(value string, aliases gitAliases) error {
	seen := map[string]bool{}
	for next := []string{value}; len(next) > 0; next = next[1:] {
		if err := o.judgeAlias(next[0]); err != nil {
			return err
		}
		for word := range strings.FieldsFuncSeq(next[0], isNotInWord) {
			if seen[word] {
				continue
			}
			seen[word] = true
			next = append(next, aliases[strings.ToLower(word)]...)
			if err := o.judgeInPath(word); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNotInWord reports whether a character cannot be in the name of an alias or program.
func isNotInWord(c rune) bool {
	return !strings.ContainsRune("-._+", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
}

// judgeAlias refuses the value of an alias if the value names a file that programs can write. A
// value that begins with ! is a text for a shell, and any other value is a command of git's.
func (o *owner) judgeAlias(value string) error {
	text, isShell := strings.CutPrefix(strings.TrimSpace(value), "!")
	if fields := strings.Fields(text); !isShell && len(fields) > 0 {
		if err := o.judgeInPath("git-" + fields[0]); err != nil {
			return err
		}
	}
	_, err := o.judge.Command([]string{"sh", "-c", text})
	return err
}

// judgeInPath refuses a program in PATH that programs can write. It accepts a name that PATH does
// not have: such a name is no program, or a program of git's own, which git finds elsewhere.
func (o *owner) judgeInPath(name string) error {
	if _, err := o.judge.Program(name); err != nil && !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	return nil
}
