package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Changes are the differences between two configurations. To apply them, a session revokes Removed
// and the Old of Changed, and grants Added and the New of Changed. If ModeOnly or PatternsOnly is
// set, the session changes the live root instead, with Registry.Set or Registry.SetPatterns.
type Changes struct {
	Added, Removed []Root
	Changed        []Change
	// Widened lists the changes that give more access than before. The session announces and
	// audits them. Each is an escaped line such as "NAME: mode ro -> rw". If the change concerns
	// no root, the line has no root's name.
	Widened []string
}

// Change is a root that both configurations have under one name.
type Change struct {
	Old, New Root
	ModeOnly bool // only the rights differ
	// PatternsOnly: only the patterns differ.
	PatternsOnly bool
}

// Empty reports whether there are no differences.
func (c *Changes) Empty() bool {
	return len(c.Added)+len(c.Removed)+len(c.Changed)+len(c.Widened) == 0
}

// DiffRoots compares two sets of roots, for example when the profile changes. Roots with the
// same name are the same root. The results keep the order of the sets.
func DiffRoots(old, new []Root) Changes {
	var c Changes
	before := map[guard.RootName]Root{}
	for _, r := range old {
		before[r.Name] = r
	}
	isKept := map[guard.RootName]bool{}
	for _, r := range new {
		was, ok := before[r.Name]
		isKept[r.Name] = true
		if !ok {
			c.Added = append(c.Added, r)
			c.Widened = append(c.Widened, fmt.Sprintf("%s: new root %s, mode %s", names.Escape(string(r.Name)), names.Quote(r.Path), r.Rights))
			continue
		}
		if same(was, r) {
			continue
		}
		withRights := was
		withRights.Rights = r.Rights
		withPatterns := was
		withPatterns.Patterns = r.Patterns
		// Only a new grant can make a root staged, or no longer staged.
		modeOnly := same(withRights, r) && was.Rights.Staged() == r.Rights.Staged()
		c.Changed = append(c.Changed, Change{Old: was, New: r, ModeOnly: modeOnly, PatternsOnly: same(withPatterns, r)})
		c.Widened = append(c.Widened, widened(was, r)...)
	}
	for _, r := range old {
		if !isKept[r.Name] {
			c.Removed = append(c.Removed, r)
		}
	}
	return c
}

func same(a, b Root) bool {
	if !a.Expires.Equal(b.Expires) || !samePatterns(a.Patterns, b.Patterns) {
		return false
	}
	a.Line, b.Line = 0, 0
	a.Expires, b.Expires = time.Time{}, time.Time{}
	a.Patterns, b.Patterns = guard.Patterns{}, guard.Patterns{}
	return reflect.DeepEqual(a, b)
}

// samePatterns compares the texts of patterns, not their places in the file.
func samePatterns(a, b guard.Patterns) bool {
	text := func(x, y rules.Pattern) bool { return x.Text == y.Text }
	return slices.EqualFunc(a.Hide, b.Hide, text) && slices.EqualFunc(a.Deny, b.Deny, text) &&
		slices.EqualFunc(a.Protect, b.Protect, text) && slices.EqualFunc(a.Allow, b.Allow, text) &&
		a.Gitignore == b.Gitignore && a.NoDefaults == b.NoDefaults
}

// widened lists the ways in which the new root gives more than the old one.
func widened(old, new Root) (list []string) {
	add := func(format string, args ...any) {
		list = append(list, names.Escape(string(new.Name))+": "+fmt.Sprintf(format, args...))
	}
	if old.Path != new.Path {
		add("path %s -> %s", names.Quote(old.Path), names.Quote(new.Path))
	}
	if old.Subject != new.Subject {
		add("for %s -> %s", subjectText(old.Subject), subjectText(new.Subject))
	}
	if new.Rights.WiderThan(old.Rights) {
		add("mode %s -> %s", old.Rights, new.Rights)
	}
	if new.CrossFileSystems && !old.CrossFileSystems {
		add("crosses file systems")
	}
	if new.Patterns.WiderThan(old.Patterns) {
		add("patterns take less away")
	}
	if old.Trash.On && !new.Trash.On {
		add("keeps nothing of what is removed")
	}
	if new.AllowSystem && !old.AllowSystem {
		add("may be writable though a system directory")
	}
	switch {
	case old.For != new.For && old.For != 0 && (new.For == 0 || new.For > old.For) && new.Expires.IsZero():
		add("for %v -> %s", old.For, orNone(new.For > 0, new.For))
	case !old.Expires.IsZero() && (new.Expires.IsZero() || new.Expires.After(old.Expires)):
		add("expires %s -> %s", old.Expires.Format(time.RFC3339), orNone(!new.Expires.IsZero(), new.Expires.Format(time.RFC3339)))
	case old.For != 0 && !new.Expires.IsZero():
		add("for %v -> expires %s", old.For, new.Expires.Format(time.RFC3339))
	}
	old.Limits.Timeout, new.Limits.Timeout = timeout(old), timeout(new)
	old.Limits.MaxStage, new.Limits.MaxStage = maxStage(old), maxStage(new)
	for _, what := range raised(limits(old.Limits), limits(new.Limits)) {
		add("%s", what)
	}
	return list
}

