package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// A confined git does not find ~/.gitconfig with the owner's name and address. The functions here
// read the name and the address without running git. They read no repository's configuration.

// maxSmallFile bounds the size, in bytes, of the files of a HOME that are read: git's configuration,
// settings and credentials.
const maxSmallFile = 1 << 20

// gitEnv returns the command's environment with more variables (git-config(1), GIT_CONFIG_COUNT).
// They pass the owner's identity to a command that may write to a root, unless its kept HOME has
// a .gitconfig. For a confined command, they make git trust every repository that the command sees,
// also one of another user. gitEnv adds no variable if the environment already has one that
// begins with GIT_CONFIG_.
func gitEnv(box *sandbox.Options, roots []guard.Status) []string {
	if slices.ContainsFunc(box.Env, func(e string) bool { return strings.HasPrefix(e, "GIT_CONFIG_") }) {
		return box.Env
	}
	var pairs [][2]string
	writes := slices.ContainsFunc(roots, func(st guard.Status) bool { return st.Grant.Policy.Rights.Mutating() })
	if _, err := os.Lstat(filepath.Join(box.Home, ".gitconfig")); writes && (box.Home == "" || err != nil) {
		pairs = gitIdentity()
	}
	if box.Level != sandbox.None {
		pairs = append(pairs, [2]string{"safe.directory", "*"})
	}
	if len(pairs) == 0 {
		return box.Env
	}
	env := append(slices.Clone(box.Env), fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(pairs)))
	for i, p := range pairs {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, p[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, p[1]))
	}
	return env
}

// gitIdentity returns user.name and user.email of the owner's own configuration.
func gitIdentity() [][2]string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	conf, _ := config.XDG("XDG_CONFIG_HOME", ".config", "git", "config") // there is a home, so no error
	found := map[string]string{}
	judge := writabledirs.NewJudge()                                         // it knows the roots of this session
	for _, file := range []string{conf, filepath.Join(home, ".gitconfig")} { // the later one counts
		if judge.File(file) == nil {
			readGitUser(file, found)
		}
	}
	var out [][2]string
	for _, key := range []string{"name", "email"} {
		if v := found[key]; v != "" {
			out = append(out, [2]string{"user." + key, v})
		}
	}
	return out
}

// readGitUser reads name and email in the [user] section of a file of git's configuration into
// found. It does not read included files.
func readGitUser(file string, found map[string]string) {
	text, err := readSmallFile(file)
	if err != nil {
		return
	}
	section := ""
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if rest, ok := strings.CutPrefix(line, "["); ok {
			section, _, _ = strings.Cut(rest, "]")
			section = strings.ToLower(strings.TrimSpace(section))
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		if ok && section == "user" && (key == "name" || key == "email") {
			found[key] = gitValue(value)
		}
	}
}

// gitEscapes are the escapes of git's configuration that do not stand for their own character.
var gitEscapes = map[byte]byte{'n': '\n', 't': '\t', 'b': '\b'}

// gitValue removes quotes and comments from a value, and replaces escapes.
func gitValue(s string) string {
	var b strings.Builder
	quoted := false
	s = strings.TrimSpace(s)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(cmp.Or(gitEscapes[s[i]], s[i]))
		case (c == '#' || c == ';') && !quoted:
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// readSmallFile reads a regular file of text. If the file is larger than maxSmallFile bytes, the error
// is errLargeFile.
func readSmallFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	text, err := readStart(f, maxSmallFile+1)
	switch {
	case err != nil:
		return "", err
	case strings.IndexByte(text, 0) >= 0:
		return "", errors.New("it is not text")
	case len(text) > maxSmallFile:
		return "", errLargeFile
	}
	return text, nil
}

// readStart reads at most the first n bytes of a file, and closes it. A file that is not regular is an
// error.
func readStart(f *os.File, n int64) (string, error) {
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, errors.New("it is not a regular file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, n))
	return string(text), err
}

// errLargeFile says that a file is too large to be read or copied.
var errLargeFile = errors.New("it is larger than 1 MiB")
