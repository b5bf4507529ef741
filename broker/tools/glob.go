package tools

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Bounds of the patterns in one argument: a call compares each pattern with each name.
const (
	maxPattern  = 1024 // bytes
	maxPatterns = 64
)

// glob reads text, the pattern in the argument field, as minimatch does, which server-filesystem
// uses. It returns the pattern in the syntax of doublestar. It refuses a pattern that is malformed
// or too long, or that minimatch and doublestar read differently.
func glob(field, text string) (pattern.Glob, error) {
	bad := func(why string) (pattern.Glob, error) {
		return "", invalid("arguments: %s %s %s; the syntax is * ? [a-z] {a,b} **", field, names.QuoteShort(text), why)
	}
	switch {
	case len(text) > maxPattern:
		return "", invalid("arguments: %s is longer than %d bytes", field, maxPattern)
	case strings.HasPrefix(text, "!"):
		return bad("begins with !: put what is not wanted into excludePatterns")
	case strings.Contains(text, "..") && strings.Contains(text, "{"):
		return bad("has a range in braces: write the list out")
	}
	for _, group := range []string{"+(", "@(", "!(", "?(", "*("} {
		if strings.Contains(text, group) {
			return bad("has an extended group " + group + "...): write alternatives in braces")
		}
	}
	if err := pattern.Glob(text).Check(); err != nil {
		return bad(err.Error())
	}
	return pattern.Glob(matchOnlyBelow(plainBraces(text))), nil
}

func globs(field string, list []string) (out []pattern.Glob, err error) {
	if len(list) > maxPatterns {
		return nil, invalid("arguments: %s has more than %d patterns", field, maxPatterns)
	}
	for _, text := range list {
		g, err := glob(field, text)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

var atEnd = regexp.MustCompile(`/\*\*($|[,}])`)

// matchOnlyBelow makes dir/** match the names below the directory and not the directory itself, as
// in minimatch.
func matchOnlyBelow(p string) string { return atEnd.ReplaceAllString(p, "/**/*$1") }

// plainBraces escapes each pair of braces that has no comma. As in a shell, such braces mean
// themselves.
func plainBraces(p string) string {
	type brace struct {
		at    int
		comma bool
	}
	var open []brace
	plain := map[int]bool{}
	class := false
	for i := 0; i < len(p); i++ {
		switch ch := p[i]; {
		case ch == '\\':
			i++
		case class:
			class = ch != ']'
		case ch == '[':
			class = true
		case ch == '{':
			open = append(open, brace{at: i})
		case ch == ',' && len(open) > 0:
			open[len(open)-1].comma = true
		case ch == '}' && len(open) > 0:
			last := open[len(open)-1]
			if open = open[:len(open)-1]; !last.comma {
				plain[last.at], plain[i] = true, true
			}
		}
	}
	var b strings.Builder
	for i := range len(p) {
		if plain[i] {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// maxPath returns the length of the longest path, in bytes, that may be compared with all
// globs.
func maxPath(globs []pattern.Glob) int {
	bytes := math.MaxInt
	for _, g := range globs {
		bytes = min(bytes, g.MaxPath())
	}
	return bytes / len(globs)
}

func matchesAny(globs []pattern.Glob, rel string) bool {
	return slices.ContainsFunc(globs, func(g pattern.Glob) bool { return g.Match(rel) })
}
