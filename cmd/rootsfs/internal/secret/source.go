package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxCredential bounds a credential, commandTimeout the command that prints one. A person may
// have to unlock something first.
const (
	maxCredential  = 16 << 10
	commandTimeout = 2 * time.Minute
)

// Credential is the value of a secret, with the text that the program gets in its place.
// Printing it does not show the value.
type Credential struct{ value, placeholder string }

// newCredential returns a credential with a placeholder of its own.
func newCredential(value string) Credential { return Credential{value, newPlaceholder(value)} }

// String implements fmt.Stringer.
func (Credential) String() string { return "(a credential)" }

// GoString implements fmt.GoStringer.
func (Credential) GoString() string { return "(a credential)" }

// In reports whether text holds the credential.
func (c Credential) In(text string) bool { return c.value != "" && strings.Contains(text, c.value) }

// Read returns the credential: the output of the command, the contents of the file, or the
// value of the variable, which it removes from the environment of this process. No error
// contains it. The judge refuses a command or a file that programs can write. env is the
// environment of the command, which is run in no project: its working directory is /.
func (s *Secret) Read(ctx context.Context, judge *writabledirs.Judge, env []string) (Credential, error) {
	var text []byte
	var err error
	switch {
	case len(s.Command) > 0:
		text, err = output(ctx, judge, s.Command, env)
	case s.File != "":
		if err = judge.File(s.File); err == nil {
			text, err = readFile(s.File)
		}
	default:
		value, ok := os.LookupEnv(s.Name)
		if !ok || value == "" {
			err = errors.New("the variable is not set here: set it, or say where the credential is, with file or command in a [[secret]] block")
		}
		text = []byte(value)
		_ = os.Unsetenv(s.Name) // fails for no name of a variable
	}
	value := string(bytes.TrimSpace(text))
	switch {
	case err != nil:
	case value == "":
		err = errors.New("the credential is empty")
	case len(value) > maxCredential:
		err = fmt.Errorf("the credential is longer than %d bytes", maxCredential)
	case !httpguts.ValidHeaderFieldValue(value):
		err = errors.New("the credential has more than one line, or other characters that no header can hold")
	}
	if err != nil {
		return Credential{}, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	return newCredential(value), nil
}

// readFile returns the beginning of a regular file. Another kind of file could have no writer,
// or no end.
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
	return io.ReadAll(io.LimitReader(f, maxCredential+2))
}

// output runs a command and returns the beginning of its standard output. Its messages for a
// person go to standard error.
func output(ctx context.Context, judge *writabledirs.Judge, command, env []string) ([]byte, error) {
	path, err := judge.Command(command)
	if err != nil {
		return nil, fmt.Errorf("the command: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out := &firstBytes{most: maxCredential + 2}
	cmd := exec.CommandContext(ctx, path, command[1:]...) //nolint:gosec // the owner wrote it
	cmd.Args[0], cmd.Dir, cmd.Env = command[0], "/", env
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, os.Stderr, time.Second // standard input may be an MCP client's
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the command %s: %w", names.Quote(command[0]), err)
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
