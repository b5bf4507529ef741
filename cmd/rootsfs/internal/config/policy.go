package config

import (
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
)

// readPatterns adds what a [policy] table says to what holds already: patterns
// after those there are, switches in their place.
func readPatterns(t table, p guard.Patterns) guard.Patterns {
	for _, l := range []struct {
		key string
		to  *[]guard.Pattern
	}{{"hide", &p.Hide}, {"deny", &p.Deny}, {"protect", &p.Protect}, {"allow", &p.Allow}} {
		*l.to = append(slices.Clip(*l.to), t.patterns(l.key)...)
	}
	if on, ok := t.given("respect_gitignore"); ok {
		p.Gitignore = on
	}
	if on, ok := t.given("defaults"); ok {
		p.NoDefaults = !on
	}
	t.done()
	return p
}

// patterns takes a list of patterns, each with its line.
func (t table) patterns(key string) (out []guard.Pattern) {
	t.note(key, patternsSchema)
	list, ok := get[[]any](t, key, "a list of patterns, as in .gitignore")
	if !ok {
		return nil
	}
	if len(list) > guard.MaxPatterns {
		t.fail(key, "has %d patterns, more than the limit of %d", len(list), guard.MaxPatterns)
		return nil
	}
	for i, v := range list {
		at := t.sub(key, index(i))
		text, ok := v.(string)
		if !ok {
			t.r.fail(at, "must be text in quotes: a pattern as in .gitignore")
			continue
		}
		one := guard.Pattern{Text: text, File: t.r.file, Line: t.r.lines.line(at)}
		if err := only(key, guard.Pattern{Text: text}).Check(); err != nil { // the place is said already
			t.r.fail(at, "%w", err)
			continue
		}
		out = append(out, one)
	}
	return out
}

// only is a policy of one pattern, in the list of that key.
func only(key string, one guard.Pattern) *guard.Patterns {
	list := []guard.Pattern{one}
	switch key {
	case "deny":
		return &guard.Patterns{Deny: list}
	case "protect":
		return &guard.Patterns{Protect: list}
	case "allow":
		return &guard.Patterns{Allow: list}
	}
	return &guard.Patterns{Hide: list}
}

// samePatterns compares what patterns say, not where they stand.
func samePatterns(a, b guard.Patterns) bool {
	text := func(x, y guard.Pattern) bool { return x.Text == y.Text }
	return slices.EqualFunc(a.Hide, b.Hide, text) && slices.EqualFunc(a.Deny, b.Deny, text) &&
		slices.EqualFunc(a.Protect, b.Protect, text) && slices.EqualFunc(a.Allow, b.Allow, text) &&
		a.Gitignore == b.Gitignore && a.NoDefaults == b.NoDefaults
}

// patternBlock writes patterns as the value of a key of [[root]].
func patternBlock(p guard.Patterns) string {
	var list []string
	for _, l := range []struct {
		key  string
		from []guard.Pattern
	}{{"hide", p.Hide}, {"deny", p.Deny}, {"protect", p.Protect}, {"allow", p.Allow}} {
		if len(l.from) == 0 {
			continue
		}
		texts := make([]string, len(l.from))
		for i, x := range l.from {
			texts[i] = quote(x.Text)
		}
		list = append(list, l.key+" = ["+strings.Join(texts, ", ")+"]")
	}
	if p.Gitignore {
		list = append(list, "respect_gitignore = true")
	}
	if p.NoDefaults {
		list = append(list, "defaults = false")
	}
	if len(list) == 0 {
		return ""
	}
	return "policy = { " + strings.Join(list, ", ") + " }\n"
}
