package config

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// readSubjects reads the [[subject]] blocks: what one server may use in all its
// roots together. The name "*" stands for every server without a block.
func readSubjects(blocks []table) map[guard.Subject]guard.Quota {
	out := map[guard.Subject]guard.Quota{}
	for _, t := range blocks {
		name := guard.Subject(t.word("name", checkSubjects))
		var q guard.Quota
		q.MaxFile, _ = t.size("max_file")
		q.MaxWritten, _ = t.size("max_written")
		q.MaxCreated, _ = t.count("max_created", math.MaxInt64)
		if _, twice := out[name]; twice {
			t.fail("name", "the server %s has a block already; write its limits there", names.Quote(string(name)))
		}
		if name == "" {
			t.fail("name", `the name of a server is missing; "*" stands for every server without a block`)
		}
		out[name] = q
		t.done()
	}
	return out
}

// readAbuse reads when a server that is refused again and again is told of, or
// suspended.
func readAbuse(t table) guard.Abuse {
	var a guard.Abuse
	escapes, _ := t.count("escapes", guard.MaxAbuse)
	refusals, _ := t.count("refusals", guard.MaxAbuse)
	a.Escapes, a.Refusals, a.Suspend = int(escapes), int(refusals), t.flag("suspend")
	if a.Suspend && a.Escapes == 0 && a.Refusals == 0 {
		t.fail("suspend", "says nothing without a bound; write escapes or refusals, too")
	}
	t.done()
	return a
}

// WidenedAbuse lists what of the bounds on refusals is less strict than before.
func WidenedAbuse(old, new guard.Abuse) []Widening {
	var list []Widening
	for _, l := range []struct {
		key      string
		old, new int
	}{{"escapes", old.Escapes, new.Escapes}, {"refusals", old.Refusals, new.Refusals}} {
		if l.old != 0 && (l.new == 0 || l.new > l.old) {
			list = append(list, Widening{What: fmt.Sprintf("abuse.%s %d -> %s", l.key, l.old, orNone(l.new != 0, l.new))})
		}
	}
	if old.Suspend && !new.Suspend {
		list = append(list, Widening{What: "abuse.suspend true -> false"})
	}
	return list
}

// WidenedSubjects lists which servers may use more than before.
func WidenedSubjects(old, new map[guard.Subject]guard.Quota) []Widening {
	var list []Widening
	for _, s := range slices.Sorted(maps.Keys(old)) {
		was, is := old[s], new[s] // without a block there is no limit
		for _, l := range []struct {
			key      string
			old, new int64
		}{{"max_file", was.MaxFile, is.MaxFile}, {"max_written", was.MaxWritten, is.MaxWritten}, {"max_created", was.MaxCreated, is.MaxCreated}} {
			if l.old != 0 && (l.new == 0 || l.new > l.old) {
				list = append(list, Widening{What: fmt.Sprintf("%s: %s %d -> %s", whom(s), l.key, l.old, orNone(l.new != 0, l.new))})
			}
		}
	}
	return list
}
