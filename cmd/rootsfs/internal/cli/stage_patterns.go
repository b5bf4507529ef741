package cli

import (
	"slices"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// stricter returns patterns that refuse what now or last refuses. A negation (!PATTERN) in last is
// left out: it could lift a present rule. last is nil if it is not known.
func stricter(now, last *guard.Patterns) guard.Patterns {
	p := *now
	if last == nil {
		return p
	}
	p.Deny, p.Hide, p.Protect = joinPatterns(now.Deny, last.Deny), joinPatterns(now.Hide, last.Hide), joinPatterns(now.Protect, last.Protect)
	switch {
	case now.NoDefaults && !now.Gitignore: // there is nothing that an allow could lift
		p.Allow = last.Allow
	case !last.NoDefaults || last.Gitignore:
		p.Allow = commonAllow(now.Allow, last.Allow)
	}
	p.Gitignore = now.Gitignore || last.Gitignore
	p.NoDefaults = now.NoDefaults && last.NoDefaults
	return p
}

// joinPatterns returns a list of patterns that matches at least what now or last matches. A pattern
// of last comes again after a negation in now, which could take it back.
func joinPatterns(now, last []rules.Pattern) []rules.Pattern {
	if p := (guard.Patterns{Hide: now}); !p.WiderThan(guard.Patterns{Hide: last}) {
		return now
	}
	out := slices.Clone(now)
	for _, m := range last {
		i := slices.IndexFunc(out, func(p rules.Pattern) bool { return p.Text == m.Text })
		if !m.Negated() && (i < 0 || slices.ContainsFunc(out[i:], rules.Pattern.Negated)) {
			out = append(out, m)
		}
	}
	return out
}

// commonAllow returns a list for Patterns.Allow that lifts only what now and last both lift.
func commonAllow(now, last []rules.Pattern) []rules.Pattern {
	if p := (guard.Patterns{Allow: now}); !p.WiderThan(guard.Patterns{Allow: last}) {
		return now
	}
	out := slices.DeleteFunc(slices.Clone(now), func(a rules.Pattern) bool {
		return !a.Negated() && !slices.ContainsFunc(last, func(p rules.Pattern) bool { return p.Text == a.Text })
	})
	return append(out, slices.DeleteFunc(slices.Clone(last), func(a rules.Pattern) bool { return !a.Negated() })...)
}
