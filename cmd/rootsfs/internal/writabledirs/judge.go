package writabledirs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/vfs"
)

// rootsfs runs programs and reads files for the owner. A confined program that can write one of
// them could act in the owner's name. So a Judge checks such a program or file, unless a confined
// program cannot control it for another reason. integration/deps/ownerfiles_test.go lists the calls
// that run programs or open files, with the reasons, and fails for a call that is not listed.

// Judge knows the directories that confined programs can write.
type Judge struct {
	dirs    []string // writable directories in addition to history; without links
	history *Dirs    // nil: there is no state directory, so no session was ever started
	opener  guard.Opener
}

// Error is the reason for refusing a program or file of the owner: confined programs can write it
// or a directory that contains it. If they can change a link on the path, the reason is a
// rules.LinkError instead.
type Error struct {
	Path string
	Dir  string // the file or directory that programs can write; "/": not known
}

func (e *Error) Error() string {
	if e.Dir == "/" {
		return fmt.Sprintf("whether programs can write %s is not known, because the list of writable roots cannot be read: make it readable, in the state directory of rootsfs",
			names.Quote(e.Path))
	}
	return fmt.Sprintf("%s lies in %s, which programs can write or could in an earlier session; move it to a directory that is no writable root",
		names.Quote(e.Path), names.Quote(e.Dir))
}

// NewJudge returns a Judge that knows the directories of all sessions so far, including
// live ones. dirs are the directories that programs will be able to write: roots of the
// configuration and of the command line, and a HOME that is kept between sessions. The Judge also
// knows the mounts of rootsfs, because each file in a mount is a file of a root.
func NewJudge(dirs ...string) *Judge {
	j := &Judge{opener: vfs.Opener()}
	if d, err := Open(); err == nil { // without a state directory no session can start
		j.history = d
	}
	for _, dir := range dirs {
		if resolved, _, err := j.opener.Trace(dir); err == nil {
			j.dirs = append(j.dirs, resolved)
		}
	}
	mounts, err := mountpoint.Ours()
	if err != nil {
		j.dirs = append(j.dirs, "/") // any file may lie in a mount
	}
	for _, m := range mounts {
		j.dirs = append(j.dirs, m.Point)
	}
	return j
}

// Holder returns the directory that programs can write and that is or contains path; "" if there is
// none, "/" if the list of such directories cannot be read. path has no links.
func (j *Judge) Holder(path string) string {
	for _, dir := range j.dirs {
		if names.Under(path, dir) {
			return dir
		}
	}
	if j.history == nil {
		return ""
	}
	return j.history.Writer(path)
}

// resolvedFile is File for a path without links.
func (j *Judge) resolvedFile(path string) error {
	if dir := j.Holder(path); dir != "" {
		return &guard.Error{Kind: names.Permission, Err: &Error{Path: path, Dir: dir}}
	}
	return nil
}

// File refuses a file or directory that programs can write, or whose path passes a link that
// they, or other users, can change. The end of path need not exist.
func (j *Judge) File(path string) error {
	resolved, links, err := j.opener.Trace(path)
	if err != nil {
		return err
	}
	for _, l := range links {
		who := l.Others
		if dir := j.Holder(l.Path); who == "" && dir != "" {
			who = "programs for which " + names.Quote(dir) + " is or was a writable root"
		}
		if who != "" {
			return &guard.Error{Kind: names.Permission, Err: &rules.LinkError{Asked: path, Link: l.Path, Others: who, Resolved: resolved}}
		}
	}
	return j.resolvedFile(resolved)
}

// ReadFile is os.ReadFile for a file that File does not refuse.
func (j *Judge) ReadFile(path string) ([]byte, error) {
	if err := j.File(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Program returns the full path of a program, which it finds in PATH if name has no slash.
// It refuses a relative path with a slash. It also refuses a program if File refuses the
// program itself, its interpreter, a library or any other file that sandbox.Interpreter
// examines.
func (j *Judge) Program(name string) (string, error) {
	invalid := func(format string, args ...any) error {
		return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("%s "+format, append([]any{names.Quote(name)}, args...)...)}
	}
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		return "", invalid("is a relative path: write it in full")
	}
	path, err := exec.LookPath(name)
	switch {
	case errors.Is(err, exec.ErrDot):
		return "", invalid("is found in the working directory, by a relative directory of PATH: write the full path")
	case err != nil:
		return "", err
	}
	if err := j.File(path); err != nil {
		return "", err
	}
	var refused error
	_, err = sandbox.Interpreter(path, func(resolved string) bool {
		err := j.resolvedFile(resolved)
		if refused == nil {
			refused = err
		}
		return err != nil
	})
	if refused != nil {
		err = refused
	}
	return path, err
}

