package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard"
)

// Limits of text, in bytes as written, escapes included: who is refused chooses
// the path, and must not choose how fast the log grows. A record stays below
// 32 KiB. Raw paths are limited before they become base64.
const (
	maxPathText   = 4 << 10
	maxRawPath    = 4 << 10 // PATH_MAX
	maxDetailText = 8 << 10
	maxNameText   = 1 << 10
	maxLine       = 2 << 20 // of any line read; earlier versions wrote up to 1 MiB
)

// formatVersion is the header's "format". It changes when a reader of the old
// format would misunderstand a line.
const formatVersion = 1

const hashLen = sha256.Size

const (
	// fixedBound is more than the line of any record needs beside its text: keys,
	// numbers, words and hashes.
	fixedBound = 1 << 10
	// textGrowth is how many bytes one byte of text can become: an escape has six.
	textGrowth = 6
)

// lineBound is how long the line of r can be at most.
func lineBound(session string, r *guard.Record) int64 {
	n := fixedBound + textBound(r.Detail, maxDetailText)
	for _, name := range []string{session, string(r.Subject), string(r.Path.Root), string(r.Path2.Root)} {
		n += textBound(name, maxNameText)
	}
	for _, rel := range []string{r.Path.Rel(), r.Path2.Rel()} {
		n += textBound(rel, maxPathText) + base64.StdEncoding.EncodedLen(min(len(rel), maxRawPath))
	}
	return int64(n)
}

// reservation is the room of an operation whose record is r as far as it is
// known: its detail may yet say where links led, and from where.
func reservation(session string, r *guard.Record) int64 {
	n := lineBound(session, r) + 512
	if r.Via != guard.ViaFUSE {
		// Links are followed for these callers: the record then names both paths.
		n += 2 * (maxPathText + maxRawPath)
	}
	return n
}

func textBound(s string, limit int) int { return min(textGrowth*len(s), limit) }

// mark is a place in the chain: a line's number and hash. The zero mark is the
// place before line 1.
type mark struct {
	seq  uint64
	hash [hashLen]byte
}

// header is what the first line of a file tells, beside time and session.
type header struct {
	file     string
	keptFrom uint64
	anchor   *anchor // as Open found it; nil: there was none
}

// encoder turns records into chained lines. It keeps the chain's end and its
// buffers, so its methods must not run concurrently; what they return is valid
// until the next call.
type encoder struct {
	session string // for headers
	prefix  []byte // ,"session":"NAME"
	paths   PathMode
	mac     hash.Hash // of PathsHash
	last    mark
	buf     []byte // the previous hash's bytes, then the line
	cut     bool   // text of the line at hand was cut
}

func newEncoder(session string, paths PathMode, key []byte, last mark) *encoder {
	e := &encoder{session: session, paths: paths, last: last, buf: make([]byte, 0, 1024)}
	e.prefix = e.text(append(e.prefix, `,"session":`...), session, maxNameText)
	if paths == PathsHash {
		e.mac = hmac.New(sha256.New, key)
	}
	return e
}

func (e *encoder) begin(t time.Time) []byte {
	e.cut = false
	b := append(e.buf[:0], e.last.hash[:]...)
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.last.seq+1, 10)
	b = append(b, `,"time":"`...)
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	return append(b, e.prefix...)
}

// seal ends the line with prev and hash and advances the chain. The hash is
// over the whole of b so far, because b begins with the previous hash's bytes.
func (e *encoder) seal(b []byte) []byte {
	if e.cut {
		b = append(b, `,"truncated":true`...)
	}
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, e.last.hash[:])
	b = append(b, '"')
	e.last.hash = sha256.Sum256(b)
	e.last.seq++
	b = append(b, `,"hash":"`...)
	b = hex.AppendEncode(b, e.last.hash[:])
	b = append(b, '"', '}', '\n')
	e.buf = b
	return b[hashLen:]
}

