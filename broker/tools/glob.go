package tools

import (
	"math"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Bounds of patterns: each is tried on each name.
const (
	maxPattern  = 1024 // bytes
	maxPatterns = 64
)

// pattern reads a glob as minimatch does, which server-filesystem uses, and
// returns it as doublestar takes it. What the two would not read alike is
// refused.
func (c *call) pattern(field, p string) (string, error) {
	bad := func(why string) (string, error) {
		return "", invalid("arguments: %s %s %s; the syntax is * ? [a-z] {a,b} **", field, names.QuoteShort(p), why)
	}
	switch {
	case len(p) > maxPattern:
		return "", invalid("arguments: %s is longer than %d bytes", field, maxPattern)
	case strings.HasPrefix(p, "!"):
		return bad("begins with !: put what is not wanted into excludePatterns")
	case strings.Contains(p, "..") && strings.Contains(p, "{"):
		return bad("has a range in braces: write the list out")
	}
	for _, x := range []string{"+(", "@(", "!(", "?(", "*("} {
		if strings.Contains(p, x) {
			return bad("has an extended group " + x + "...): write alternatives in braces")
		}
	}
	if err := pattern.Glob(p).Check(); err != nil {
		return bad(err.Error())
	}
	return below(plainBraces(p)), nil
}

func (c *call) patterns(field string, list []string) ([]string, error) {
	if len(list) > maxPatterns {
		return nil, invalid("arguments: %s has more than %d patterns", field, maxPatterns)
	}
	var out []string
	for _, p := range list {
		p, err := c.pattern(field, p)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// below makes dir/** mean what lies below the directory, and not itself, as
// minimatch has it.
func below(p string) string {
	var b strings.Builder
	for {
		i := strings.Index(p, "/**")
		if i < 0 {
			return b.String() + p
		}
		i += len("/**")
		b.WriteString(p[:i])
		if p = p[i:]; p == "" || p[0] == ',' || p[0] == '}' {
			b.WriteString("/*")
		}
	}
}

// plainBraces makes braces without a comma mean themselves, as in a shell.
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

// longest is how long a path may be, in bytes, to be compared with all of these.
func longest(patterns []string) int {
	bytes := math.MaxInt
	for _, p := range patterns {
		bytes = min(bytes, pattern.Glob(p).MaxPath())
	}
	return bytes / len(patterns)
}

func matchesAny(patterns []string, rel string) bool {
	for _, p := range patterns {
		if pattern.Glob(p).Match(rel) {
			return true
		}
	}
	return false
}
