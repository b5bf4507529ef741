package jsonline

import "bytes"

// Head keeps the id and the method of an object that is too long to be held, or
// malformed, so that it can still be answered. The caller passes the parts of the object to Feed
// as they come. Head is as lenient as Walker.
type Head struct {
	Size int // bytes so far

	at           Brackets
	key          []byte  // the last key at depth 1, with its quotes
	inValue      bool    // the colon after key was read
	id, method   []byte  // raw, as far as they were kept
	ids, methods int     // how many ids and methods were read
	into         *[]byte // &id or &method, while its value is read
	foreign      bool    // an array begins outside an object: the line is a batch, or not JSON
}

// HeadOf returns the Head of a whole line.
func HeadOf(line []byte) *Head {
	h := &Head{}
	h.Feed(line)
	return h
}

// Feed reads the next part.
func (h *Head) Feed(part []byte) {
	h.Size += len(part)
	for i := 0; i < len(part); i++ {
		kept := h.keeps()
		if h.at.quoted && !h.at.escaped && !kept {
			n := bytes.IndexAny(part[i:], `"\`)
			if n < 0 {
				return
			}
			i += n
		}
		c := part[i]
		switch top := h.at.Depth == 1 && !h.at.quoted; {
		case top && c == ':' && !h.inValue:
			h.begin()
			continue
		case top && c == ',':
			h.inValue, h.into = false, nil
			continue
		case top && c == '"' && !h.inValue:
			h.key = h.key[:0]
		case h.at.Depth == 0 && !h.at.quoted && c == '[':
			h.foreign = true
		}
		h.at.Step(c)
		if kept && h.at.Depth > 0 || h.keeps() {
			h.keep(c)
		}
		if h.at.Depth == 0 {
			h.inValue, h.into = false, nil
		}
	}
}

// begin begins a value at depth 1.
func (h *Head) begin() {
	h.inValue = true
	switch string(Unquote(h.key)) {
	case "id":
		h.ids++
		h.id, h.into = h.id[:0], &h.id
	case "method":
		h.methods++
		h.method, h.into = h.method[:0], &h.method
	}
}

// keeps reports whether the bytes being read are kept: those of a key, the id or the
// method.
func (h *Head) keeps() bool {
	return h.at.Depth == 1 && (h.inValue && h.into != nil || !h.inValue && h.at.quoted)
}

func (h *Head) keep(c byte) {
	into := &h.key
	if h.inValue {
		into = h.into
	}
	if len(*into) <= longestID {
		*into = append(*into, c)
	}
}

// IsCall reports whether the object has a method: it is a request or a notification.
func (h *Head) IsCall() bool { return h.methods > 0 }

// ID returns the id, raw, if there is exactly one id and it can be answered (see Answerable).
func (h *Head) ID() []byte {
	id := bytes.TrimSpace(h.id)
	if h.foreign || h.ids != 1 || len(h.id) > longestID || !Answerable(id) {
		return nil
	}
	return id
}

// Request returns the id and the method of a request. Both are empty if either is missing or
// ambiguous.
func (h *Head) Request() (id []byte, method string) {
	method = string(Unquote(bytes.TrimSpace(h.method)))
	if id = h.ID(); id == nil || h.methods != 1 || len(h.method) > longestID || method == "" {
		return nil, ""
	}
	return id, method
}

// Brackets follows the brackets and strings of a text that comes in parts.
type Brackets struct {
	Depth           int // how many brackets are open
	quoted, escaped bool
}

// Step takes the next byte.
func (b *Brackets) Step(c byte) {
	switch {
	case b.escaped:
		b.escaped = false
	case b.quoted:
		b.escaped, b.quoted = c == '\\', c != '"'
	case c == '"':
		b.quoted = true
	case c == '{' || c == '[':
		b.Depth++
	case c == '}' || c == ']':
		b.Depth--
	}
}
