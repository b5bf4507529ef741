package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Bounds of the length of tokens, in bytes.
const (
	leastToken    = 16
	greatestToken = 4096
)

// token returns the token of --token-file, or a new one in a file that belongs to this process
// until done is called. With --no-token or an OAuth issuer, the token is empty.
func (f *httpFlags) token(session string) (token, path string, done func(), err error) {
	done = func() {}
	if f.noToken || f.Issuer != "" {
		return "", "", done, nil
	}
	if f.tokenFile != "" {
		token, err = readToken(f.tokenFile)
		return token, f.tokenFile, done, err
	}
	dir, err := config.StateDir()
	if err != nil {
		return "", "", nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", nil, fmt.Errorf("make the directory of the token: %w", err)
	}
	file, err := newTokenFile(dir, session)
	if err != nil {
		return "", "", nil, fmt.Errorf("keep the token: %w", err)
	}
	token = rand.Text()
	if _, err := io.WriteString(file.f, token+"\n"); err != nil {
		file.remove()
		return "", "", nil, fmt.Errorf("keep the token: %w", err)
	}
	return token, file.path, file.remove, nil
}

// tokenFile is a file with a new token. The file is locked while its process lives, so that no
// other process replaces it.
type tokenFile struct {
	f    *os.File
	path string
}

// newTokenFile makes NAME.token, or, while another live process has that, NAME.2.token and so
// on. It replaces the file of a killed process. It locks the directory meanwhile, so that an
// unlocked file belongs to no live process.
func newTokenFile(dir, name string) (*tokenFile, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+".token")
	for n := 2; ; n++ {
		isLive, err := isLocked(path)
		if err != nil {
			return nil, err
		}
		if !isLive {
			break
		}
		path = filepath.Join(dir, fmt.Sprintf("%s.%d.token", name, n))
	}
	// Never write into an existing file: another user may have made it, or a link in its place.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &tokenFile{f, path}, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// isLocked reports whether a live process has locked the file at path. It returns false for a
// link.
func isLocked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP):
		return false, nil
	case err != nil:
		return false, err
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil, nil
}

// isAtPath reports whether the path still leads to the file.
func (t *tokenFile) isAtPath() bool {
	held, err1 := t.f.Stat()
	named, err2 := os.Lstat(t.path)
	return err1 == nil && err2 == nil && os.SameFile(held, named)
}

// remove removes the file, if the path still leads to it.
func (t *tokenFile) remove() {
	if t.isAtPath() {
		_ = os.Remove(t.path) // if it fails, the next server of this name removes it
	}
	_ = t.f.Close()
}

// readToken reads a token that others cannot read.
func readToken(path string) (string, error) {
	if err := writabledirs.NewJudge().File(path); err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("--token-file: %s does not exist: write a token to it, or leave the flag out for a new one", quoteIfNeeded(path))
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", usage(fmt.Errorf("--token-file %s can be read by others; chmod 600 %s", quoteIfNeeded(path), names.ShellWord(path)))
	}
	text, err := io.ReadAll(io.LimitReader(file, greatestToken))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < leastToken || strings.ContainsAny(token, " \t\r\n") {
		return "", usage(fmt.Errorf("--token-file %s: write one token of %d characters or more, such as of: openssl rand -hex 16", quoteIfNeeded(path), leastToken))
	}
	return token, nil
}