// fields is the beginning of the line of r, up to what item adds.
func (e *encoder) fields(r *guard.Record, op string) []byte {
	t := r.Time
	if t.IsZero() {
		t = time.Now()
	}
	b := e.begin(t)
	if r.Subject != "" {
		b = e.text(append(b, `,"subject":`...), string(r.Subject), maxNameText)
	}
	b = word(b, "via", r.Via.String())
	// The kernel names every caller's uid and pid, and 0 is a uid of weight.
	if r.Via == guard.ViaFUSE || r.UID != 0 || r.PID != 0 {
		b = append(b, `,"uid":`...)
		b = strconv.AppendUint(b, uint64(r.UID), 10)
		b = number(b, "pid", int64(r.PID))
	}
	b = word(b, "op", op)
	b = e.places(b, r)
	if r.Rights != 0 {
		b = word(b, "rights", rightsText(r.Rights))
	}
	b = word(b, "verdict", r.Verdict.String())
	if r.Verdict != guard.Allowed || r.Kind != 0 {
		b = word(b, "kind", r.Kind.String())
	}
	if r.Errno != 0 {
		b = word(b, "errno", errnoText(r.Errno))
		b = number(b, "errno_number", int64(r.Errno))
	}
	b = number(b, "read", r.Read)
	b = number(b, "written", r.Written)
	b = number(b, "duration_us", r.Duration.Microseconds())
	if r.Detail != "" {
		b = e.detail(b, r.Detail)
	}
	return b
}

// item is the line of an item: a record with what was folded into it, or a sum.
func (e *encoder) item(it *item) []byte {
	op := it.rec.Op.String()
	if it.sum != nil {
		op = opSummed
	}
	b := e.fields(&it.rec, op)
	if it.count > 1 || it.sum != nil {
		b = number(b, "count", it.count)
		b = append(key(b, "last", ""), '"')
		b = it.last.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	b = number(b, "closed", it.closed)
	if it.sum != nil {
		b = counts(b, "kinds", it.sum.kinds)
		b = counts(b, "ops", it.sum.ops)
	}
	return e.seal(b)
}

// counts writes a field that says how many there were of what. The words need no
// escaping.
func counts(b []byte, field string, n map[string]int64) []byte {
	b = append(key(b, field, ""), '{')
	for i, word := range slices.Sorted(maps.Keys(n)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, word...)
		b = append(b, '"', ':')
		b = strconv.AppendInt(b, n[word], 10)
	}
	return append(b, '}')
}

// places writes root and path, and those of the second path. The second root
// is omitted when it is the first.
func (e *encoder) places(b []byte, r *guard.Record) []byte {
	if r.Path.Root != "" {
		b = e.text(append(b, `,"root":`...), string(r.Path.Root), maxNameText)
	}
	b = e.path(b, "path", r.Path)
	if r.Path2.Root != "" && r.Path2.Root != r.Path.Root {
		b = e.text(append(b, `,"root2":`...), string(r.Path2.Root), maxNameText)
	}
	return e.path(b, "path2", r.Path2)
}

func (e *encoder) path(b []byte, field string, p guard.Path) []byte {
	rel := p.Rel()
	if rel == "" {
		return b
	}
	switch e.paths {
	case PathsFull:
		var n int
		b, n = appendText(key(b, field, ""), rel, maxPathText)
		long := n < len(rel)
		e.cut = e.cut || long
		if !utf8.ValidString(rel) || long && len(rel) <= maxRawPath {
			b = append(key(b, "raw_", field), '"')
			raw := rel[:min(len(rel), maxRawPath)]
			b = base64.StdEncoding.AppendEncode(b, []byte(raw))
			b = append(b, '"')
		}
		if long {
			sum := sha256.Sum256([]byte(rel))
			b = append(key(b, field, "_sha256"), '"')
			b = hex.AppendEncode(b, sum[:])
			b = append(b, '"')
		}
	case PathsHash:
		b = e.hashed(key(b, field, "_hash"), string(p.Root), rel)
	}
	return b
}

// detail keeps free text out of the log when paths are kept out: details of
// grants hold host paths, and nothing can tell which words of a text are one.
func (e *encoder) detail(b []byte, s string) []byte {
	switch e.paths {
	case PathsFull:
		return e.text(append(b, `,"detail":`...), s, maxDetailText)
	case PathsHash:
		return e.hashed(append(b, `,"detail_hash":`...), "", s)
	}
	return b
}

