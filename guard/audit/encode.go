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
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard"
)

// Limits of text, in bytes as written, escapes included. A server chooses the paths that it
// asks for, but must not be able to make the log grow fast. A line stays below 32 KiB.
// Raw paths are limited before they are encoded in base64.
const (
	maxPathText   = 4 << 10
	maxRawPath    = 4 << 10 // PATH_MAX
	maxDetailText = 6 << 10
	maxNameText   = 1 << 10
	maxLine       = 2 << 20 // of any line read; earlier versions wrote up to 1 MiB
)

// formatVersion is the header's "format". It changes when a reader of the old format would
// misunderstand a line, or when a reader of the new one would miss a field in old lines.
// Files of every earlier format stay readable: factsFormat is the first with guard.Facts.
const (
	factsFormat   = 2
	formatVersion = 2
)

const hashLen = sha256.Size

const (
	// fixedBound is more than a line needs apart from its texts: keys, numbers, words and
	// hashes.
	fixedBound = 1 << 10
	// textGrowth is how many bytes one byte of text can become: an escape has six.
	textGrowth = 6
)

// lineBound returns how long the line of r can be at most.
func lineBound(session string, r *guard.Record) int64 {
	n := fixedBound + textBound(r.Detail, maxDetailText)
	if r.Facts != (guard.Facts{}) {
		for _, f := range factTexts(&r.Facts) {
			n += textBound(f.text, f.limit)
		}
	}
	for _, name := range []string{session, string(r.Subject), string(r.Path.Root), string(r.Path2.Root)} {
		n += textBound(name, maxNameText)
	}
	for _, rel := range []string{r.Path.Rel(), r.Path2.Rel()} {
		n += textBound(rel, maxPathText) + base64.StdEncoding.EncodedLen(min(len(rel), maxRawPath))
	}
	return int64(n)
}

// reservation returns the room needed for the record of an operation. r has the fields known
// so far. If links lead elsewhere, the path that was asked for is added to the detail later.
func reservation(session string, r *guard.Record) int64 {
	n := lineBound(session, r) + 512
	if r.Via != guard.ViaFUSE {
		// Links are followed for these callers: the record then names both paths.
		n += 2 * (maxPathText + maxRawPath)
	}
	return n
}

// factText is a text of a guard.Facts, and how it is written.
type factText struct {
	field, text string
	limit       int
	// isPath: a part of the text would name another file, so the text is never cut: it is
	// written completely or not at all.
	isPath bool
}

// factTexts returns the texts of f that may name a path or a host.
func factTexts(f *guard.Facts) [13]factText {
	return [...]factText{
		{"dir", f.Dir, maxPathText, true},
		{"origin", f.Origin, maxNameText, false},
		{"rule", f.Rule, maxNameText, false},
		{"rule_from", f.RuleFrom, maxNameText, true},
		{"point", f.Point, maxPathText, true},
		{"host", f.Host, maxNameText, false},
		{"server_name", f.ServerName, maxNameText, false},
		{"program", f.Program, maxPathText, true},
		{"reason", f.Reason, maxNameText, false},
		{"secret", f.Secret, maxNameText, false},
		{"method", f.Method, maxNameText, false},
		{"url_path", f.URLPath, maxNameText, false},
		{"secret_rule", f.SecretRule, maxNameText, true},
	}
}

func textBound(s string, limit int) int { return min(textGrowth*len(s), limit) }

// mark is a place in the chain: a line's number and hash. The zero mark is the
// place before line 1.
type mark struct {
	seq  uint64
	hash [hashLen]byte
}

// encoder turns records into chained lines. It keeps the chain's end and its
// buffer, so its methods must not run concurrently; the lines they return are valid
// until the next call. Its methods named after kinds of fields append a field to the present
// line.
type encoder struct {
	session string
	paths   PathMode
	mac     hash.Hash // of PathsHash
	last    mark
	b       []byte // the previous hash's bytes, then the present line
	cut     bool   // text of the present line was cut
}

func newEncoder(session string, paths PathMode, key []byte, last mark) *encoder {
	e := &encoder{session: session, paths: paths, last: last, b: make([]byte, 0, 1024)}
	if paths == PathsHash {
		e.mac = hmac.New(sha256.New, key)
	}
	return e
}

// begin begins a line.
func (e *encoder) begin(t time.Time) {
	e.cut = false
	e.b = append(e.b[:0], e.last.hash[:]...)
	e.b = append(e.b, `{"seq":`...)
	e.b = strconv.AppendUint(e.b, e.last.seq+1, 10)
	e.time("time", t)
	e.text("session", e.session, maxNameText)
}

