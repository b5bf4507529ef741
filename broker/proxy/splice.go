package proxy

import (
	"bytes"
	"slices"
)

// patch is what one member of an object is to be: a value, or an object that has
// these members, whatever else it has.
type patch struct {
	key   string // without characters that need an escape
	value []byte // raw; nil: members counts
	drop  bool   // the member is to be gone
	// members go into what is there. What is null, or not there, is made; what is
	// another value than an object stays, because its meaning is not ours to guess.
	members []patch
}

// splice changes an object of a line in a few places and leaves every other
// byte.
type splice struct {
	b    []byte
	cuts []cut // ascending
}

// cut replaces b[from:to].
type cut struct {
	span
	with []byte
}

// merge puts patches into the object at b[at:]. A key that is there more than
// once gets the patch each time, because readers differ in which one counts. It
// reports false for what is no object, which then stays as it is.
func (s *splice) merge(at int, ps []patch) bool {
	l, ok := open(s.b, at)
	if !ok || l.array {
		return false
	}
	before := len(s.cuts)
	done := make([]bool, len(ps))
	last, kept := at+1, 0 // the end of what was read; members that stay
	for l.next() {
		i := slices.IndexFunc(ps, func(p patch) bool { return l.is(p.key) })
		switch {
		case i >= 0 && ps[i].drop:
			s.cuts = append(s.cuts, cut{span{last, l.val.to}, nil})
		case kept == 0 && last > at+1: // those before it are gone, and so is its comma
			s.cuts = append(s.cuts, cut{span{last, l.key.from}, nil})
		}
		if i < 0 || !ps[i].drop {
			kept++
		}
		if i >= 0 {
			done[i] = true
			s.change(l.val, &ps[i])
		}
		last = l.val.to
	}
	if !l.closed {
		s.cuts = s.cuts[:before]
		return false
	}
	var more []byte
	for i, p := range ps {
		if !done[i] && p.adds() {
			if kept > 0 || len(more) > 0 {
				more = append(more, ',')
			}
			more = p.encode(more)
		}
	}
	if len(more) > 0 {
		s.cuts = append(s.cuts, cut{span{last, last}, more})
	}
	return true
}

// change makes a value what p says.
func (s *splice) change(at span, p *patch) {
	switch old := at.of(s.b); {
	case p.drop:
	case p.value != nil:
		s.cuts = append(s.cuts, cut{at, p.value})
	case old[0] == '{':
		s.merge(at.from, p.members)
	case string(old) == "null" && p.adds():
		s.cuts = append(s.cuts, cut{at, encode(nil, p.members)})
	}
}

// adds reports whether there is something of the patch where there was nothing.
func (p *patch) adds() bool {
	return p.value != nil || slices.ContainsFunc(p.members, func(m patch) bool { return m.adds() })
}

// bytes returns the line with its changes, b itself if there are none.
func (s *splice) bytes() []byte {
	if len(s.cuts) == 0 {
		return s.b
	}
	n := len(s.b)
	for _, c := range s.cuts {
		n += len(c.with)
	}
	out := make([]byte, 0, n)
	from := 0
	for _, c := range s.cuts {
		out = append(append(out, s.b[from:c.from]...), c.with...)
		from = c.to
	}
	return append(out, s.b[from:]...)
}

// encode appends an object of what patches add.
func encode(b []byte, ps []patch) []byte {
	b = append(b, '{')
	first := true
	for _, p := range ps {
		if !p.adds() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = p.encode(b), false
	}
	return append(b, '}')
}

// encode appends the member.
func (p *patch) encode(b []byte) []byte {
	b = append(append(append(b, '"'), p.key...), '"', ':')
	if p.value != nil {
		return append(b, p.value...)
	}
	return encode(b, p.members)
}

// replaced returns b with other bytes at one place.
func replaced(b []byte, at span, with []byte) []byte {
	s := splice{b: b, cuts: []cut{{at, with}}}
	return s.bytes()
}

// lookup returns the value of a member of an object, and of that one's member,
// and so on. Of a key that is there more than once the last counts, as for most
// readers.
func lookup(b []byte, at span, keys ...string) (span, bool) {
	for _, key := range keys {
		l, ok := open(b, at.from)
		if at.absent() || !ok || l.array {
			return span{}, false
		}
		var found span
		for l.next() {
			if l.is(key) {
				found = l.val
			}
		}
		if found.absent() || !l.closed {
			return span{}, false
		}
		at = found
	}
	return at, true
}

// without returns an object with some members left out, others as they came, and
// more at its end.
func without(object []byte, keys []string, more ...patch) ([]byte, bool) {
	l, ok := open(object, blank(object, 0))
	if !ok || l.array {
		return nil, false
	}
	out := append(make([]byte, 0, len(object)+64), '{')
	member := func() {
		if len(out) > 1 {
			out = append(out, ',')
		}
	}
	for l.next() {
		if slices.ContainsFunc(keys, l.is) {
			continue
		}
		member()
		out = append(out, object[l.key.from:l.val.to]...)
	}
	for _, p := range more {
		member()
		out = p.encode(out)
	}
	return append(out, '}'), l.closed && len(bytes.TrimSpace(object[l.i:])) == 0
}