// hashed is the first 16 hexadecimal digits of HMAC-SHA256(key, root NUL s).
func (e *encoder) hashed(b []byte, root, s string) []byte {
	var sum [hashLen]byte
	e.mac.Reset()
	e.mac.Write([]byte(root))
	e.mac.Write([]byte{0})
	e.mac.Write([]byte(s))
	b = append(b, '"')
	b = hex.AppendEncode(b, e.mac.Sum(sum[:0])[:8])
	return append(b, '"')
}

// header is the first line of a file.
func (e *encoder) header(t time.Time, h header) []byte {
	b := word(e.begin(t), "op", opSession)
	b = number(b, "format", formatVersion)
	b = e.text(append(b, `,"file":`...), h.file, maxNameText)
	b = word(b, "paths", e.paths.String())
	b = number(b, "kept_from", int64(h.keptFrom))
	if h.anchor != nil {
		b = number(b, "anchor_seq", int64(h.anchor.Count))
		b = e.text(append(b, `,"anchor_hash":`...), h.anchor.Hash, maxNameText)
		b = e.text(append(b, `,"anchor_session":`...), h.anchor.Session, maxNameText)
	}
	return e.seal(b)
}

// lost is the line that says how many records were not taken.
func (e *encoder) lost(t time.Time, n uint64) []byte {
	b := word(e.begin(t), "op", opLost)
	b = number(b, "lost", int64(n))
	return e.seal(b)
}

// Operations of this package's own lines; no guard.Op has these names.
const (
	opSession = "session"
	opLost    = "lost"
	opSummed  = "summed"
)

// key writes the name of a field, made of two parts.
func key(b []byte, first, second string) []byte {
	b = append(b, ',', '"')
	b = append(b, first...)
	b = append(b, second...)
	return append(b, '"', ':')
}

// word writes a field whose value needs no escaping.
func word(b []byte, field, value string) []byte {
	b = append(key(b, field, ""), '"')
	b = append(b, value...)
	return append(b, '"')
}

// number writes a field unless it is 0.
func number(b []byte, field string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(key(b, field, ""), n, 10)
}

// text appends s as a JSON string, and notes if only its beginning fits in limit bytes.
func (e *encoder) text(b []byte, s string, limit int) []byte {
	b, n := appendText(b, s, limit)
	e.cut = e.cut || n < len(s)
	return b
}

// appendText appends s as a JSON string of printable ASCII and printable letters of
// other scripts: what would break a line, or hide or turn text around, is escaped, and
// bytes that are not UTF-8 become U+FFFD. It writes at most limit bytes between the
// quotes, and returns how many bytes of s they stand for.
func appendText(b []byte, s string, limit int) ([]byte, int) {
	b = append(b, '"')
	end := len(b) + limit
	start, i := 0, 0 // s[start:i] needs no escaping and is not appended yet
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf && plain[c] && len(b)+i-start < end {
			i++ // as most bytes are
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if shown(r) && (r != utf8.RuneError || n > 1) {
			if len(b)+i+n-start > end {
				break
			}
			i += n
			continue
		}
		b, start = append(b, s[start:i]...), i
		escaped := appendEscape(b, r)
		if len(escaped) > end {
			break
		}
		b, i = escaped, i+n
		start = i
	}
	b = append(b, s[start:i]...)
	return append(b, '"'), i
}

// shown reports whether a rune is written as it is.
func shown(r rune) bool {
	if r < utf8.RuneSelf {
		return plain[r]
	}
	return unicode.IsPrint(r) && !unicode.Is(unicode.Cf, r)
}

// plain are the bytes a JSON string can hold as they are.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := byte(' '); c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendEscape appends a rune as the escape that JSON has for it.
func appendEscape(b []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r == '\n':
		return append(b, '\\', 'n')
	case r == '\t':
		return append(b, '\\', 't')
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return appendEscape(appendEscape(b, high), low)
	}
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// rightsTexts spares the hot path the join in Rights.String.
var rightsTexts = func() (t [256]string) {
	for i := range t {
		t[i] = guard.Rights(i).String()
	}
	return t
}()

func rightsText(r guard.Rights) string {
	if int(r) < len(rightsTexts) {
		return rightsTexts[r]
	}
	return r.String()
}

// errnoText is the errno's name, as in "EROFS".
func errnoText(errno syscall.Errno) string {
	if name := errnoName(errno); name != "" {
		return name
	}
	return "errno " + strconv.Itoa(int(errno))
}