// seal ends the line with prev and hash and advances the chain. The hash is
// over the whole of e.b so far, because that begins with the previous hash's bytes.
func (e *encoder) seal() []byte {
	if e.cut {
		e.b = append(e.b, `,"truncated":true`...)
	}
	e.hex("prev", e.last.hash[:])
	e.last.hash = sha256.Sum256(e.b)
	e.last.seq++
	e.hex("hash", e.last.hash[:])
	e.b = append(e.b, "}\n"...)
	return e.b[hashLen:]
}

// item returns the line of an item.
func (e *encoder) item(it *item) []byte {
	r, op := &it.rec, it.rec.Op.String()
	if it.sum != nil {
		op = opSummed
	}
	t := r.Time
	if t.IsZero() {
		t = time.Now()
	}
	e.begin(t)
	e.text("subject", string(r.Subject), maxNameText)
	e.word("via", r.Via.String())
	// The kernel reports the uid and pid of a caller through FUSE, so uid 0 means root there.
	if r.Via == guard.ViaFUSE || r.UID != 0 || r.PID != 0 {
		e.key("uid")
		e.b = strconv.AppendUint(e.b, uint64(r.UID), 10)
		e.number("pid", int64(r.PID))
	}
	e.word("op", op)
	e.text("root", string(r.Path.Root), maxNameText)
	e.path("path", r.Path)
	if r.Path2.Root != r.Path.Root {
		e.text("root2", string(r.Path2.Root), maxNameText)
	}
	e.path("path2", r.Path2)
	if r.Rights != 0 {
		e.word("rights", rightsText(r.Rights))
	}
	e.word("verdict", r.Verdict.String())
	if r.Verdict != guard.Allowed || r.Kind != 0 {
		e.word("kind", r.Kind.String())
	}
	if r.Errno != 0 {
		e.word("errno", errnoText(r.Errno))
		e.number("errno_number", int64(r.Errno))
	}
	e.number("read", r.Read)
	e.number("written", r.Written)
	e.number("duration_us", r.Duration.Microseconds())
	e.facts(&r.Facts)
	e.detail(r.Detail)
	if it.count > 1 || it.sum != nil {
		e.number("count", it.count)
		e.time("last", it.last)
	}
	e.number("closed", it.closed)
	if it.sum != nil {
		e.counts("kinds", it.sum.kinds)
		e.counts("ops", it.sum.ops)
	}
	return e.seal()
}

// header returns the first line of a file: its name, the first line that was not pruned, and
// the anchor a as Open found it. a is nil if there was none, and for a continuation.
func (e *encoder) header(t time.Time, file string, keptFrom uint64, a *anchor) []byte {
	e.begin(t)
	e.word("op", opSession)
	e.number("format", formatVersion)
	e.text("file", file, maxNameText)
	e.word("paths", e.paths.String())
	e.number("kept_from", int64(keptFrom))
	if a != nil {
		e.number("anchor_seq", int64(a.Count))
		e.text("anchor_hash", a.Hash, maxNameText)
		e.text("anchor_session", a.Session, maxNameText)
	}
	return e.seal()
}

// lost returns the line that says how many records the log did not accept.
func (e *encoder) lost(t time.Time, n uint64) []byte {
	e.begin(t)
	e.word("op", opLost)
	e.number("lost", int64(n))
	return e.seal()
}

// Operations of this package's own lines; no guard.Op has these names.
const (
	opSession = "session"
	opLost    = "lost"
	opSummed  = "summed"
)

// path writes a path, unless it is the root itself.
func (e *encoder) path(field string, p guard.Path) {
	rel := p.Rel()
	switch {
	case rel == "":
	case e.paths == PathsHash:
		e.hashed(field+"_hash", string(p.Root), rel)
	case e.paths == PathsFull:
		long := !e.text(field, rel, maxPathText)
		if !utf8.ValidString(rel) || long && len(rel) <= maxRawPath {
			e.key("raw_" + field)
			e.b = append(e.b, '"')
			e.b = base64.StdEncoding.AppendEncode(e.b, []byte(rel[:min(len(rel), maxRawPath)]))
			e.b = append(e.b, '"')
		}
		if long {
			sum := sha256.Sum256([]byte(rel))
			e.hex(field+"_sha256", sum[:])
		}
	}
}

// facts writes the facts that the record has. Facts that may contain a path or a host, and the
// numbers that belong to them, are written only if paths are written in full.
func (e *encoder) facts(f *guard.Facts) {
	if *f == (guard.Facts{}) {
		return // most records have none
	}
	e.text("effect", f.Effect, maxNameText)
	e.text("level", f.Level, maxNameText)
	e.text("cause", f.Cause, maxNameText)
	if f.NoRule {
		e.key("no_rule")
		e.b = append(e.b, "true"...)
	}
	if e.paths != PathsFull {
		return
	}
	for _, t := range factTexts(f) {
		before := len(e.b)
		if isWhole := e.text(t.field, t.text, t.limit) && utf8.ValidString(t.text); t.isPath && !isWhole {
			e.b, e.cut = e.b[:before], true
		}
	}
	e.number("rule_line", int64(f.RuleLine))
	e.number("port", int64(f.Port))
	e.number("status", int64(f.Status))
}