// CheckProgram returns the error of Program. It is for sandbox.Options.
func (j *Judge) CheckProgram(path string) error {
	_, err := j.Program(path)
	return err
}

// Command returns the full path of a command's program, or the error of Program. It also
// refuses arguments with an absolute path that File refuses, such as a script for an
// interpreter.
func (j *Judge) Command(words []string) (path string, err error) {
	if path, err = j.Program(words[0]); err != nil {
		return "", err
	}
	for _, arg := range words[1:] {
		if err := j.checkPaths(arg); err != nil {
			return "", err
		}
	}
	return path, nil
}

// checkPaths refuses a text with an absolute path that File refuses.
func (j *Judge) checkPaths(text string) error {
	for _, p := range pathsIn(text) {
		if _, _, err := j.opener.Trace(p); err != nil {
			continue // it is no path, or leads nowhere
		}
		if err := j.File(p); err != nil {
			return err
		}
	}
	return nil
}

// separators has the characters that may come before or after a path in a text. But a file name
// may contain them, too.
const separators = " \t\n\"'`;|&()<>=:,[]{}@+%!^#*?"

// unquoter removes a shell's quotes: they hide where a path begins and ends.
var unquoter = strings.NewReplacer(`"`, "", "'", "", `\`, "")

// expandVariables returns a text with the values of its variables, as a shell has them in an
// argument or in BASH_ENV. For forms such as ${NAME:-other} it uses the value of NAME.
func expandVariables(text string) string {
	return os.Expand(text, func(name string) string {
		if end := strings.IndexFunc(name, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }); end > 0 {
			name = name[:end]
		}
		if name == "HOME" {
			return xdg.Home()
		}
		return os.Getenv(name)
	})
}

// pathsIn returns the absolute paths that a text may contain. The text may be an option or a shell
// script. Nobody knows where a path in a text ends: the list has a path for each possible end.
func pathsIn(text string) (list []string) {
	plain := unquoter.Replace(text)
	for _, text := range []string{text, plain, expandVariables(plain)} {
		for i := range len(text) {
			if !mayBegin(text, i) {
				continue
			}
			path := text[i:]
			if rest, ok := strings.CutPrefix(path, "~/"); ok {
				path = xdg.Home() + "/" + rest
			}
			if !filepath.IsAbs(path) {
				continue
			}
			for end := 1; end <= min(len(path), unix.PathMax); end++ {
				if end == len(path) || strings.IndexByte(separators, path[end]) >= 0 {
					list = append(list, path[:end])
				}
			}
		}
	}
	return list
}

// mayBegin reports whether a path may begin at text[i]: at the beginning of a word, or behind
// the letters of an option (-I/path).
func mayBegin(text string, i int) bool {
	word := text[strings.LastIndexAny(text[:i], separators)+1 : i]
	return word == "" || word[0] == '-' && !strings.Contains(word, "/")
}

// Environ returns the environment for a program P that is run for the owner: this process's,
// without the variables, other than PATH, for which drop returns true. PATH has no relative
// directory and none that confined programs can write, so that they cannot supply a program that P
// runs. Nor can they supply a file that P loads (LD_PRELOAD, PYTHONPATH, NODE_OPTIONS): a variable
// with a path that confined programs can write is left out. HOME stays even then: without HOME, P
// would read another user's files.
func (j *Judge) Environ(drop func(name string) bool) (env []string) {
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case name == "PATH":
			env = append(env, "PATH="+j.searchPath(value))
		case drop != nil && drop(name), name != "HOME" && j.checkPaths(value) != nil: // left out
		default:
			env = append(env, e)
		}
	}
	return env
}

func (j *Judge) searchPath(path string) string {
	var list []string
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && j.File(dir) == nil {
			list = append(list, dir)
		}
	}
	return strings.Join(list, string(os.PathListSeparator))
}