// raised lists the bounds of a table that are less strict in new than in old (0 is no bound),
// and the switches for more strictness that new turns off.
func raised[T any](old, new T) []string {
	var list []string
	for _, k := range tableKeys(reflect.TypeFor[T]()) {
		was, is := reflect.ValueOf(old).FieldByIndex(k.field), reflect.ValueOf(new).FieldByIndex(k.field)
		if was.IsZero() || !is.IsZero() && !exceeds(is, was) {
			continue
		}
		to := plain(is)
		if is.IsZero() && is.Kind() != reflect.Bool {
			to = "none"
		}
		list = append(list, k.name+" "+plain(was)+" -> "+to)
	}
	return list
}

// plain returns a value as text, numbers without an exponent.
func plain(v reflect.Value) string {
	if v.CanFloat() {
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// exceeds reports whether a is greater than b, for two bounds or two switches.
func exceeds(a, b reflect.Value) bool {
	switch {
	case a.CanFloat():
		return a.Float() > b.Float()
	case a.CanInt():
		return a.Int() > b.Int()
	}
	return a.Bool() && !b.Bool()
}

// WidenedFile lists the changes of [abuse], [[subject]], [fleet] and [files] that give more than
// before and take effect at once. If abuses is false, it leaves out [abuse].
func WidenedFile(old, new *Config, abuses bool) (list []string) {
	add := func(prefix string, all []string) {
		for _, what := range all {
			list = append(list, prefix+what)
		}
	}
	if abuses {
		add("abuse.", raised(abuse(old.Abuse), abuse(new.Abuse)))
	}
	all := map[guard.Subject]ledger.Quota{}
	maps.Copy(all, old.Subjects)
	maps.Copy(all, new.Subjects)
	for _, s := range slices.Sorted(maps.Keys(all)) {
		add(subjectText(s)+": ", raised(quotaOf(old, s), quotaOf(new, s)))
	}
	for _, act := range new.FleetAllows {
		if !slices.Contains(old.FleetAllows, act) {
			add("fleet.", []string{"allow " + act})
		}
	}
	if old.Files.Deny && !new.Files.Deny {
		add("files.", []string{"consent deny -> ask"})
	}
	for _, a := range new.Files.Allow {
		if !slices.ContainsFunc(old.Files.Allow, func(b Allow) bool { return a.Path == b.Path && !a.Rights.WiderThan(b.Rights) }) {
			add("files.", []string{fmt.Sprintf("allow %s, mode %s", names.Quote(a.Path), a.Rights)})
		}
	}
	return list
}

// quotaOf returns the quota of a subject: that of its own block, or else that of the block of "*".
func quotaOf(c *Config, s guard.Subject) quota {
	if own, ok := c.Subjects[s]; ok {
		return quota(own)
	}
	return quota(c.Subjects[ledger.AnySubject])
}

// subjectText returns the words for a subject.
func subjectText(s guard.Subject) string {
	if s == "" {
		return "every server"
	}
	return "the server " + names.Quote(string(s))
}

// timeout returns the root's timeout; zero means the default.
func timeout(r Root) time.Duration {
	if r.Limits.Timeout == 0 {
		return rules.DefaultTimeout
	}
	return r.Limits.Timeout
}

// maxStage returns the most that the root's stage takes on the disk; zero means the default.
func maxStage(r Root) int64 { return cmp.Or(r.Limits.MaxStage, rules.DefaultMaxStage) }

func orNone(limited bool, v any) string {
	if !limited {
		return "none"
	}
	return fmt.Sprint(v)
}