// detail writes free text if paths are written in full, and its hash if paths are hashed. Details
// of grants contain paths of the host, and code cannot tell where in the text they are.
func (e *encoder) detail(s string) {
	switch {
	case e.paths == PathsFull:
		e.text("detail", s, maxDetailText)
	case e.paths == PathsHash && s != "":
		e.hashed("detail_hash", "", s)
	}
}

// hashed writes the first 16 hexadecimal digits of HMAC-SHA256(key, root NUL s).
func (e *encoder) hashed(field, root, s string) {
	var sum [hashLen]byte
	e.mac.Reset()
	e.mac.Write([]byte(root))
	e.mac.Write([]byte{0})
	e.mac.Write([]byte(s))
	e.hex(field, e.mac.Sum(sum[:0])[:8])
}

// key writes the name of a field.
func (e *encoder) key(field string) {
	e.b = append(e.b, `,"`...)
	e.b = append(e.b, field...)
	e.b = append(e.b, `":`...)
}

// word writes a value that needs no escaping.
func (e *encoder) word(field, value string) {
	e.key(field)
	e.b = append(e.b, '"')
	e.b = append(e.b, value...)
	e.b = append(e.b, '"')
}

// number writes a number unless it is 0.
func (e *encoder) number(field string, n int64) {
	if n != 0 {
		e.key(field)
		e.b = strconv.AppendInt(e.b, n, 10)
	}
}

func (e *encoder) time(field string, t time.Time) {
	e.key(field)
	e.b = append(e.b, '"')
	e.b = t.UTC().AppendFormat(e.b, time.RFC3339Nano)
	e.b = append(e.b, '"')
}

func (e *encoder) hex(field string, value []byte) {
	e.key(field)
	e.b = append(e.b, '"')
	e.b = hex.AppendEncode(e.b, value)
	e.b = append(e.b, '"')
}

// counts writes an object of numbers, such as how many refusals there were of each kind.
func (e *encoder) counts(field string, n map[string]int64) {
	e.key(field)
	before := byte('{')
	for _, word := range slices.Sorted(maps.Keys(n)) {
		e.b = append(e.b, before, '"')
		before = ','
		e.b = append(e.b, word...)
		e.b = append(e.b, `":`...)
		e.b = strconv.AppendInt(e.b, n[word], 10)
	}
	e.b = append(e.b, '}')
}

// text writes text unless it is empty, and reports whether all of it fits in limit bytes.
func (e *encoder) text(field, s string, limit int) bool {
	if s == "" {
		return true
	}
	e.key(field)
	var n int
	e.b, n = appendText(e.b, s, limit)
	e.cut = e.cut || n < len(s)
	return n == len(s)
}

// appendText appends s as a JSON string. Printable characters stay as they are. Those that
// break a line, are invisible or change the direction of text are escaped. Bytes that are not
// UTF-8 become U+FFFD. appendText writes at most limit bytes between the quotes, and returns
// how many bytes of s they stand for.
func appendText(b []byte, s string, limit int) ([]byte, int) {
	b = append(b, '"')
	end := len(b) + limit
	start, i := 0, 0 // s[start:i] needs no escaping and is not appended yet
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf && plainASCII[c] && len(b)+i-start < end {
			i++ // most bytes need no escape
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if isPlain(r) && (r != utf8.RuneError || n > 1) {
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

// isPlain reports whether a rune is written without an escape.
func isPlain(r rune) bool {
	if r < utf8.RuneSelf {
		return plainASCII[r]
	}
	return unicode.IsPrint(r) && !unicode.Is(unicode.Cf, r)
}

// plainASCII has the ASCII characters that are written without an escape.
var plainASCII = func() (t [utf8.RuneSelf]bool) {
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

// rightsTexts has the texts of rights, so that not every record calls Rights.String, which joins
// words.
var rightsTexts = sync.OnceValue(func() *[256]string {
	var t [256]string
	for i := range t {
		t[i] = guard.Rights(i).String()
	}
	return &t
})

func rightsText(r guard.Rights) string {
	if t := rightsTexts(); int(r) < len(t) {
		return t[r]
	}
	return r.String()
}

// errnoText returns the errno's name, as in "EROFS".
func errnoText(errno syscall.Errno) string {
	if name := errnoName(errno); name != "" {
		return name
	}
	return "errno " + strconv.Itoa(int(errno))
}
