package proxy

import "bytes"

// skim reads an object that is too long to be held, in parts as they come, and
// keeps of it what tells whom to answer. It is as lenient as list.
type skim struct {
	size     int // bytes so far
	depth    int
	inString bool
	escaped  bool
	key      []byte // the last at depth 1, with its quotes
	valued   bool   // past the colon behind it
	id       []byte // raw, as far as it was kept
	ids      int
	inID     bool // the value being read is the id's
	method   bool // a request, then, or a notification
	foreign  bool // no object: a batch, or no JSON
}

// keepSmall is the longest key or id that is kept, bytes; the protocol's are
// shorter, and longer ones are not told.
const keepSmall = 1 << 10

// feed reads on.
func (s *skim) feed(part []byte) {
	s.size += len(part)
	for i := 0; i < len(part); i++ {
		c := part[i]
		switch {
		case s.inString:
			if !s.escaped && !s.keeps() {
				n := bytes.IndexAny(part[i:], `"\`)
				if n < 0 {
					return
				}
				i += n
				c = part[i]
			}
			s.keep(c)
			switch {
			case s.escaped:
				s.escaped = false
			case c == '\\':
				s.escaped = true
			case c == '"':
				s.inString = false
			}
		case c == '"':
			s.inString = true
			if s.depth == 1 && !s.valued {
				s.key = s.key[:0]
			}
			s.keep(c)
		case c == '{' || c == '[':
			s.foreign = s.foreign || s.depth == 0 && c == '['
			s.keep(c)
			s.depth++
		case c == '}' || c == ']':
			s.depth--
			s.keep(c)
		case s.depth == 1 && c == ':' && !s.valued:
			s.begin()
		case s.depth == 1 && c == ',':
			s.valued, s.inID = false, false
		default:
			s.keep(c)
		}
	}
}

// begin begins a value at depth 1.
func (s *skim) begin() {
	s.valued = true
	switch string(meant(s.key)) {
	case "id":
		s.ids++
		s.id, s.inID = s.id[:0], true
	case "method":
		s.method = true
	}
}

// keeps reports whether what is read is to be kept: a key, or the id.
func (s *skim) keeps() bool {
	if s.valued {
		return s.depth == 1 && s.inID
	}
	return s.depth == 1 && s.inString
}

func (s *skim) keep(c byte) {
	switch {
	case !s.keeps():
	case !s.valued && len(s.key) < keepSmall:
		s.key = append(s.key, c)
	case s.valued && len(s.id) < keepSmall:
		s.id = append(s.id, c)
	}
}

// answerable returns the id, raw, if there is exactly one that can be answered.
func (s *skim) answerable() []byte {
	id := bytes.TrimSpace(s.id)
	if s.foreign || s.ids != 1 || len(s.id) >= keepSmall || !answerable(id) {
		return nil
	}
	return id
}

// answerable reports whether an id is a string or a number.
func answerable(id []byte) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}
