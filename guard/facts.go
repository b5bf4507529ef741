package guard

import (
	"errors"
	"regexp"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// rootFacts answers what built-in rules ask about a root's files. What cannot be
// found out holds. Other file systems are looked at only where the root's users
// reach them: what is mounted in a root without that may hang for ever.
type rootFacts root

var _ pattern.Facts = (*rootFacts)(nil)

// across reports whether the root's users reach other file systems in it.
func (f *rootFacts) across() bool { return f.policy.Load().OtherFileSystems }

func (f *rootFacts) look(rel string) (Looked, error) {
	return f.src.Look(rel, f.across())
}

func (f *rootFacts) foldsAt(dir string) bool { return f.src.FoldsAt(dir, f.across()) }

// IsDir implements pattern.Facts.
func (f *rootFacts) IsDir(path string) bool {
	got, err := f.look(path)
	return err == nil && got.Dir || err != nil && !errors.Is(err, names.NotExist)
}

// Top implements pattern.Facts.
func (f *rootFacts) Top(dir string) bool {
	for _, name := range vcsTops {
		top := under(dir, name)
		got, err := f.look(top)
		if err != nil && !errors.Is(err, names.NotExist) || err == nil && !f.repos.has(top, got.ID) {
			return true
		}
	}
	return false
}

// vcsTops are the names by which version control systems know a project.
var vcsTops = pattern.Tops()

// Bare implements pattern.Facts.
func (f *rootFacts) Bare(dir string, parts []string) bool {
	for _, name := range parts {
		if _, err := f.look(under(dir, name)); errors.Is(err, names.NotExist) {
			return false
		}
	}
	return !f.repos.around(dir, true, f.identity)
}

// Made implements pattern.Facts. A database's journals belong to the database.
func (f *rootFacts) Made(path string) bool {
	if f.repos.around(path, false, f.identity) {
		return true
	}
	for _, suffix := range [...]string{"-journal", "-wal"} {
		if database, ok := strings.CutSuffix(path, suffix); ok {
			return f.repos.around(database, false, f.identity)
		}
	}
	return false
}

// maxNpmrc is how much of a file is searched for tokens; what is longer is taken
// to hold one.
const maxNpmrc = 64 << 10

// Tokens implements pattern.Facts.
func (f *rootFacts) Tokens(path string) bool {
	head, err := f.src.Head(path, maxNpmrc, f.across())
	if err != nil {
		return !errors.Is(err, names.NotExist)
	}
	return len(head) == maxNpmrc || hasTokens(string(head))
}

// variable is a value that npm takes from its environment, and nothing else.
var variable = regexp.MustCompile(`^\$\{[^{}]*\}$`)

// hasTokens reports whether an .npmrc holds credentials rather than the names of
// environment variables that do. It reads lines, quotes and lists (KEY[]) as npm.
func hasTokens(text string) bool {
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
	for _, line := range lines {
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSuffix(strings.ToLower(strings.Trim(key, " \t\"'")), "[]")
		value = strings.Trim(value, " \t\"'")
		if !ok || value == "" || variable.MatchString(value) {
			continue
		}
		if strings.Contains(value, "PRIVATE KEY") {
			return true
		}
		for _, secret := range []string{"_authtoken", "_auth", "_password"} {
			if strings.HasSuffix(key, secret) {
				return true
			}
		}
	}
	return false
}

// lookedInto notes that a file's contents were asked about.
type lookedInto struct {
	*rootFacts
	readContents bool
}

func (f *lookedInto) Tokens(path string) bool {
	f.readContents = true
	return f.rootFacts.Tokens(path)
}
