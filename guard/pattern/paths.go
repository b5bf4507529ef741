package pattern

import (
	"errors"
	"fmt"

	"github.com/bmatcuk/doublestar/v4"
)

// Glob is a pattern for whole paths, for listings and searches: * ? [a-z] {a,b}, and **
// for any number of elements. (Rules are written as in .gitignore instead.) The zero value
// matches only the empty path.
type Glob string

// maxForms is how many patterns the braces of a glob may stand for. A matcher tries one
// after the other on each path, and nothing can stop it: twenty groups of two are a
// million patterns.
const maxForms = 256

// maxWork bounds one comparison of a path with a glob, in forms times bytes of the glob
// times bytes of the path: some tenths of a second. Nothing can stop a comparison, and a
// directory thousands of levels deep has a path of megabytes.
const maxWork = 1 << 27

// Check reports what is wrong with the glob. The error's text is the end of a sentence that begins
// with the glob, as in "GLOB is not a pattern".
func (g Glob) Check() error {
	if !doublestar.ValidatePattern(string(g)) {
		return errors.New("is not a pattern")
	}
	if g.forms() > maxForms {
		return fmt.Errorf("has braces that stand for more than %d patterns", maxForms)
	}
	return nil
}

// Match reports whether a path matches the glob. The caller has to have called Check, and Check
// must have returned nil.
func (g Glob) Match(path string) bool { return doublestar.MatchUnvalidated(string(g), path) }

// MaxPath returns the length in bytes up to which a path may be compared with the glob. The glob
// must have passed Check. Then MaxPath is at least PATH_MAX (4,096) for a glob of up to 128 bytes,
// and for a glob of up to 1,024 bytes for which forms returns at most 32.
func (g Glob) MaxPath() int { return maxWork / max(1, g.forms()*len(g)) }

// forms returns an upper bound for the number of patterns that the braces stand for. It
// stops counting above maxForms.
func (g Glob) forms() int {
	forms, commas := 1, 0
	for i := 0; i < len(g) && forms <= maxForms; i++ {
		switch g[i] {
		case ',':
			commas++
		case '}':
			forms *= commas + 1
			commas = 0
		}
	}
	return forms
}
