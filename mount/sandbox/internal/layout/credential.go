package layout

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The machine's settings of some programs may hold credentials, such as the token of a
// registry. These files and directories of /etc, and files of the system's directories, are
// searched for credentials. A file that seems to hold one is not shown.
var (
	settingsFiles = []string{"gitconfig", "npmrc", "pip.conf", "wgetrc", "profile", "bashrc", "bash.bashrc"}
	settingsDirs  = []string{"maven", "profile.d", "skel"}
	systemFiles   = []string{
		"/usr/etc/npmrc", "/usr/etc/gitconfig", "/usr/etc/wgetrc", "/usr/pip.conf",
		"/usr/local/etc/npmrc", "/usr/local/etc/gitconfig", "/usr/local/etc/wgetrc", "/usr/local/pip.conf",
		"/usr/lib/node_modules/npm/npmrc", "/usr/local/lib/node_modules/npm/npmrc",
	}
)

// maxSettings bounds the files and links of one directory of settings. A directory with more is
// not shown.
const maxSettings = 256

// settings has the files with a credential, and the other files and links of their directories.
type settings struct {
	hidden []string // files, and whole directories, of /etc that are not shown
	masked []string // files of system directories that an empty file replaces
	dirs   []string // directories of /etc that are hidden or have a hidden file
	files  []string // the other files in dirs
	links  []string // the links in dirs
	text   buffers
}

// buffers are for the text of one file at a time. New buffers for each file would take many new
// pages at each start of a command.
type buffers struct {
	text  bytes.Buffer
	lower []byte
}

// findSettings searches the machine's settings once.
var findSettings = sync.OnceValue(func() *settings {
	s := &settings{}
	for _, name := range settingsFiles {
		if path := "/etc/" + name; s.text.holdsCredential(path) {
			s.hidden = append(s.hidden, path)
		}
	}
	for _, name := range settingsDirs {
		s.addDir("/etc/" + name)
	}
	for _, path := range systemFiles {
		real, err := filepath.EvalSymlinks(path)
		inSystem := func(dir string) bool { return names.Under(real, dir) }
		if err == nil && slices.ContainsFunc(SystemDirs, inSystem) && s.text.holdsCredential(real) {
			s.masked = append(s.masked, real)
		}
	}
	s.text = buffers{}
	return s
})

// addDir adds a directory to s, with its hidden files, other files and links, if it has a file with
// a credential. A directory with more than maxSettings entries is hidden as a whole.
func (s *settings) addDir(dir string) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	var hidden, files, links []string
	err = filepath.WalkDir(real, func(path string, e fs.DirEntry, err error) error {
		at := dir + strings.TrimPrefix(path, real)
		switch {
		case err != nil || e.IsDir():
		case len(hidden)+len(files)+len(links) == maxSettings:
			return fs.ErrInvalid
		case e.Type()&fs.ModeSymlink != 0:
			links = append(links, at)
		case s.text.holdsCredential(path):
			hidden = append(hidden, at)
		default:
			files = append(files, at)
		}
		return nil
	})
	if err != nil {
		hidden, files, links = []string{dir}, nil, nil
	}
	if len(hidden) > 0 {
		s.dirs = append(s.dirs, dir)
		s.hidden, s.files, s.links = append(s.hidden, hidden...), append(s.files, files...), append(s.links, links...)
	}
}

// Hidden returns the machine's files that are not shown because they seem to hold a credential.
// etc has files (and whole directories) of /etc. system has files in the system's directories, which
// an empty file replaces.
func Hidden() (etc, system []string) {
	s := findSettings()
	return slices.Clone(s.hidden), slices.Clone(s.masked)
}

var (
	// assignment matches a value that is assigned to a name like that of a credential.
	assignment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:_auth|_pwd|_pat|password|passwd|passphrase|token|secret|api_?key|access_?key|"auth")["']?(?:\[\])?\s*[=:>]\s*["']?([^\s"'<;]+)`)
	})
	// credential matches text that has the form of a credential: a URL with a user in it,
	// a header, a private key, a token of a well-known kind.
	credential = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:https?|ftps?)://[^/\s"'<>$]+@|\b(?:authorization|cookie)["']?\s*[:=]\s*["']?[^\s"'$]|\bbearer\s+[\w.-]{8}|-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:(?:gh[pousr]_|npm_)[a-z0-9]{30}|(?:github_pat_|glpat-|pypi-|xox[abp]-|sk-)[\w-]{20})|\bAKIA[A-Z0-9]{16}`)
	})
	// noValue matches values that are no credentials: a variable, a switch, and the
	// samples in Maven's own settings.
	noValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^(?:\$\{[^{}]*\}|\$[\w(].*|true|false|yes|no|on|off|proxypass|repopwd|optional)$`)
	})
)

// credentialFiles are the names of files that hold nothing but credentials.
var credentialFiles = []string{".netrc", ".pgpass", ".git-credentials"}

// holdsCredential reports whether a regular file seems to hold a credential. It reports true
// for a file that is too long to be copied or that cannot be read to its end. It reports false for
// a file that cannot be opened, because such a file is not shown in any case.
func (b *buffers) holdsCredential(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	b.text.Reset()
	_, err = b.text.ReadFrom(io.LimitReader(f, CopyMax+1))
	size := b.text.Len()
	return err != nil || size > CopyMax || size > 0 && slices.Contains(credentialFiles, filepath.Base(path)) || b.containsCredential()
}

// Each match of assignment, or of credential, begins on a line that contains one of these texts in
// lower or upper case. (The line of a URL with a user in it contains "://" and "@" instead.) Other
// lines are not matched, because matching takes milliseconds. An expression is compiled only for a
// file that needs it.
var (
	assignmentHints = []string{
		"_auth", "_pwd", "_pat", "passw", "passphrase", "token", "secret", "api_key", "apikey", "access_key", "accesskey", `"auth"`,
	}
	credentialHints = []string{
		"authorization", "cookie", "bearer", "private key", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-",
		"xox", "sk-", "akia",
	}
)

// containsCredential reports whether the text seems to contain a credential, even in a comment.
func (b *buffers) containsCredential() bool {
	b.lower = appendLower(b.lower[:0], b.text.Bytes())
	text, lower := b.text.Bytes(), b.lower
	for len(text) > 0 {
		end, second := len(text), len(text) // of the line, and of the next line
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			end = i
			if j := bytes.IndexByte(text[i+1:], '\n'); j >= 0 {
				second = i + 1 + j
			}
		}
		has := func(hint string) bool { return bytes.Contains(lower[:end], []byte(hint)) }
		line := text[:second] // the next line may have the value of an XML element
		if (has("://") && has("@") || slices.ContainsFunc(credentialHints, has)) && credential().Match(line) {
			return true
		}
		if slices.ContainsFunc(assignmentHints, has) && assigns(line) {
			return true
		}
		next := min(end+1, len(text))
		text, lower = text[next:], lower[next:]
	}
	return false
}

// assigns reports whether a value that seems to be a credential is assigned in the text.
func assigns(text []byte) bool {
	return slices.ContainsFunc(assignment().FindAllSubmatch(text, -1), func(m [][]byte) bool { return !noValue().Match(m[1]) })
}

// appendLower appends the text with its ASCII letters in lower case to b.
func appendLower(b, text []byte) []byte {
	for _, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
