package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxCredential bounds a credential, maxFile the file or output that has it, commandTimeout the
// command that prints one. A person may have to unlock something first.
const (
	maxCredential  = 16 << 10
	maxFile        = 1 << 20
	commandTimeout = 2 * time.Minute
)

// IsInVariable reports whether the credential is in the variable of the secret's name and nowhere
// else. Read then uses neither judge nor env.
func (s *Secret) IsInVariable() bool {
	return len(s.Command) == 0 && s.File == "" && s.shownAs() == "" && !s.isPreset()
}

// Read returns the credential: the output of the command, the contents of the file, the credential
// that findOwnersCredential finds, or the value of the variable. Read removes this variable from
// the environment of this process. No error contains the credential. The judge refuses a command or
// a file that programs can write. env is the environment of commands. Their working directory is /,
// so that they run in no project.
func (s *Secret) Read(ctx context.Context, judge *writabledirs.Judge, env []string) (Credential, error) {
	f, err := s.find(ctx, &owner{judge, env})
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return Credential{}, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	return f.credential(), nil
}

// owner reads the owner's files, and runs the owner's programs, for sources.
type owner struct {
	judge *writabledirs.Judge
	env   []string // of programs
}

// lookup returns the value of a variable in the owner's environment, or "" if it is not set.
func (o *owner) lookup(name string) string {
	for _, e := range o.env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// find finds the credential in its source.
func (s *Secret) find(ctx context.Context, o *owner) (f found, err error) {
	var text []byte
	switch {
	case len(s.Command) > 0:
		text, err = o.output(ctx, program{words: s.Command})
	case s.File != "":
		text, err = o.read(s.File)
	case s.shownAs() != "" || s.isPreset():
		return s.findOwnersCredential(ctx, o)
	default:
		value, ok := os.LookupEnv(s.Name)
		if !ok || value == "" {
			err = errors.New("the variable is not set here: set it, or say where the credential is, with file or command in a [[secret]] block")
		}
		text = []byte(value)
		_ = os.Unsetenv(s.Name) // fails only for an invalid name
	}
	value := string(bytes.TrimSpace(text))
	if err == nil && value != "" && s.IsSigned() {
		return parseKeys(value, o)
	}
	return found{value: value}, err
}

// read returns at most maxFile bytes of a file. It refuses a file that programs can write.
func (o *owner) read(path string) ([]byte, error) {
	if err := o.judge.File(path); err != nil {
		return nil, err
	}
	return readFile(path)
}

// readFile returns at most maxFile bytes of a regular file. Another kind of file could have no
// writer, or no end.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("file: %s is not a regular file: write command = [\"cat\", FILE] instead", names.Quote(path))
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// program is a program of the owner's that prints a credential.
type program struct {
	words   []string
	input   string
	env     []string // besides the owner's
	isQuiet bool     // its standard error is dropped, because no person needs it
}

// output runs a program and returns at most maxFile bytes of its standard output.
func (o *owner) output(ctx context.Context, p program) ([]byte, error) {
	path, err := o.judge.Command(p.words)
	if err != nil {
		return nil, fmt.Errorf("the command: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out := &firstBytes{most: maxFile}
	cmd := exec.CommandContext(ctx, path, p.words[1:]...) //nolint:gosec // the owner wrote it
	cmd.Args[0], cmd.Dir, cmd.Env = p.words[0], "/", slices.Concat(o.env, p.env)
	cmd.Stdout, cmd.WaitDelay = out, time.Second
	if !p.isQuiet {
		cmd.Stderr = os.Stderr
	}
	if p.input != "" { // else standard input is /dev/null: that of this process may belong to an MCP client
		cmd.Stdin = strings.NewReader(p.input)
	}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the command %s: %w", names.Quote(p.words[0]), err)
	}
	return out.text, nil
}

// firstBytes keeps the first bytes written, and drops the rest.
type firstBytes struct {
	most int
	text []byte
}

func (f *firstBytes) Write(p []byte) (int, error) {
	f.text = append(f.text, p[:min(len(p), f.most-len(f.text))]...)
	return len(p), nil
}
