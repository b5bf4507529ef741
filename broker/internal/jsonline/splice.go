package jsonline

import "slices"

// Patch changes one member of an object. It removes the member, sets the member's value, or, if
// the value is an object, sets members of the value and leaves the other members.
type Patch struct {
	Key   string // without characters that need an escape
	Value []byte // raw; nil: Members is used instead
	Drop  bool   // remove the member
	// Members are set in the value if it is an object. If the value is null or missing, an
	// object with the Members is made. Any other value stays, because its meaning is unknown
	// here.
	Members []Patch
}

// Cut replaces a part of a line.
type Cut struct {
	Span
	With []byte
}

// Replace returns b with the cuts applied. The cuts must not overlap. Without cuts, Replace
// returns b itself.
func Replace(b []byte, cuts ...Cut) []byte {
	if len(cuts) == 0 {
		return b
	}
	slices.SortStableFunc(cuts, func(a, b Cut) int { return a.From - b.From })
	n := len(b)
	for _, c := range cuts {
		n += len(c.With) - (c.To - c.From)
	}
	out := make([]byte, 0, n)
	from := 0
	for _, c := range cuts {
		out = append(append(out, b[from:c.From]...), c.With...)
		from = c.To
	}
	return append(out, b[from:]...)
}

// Merge applies patches to the object in b, and returns b itself if b does not begin with a
// complete object. The members without a patch stay byte for byte. A key that occurs more than once
// gets the patch each time, because readers differ in which occurrence counts.
func Merge(b []byte, ps ...Patch) []byte {
	cuts, _ := merge(nil, b, SkipSpace(b, 0), ps)
	return Replace(b, cuts...)
}

// merge adds the cuts that apply patches to the object at b[at:]. It reports false, and
// adds nothing, if there is no complete object.
func merge(cuts []Cut, b []byte, at int, ps []Patch) ([]Cut, bool) {
	w, ok := Object(b, at)
	if !ok {
		return cuts, false
	}
	before := len(cuts)
	done := make([]bool, len(ps))
	last, kept := at+1, 0 // the end of the part that was read; the number of members that stay
	for w.Next() {
		i := slices.IndexFunc(ps, func(p Patch) bool { return w.Is(p.Key) })
		switch {
		case i >= 0 && ps[i].Drop:
			cuts = append(cuts, Cut{Span{last, w.Val.To}, nil})
		case kept == 0 && last > at+1: // all members before are removed, so the comma must go, too
			cuts = append(cuts, Cut{Span{last, w.Key.From}, nil})
		}
		if i < 0 || !ps[i].Drop {
			kept++
		}
		if i >= 0 {
			done[i] = true
			cuts = change(cuts, b, w.Val, &ps[i])
		}
		last = w.Val.To
	}
	if !w.Ended() {
		return cuts[:before], false
	}
	var more []byte
	for i, p := range ps {
		if !done[i] && p.adds() {
			if kept > 0 || len(more) > 0 {
				more = append(more, ',')
			}
			more = p.append(more)
		}
	}
	if len(more) > 0 {
		cuts = append(cuts, Cut{Span{last, last}, more})
	}
	return cuts, true
}

// change adds the cuts that apply p to a value.
func change(cuts []Cut, b []byte, at Span, p *Patch) []Cut {
	switch old := at.Of(b); {
	case p.Drop:
	case p.Value != nil:
		cuts = append(cuts, Cut{at, p.Value})
	case old[0] == '{':
		cuts, _ = merge(cuts, b, at.From, p.Members)
	case string(old) == "null" && p.adds():
		cuts = append(cuts, Cut{at, appendMembers(nil, p.Members)})
	}
	return cuts
}

// adds reports whether the patch adds its member to an object without that member.
func (p *Patch) adds() bool {
	return p.Value != nil || slices.ContainsFunc(p.Members, func(m Patch) bool { return m.adds() })
}

// append appends the member.
func (p *Patch) append(b []byte) []byte {
	b = append(append(append(b, '"'), p.Key...), '"', ':')
	if p.Value != nil {
		return append(b, p.Value...)
	}
	return appendMembers(b, p.Members)
}

// appendMembers appends an object with the members that patches add.
func appendMembers(b []byte, ps []Patch) []byte {
	b = append(b, '{')
	first := true
	for _, p := range ps {
		if !p.adds() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = p.append(b), false
	}
	return append(b, '}')
}

// Lookup returns the value at a path of keys, one for each nested object. at is the span of the
// outermost object. If a key occurs more than once, the last occurrence counts, as for most readers.
func Lookup(b []byte, at Span, keys ...string) (Span, bool) {
	for _, key := range keys {
		w, ok := Object(b, at.From)
		if at.Absent() || !ok {
			return Span{}, false
		}
		var found Span
		for w.Next() {
			if w.Is(key) {
				found = w.Val
			}
		}
		if found.Absent() || !w.Ended() {
			return Span{}, false
		}
		at = found
	}
	return at, true
}

// Without returns object without the members that have one of the keys. The other members are
// unchanged, and the members of the patches in more follow them. Without reports false if object is
// not exactly one object.
func Without(object []byte, keys []string, more ...Patch) ([]byte, bool) {
	w, ok := Object(object, SkipSpace(object, 0))
	if !ok {
		return nil, false
	}
	out := append(make([]byte, 0, len(object)+64), '{')
	separate := func() {
		if len(out) > 1 {
			out = append(out, ',')
		}
	}
	for w.Next() {
		if slices.ContainsFunc(keys, w.Is) {
			continue
		}
		separate()
		out = append(out, object[w.Key.From:w.Val.To]...)
	}
	for _, p := range more {
		separate()
		out = p.append(out)
	}
	return append(out, '}'), w.reachedEnd()
}
