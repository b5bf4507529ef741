package tools

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"regexp/syntax"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Bounds of a search in files.
const (
	defaultMatches = 200
	maxMatches     = 10_000
	maxContext     = 20
	// maxSearched is the size of the largest file that is searched, in bytes: the whole file is
	// in memory, because a match may lie anywhere.
	maxSearched = 32 << 20
	// maxShown is how much of a line is shown, in bytes: lines of minified code are megabytes
	// long.
	maxShown = 500
	// maxUnstoppable bounds a search that cannot be stopped half-way: the bytes of the data times
	// the instructions of the pattern. At the worst such a search takes seconds.
	maxUnstoppable = 1 << 28
)

type searchArgs struct {
	Path    string   `json:"path"`
	Pattern *string  `json:"pattern"`
	Exclude []string `json:"excludePatterns"`
	Cursor  string   `json:"cursor"`
}

func (c *call) searchFiles(a *searchArgs) (*result, error) {
	if a.Pattern == nil {
		return nil, missing("pattern")
	}
	match, err := glob("pattern", *a.Pattern)
	if err != nil {
		return nil, err
	}
	exclude, err := globs("excludePatterns", a.Exclude)
	if err != nil {
		return nil, err
	}
	at, err := c.target("path", a.Path)
	if err != nil {
		return nil, err
	}
	w, err := c.walk(at.Path, walkOptions{exclude: exclude, match: match}, a.Cursor)
	if err != nil {
		return nil, err
	}
	var found []byte
	base := c.s.display(at, w.start)
	for v, err := range w.visits() {
		switch {
		case err != nil:
			return nil, err
		case match.Match(v.rel):
			found = append(append(found, validUTF8(base+"/"+v.rel)...), '\n')
		}
		if len(found) >= c.s.cfg.Answer {
			return foundResult(found, c.unread.note(continueNote(w.cursor()))), nil
		}
	}
	return foundResult(found, c.unread.note("")), nil
}

// foundResult returns the result of a search that has found these lines.
func foundResult(lines []byte, note string) *result {
	if len(lines) == 0 {
		return &result{text: "No matches found", note: note}
	}
	return &result{data: bytes.TrimSuffix(lines, []byte("\n")), note: note}
}

type grepArgs struct {
	Path       string   `json:"path"`
	Substring  string   `json:"substring"`
	Regex      string   `json:"regex"`
	IgnoreCase bool     `json:"ignoreCase"`
	Include    string   `json:"include"`
	Exclude    []string `json:"excludePatterns"`
	Context    int      `json:"contextLines"`
	Depth      int      `json:"depth"`
	Max        int      `json:"max_results"`
	Ignore     *bool    `json:"respect_gitignore"`
	Cursor     string   `json:"cursor"`
}

// finder finds matches of a pattern.
type finder struct {
	*regexp.Regexp
	steps int // the greatest number of instructions for one byte
}

// compile compiles a regular expression. It also compiles the expression with package
// regexp/syntax, to learn the number of instructions, which package regexp does not tell.
func compile(text string) (f finder, err error) {
	if f.Regexp, err = regexp.Compile(text); err != nil {
		return f, err
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return f, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return f, err
	}
	f.steps = len(prog.Inst)
	if _, whole := f.LiteralPrefix(); whole {
		f.steps = 1
	}
	return f, nil
}

// find returns the position of the first match in data, nil if there is none, and the error of
// stopped. A search in a slice of bytes cannot be stopped, and could take hours. If a search may
// take long, package regexp therefore gets the data from a reader, and the reader ends the data
// when stopped returns an error.
func (f finder) find(stopped func() error, data []byte) ([]int, error) {
	if len(data) < maxUnstoppable/f.steps {
		return f.FindIndex(data), stopped()
	}
	m := f.FindReaderIndex(&stoppableRunes{Reader: bytes.NewReader(data), stopped: stopped})
	return m, stopped()
}

// stoppableRunes is an io.RuneReader that ends when stopped returns an error.
type stoppableRunes struct {
	*bytes.Reader
	stopped func() error
	n       int
}

// ReadRune implements io.RuneReader.
func (s *stoppableRunes) ReadRune() (r rune, size int, err error) {
	if s.n++; s.n%64 == 0 && s.stopped() != nil {
		return 0, 0, io.EOF
	}
	return s.Reader.ReadRune()
}

// newGrep checks the arguments of a search in files, and returns the search.
func (c *call) newGrep(a *grepArgs) (g *grep, err error) {
	g = &grep{c: c, a: a, literal: []byte(a.Substring), max: a.Max}
	switch {
	case (a.Substring == "") == (a.Regex == ""):
		return nil, invalid("arguments: give substring or regex, one of them")
	case a.Context < 0 || a.Context > maxContext:
		return nil, invalid("arguments: contextLines must be from 0 to %d", maxContext)
	case a.Max < 0 || a.Max > maxMatches:
		return nil, invalid("arguments: max_results must be from 1 to %d", maxMatches)
	case a.Depth < 0:
		return nil, invalid("arguments: depth must be 0 (no limit) or more")
	case a.Max == 0:
		g.max = defaultMatches
	}
	if a.Include != "" {
		if g.include, err = glob("include", a.Include); err != nil {
			return nil, err
		}
	}
	if g.exclude, err = globs("excludePatterns", a.Exclude); err != nil {
		return nil, err
	}
	text := a.Regex
	if text == "" {
		text = regexp.QuoteMeta(a.Substring)
	}
	if len(text) > maxPattern {
		return nil, invalid("arguments: what is searched for is longer than %d bytes", maxPattern)
	}
	flags := "(?m)"
	if a.IgnoreCase {
		flags = "(?mi)"
	}
	if g.re, err = compile(flags + text); err != nil {
		return nil, invalid("arguments: regex is not in RE2 syntax: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if orDefault(a.Ignore, true) {
		g.ignores = &ignores{c: c}
	}
	return g, nil
}

// searchWithinFiles searches the text files of a tree. It does not see files that the policy
// hides. It skips files that are not text, or too large. Like ripgrep it skips files that git
// ignores, unless respect_gitignore is false. A search that begins at an ignored file or directory
// does not skip that file or directory.
func (c *call) searchWithinFiles(a *grepArgs) (*result, error) {
	g, err := c.newGrep(a)
	if err != nil {
		return nil, err
	}
	if g.at, err = c.target("path", a.Path); err != nil {
		return nil, err
	}
	info, _, err := c.s.cfg.Tree.Stat(c.ctx, c.s.caller, g.at.Path)
	if err != nil {
		return nil, err
	}
	if info.IsRegular() {
		if err := g.file(g.at.Path, path.Base(g.at.Path.Rel())); err != nil {
			return nil, err
		}
		return g.result(""), nil
	}
	w, err := c.walk(g.at.Path, walkOptions{a.Depth, g.exclude, g.ignores, g.include}, a.Cursor)
	if err != nil {
		return nil, err
	}
	for v, err := range w.visits() {
		if err == nil && v.typ == unix.S_IFREG && g.includes(v.rel) {
			err = g.file(v.path, v.rel)
		}
		if err != nil {
			return nil, err
		}
		if g.isFull() {
			return g.result(w.cursor()), nil
		}
	}
	return g.result(""), nil
}

// grep is one search in files.
type grep struct {
	c       *call
	a       *grepArgs
	at      target
	re      finder
	literal []byte // the substring
	include pattern.Glob
	exclude []pattern.Glob
	ignores *ignores // nil: git's ignored files are searched, too
	max     int
	found   []byte
	matches int
	skipped int
}

// includes reports whether a file matches the includes. An include without a slash is compared
// with the name alone.
func (g *grep) includes(rel string) bool {
	return g.include == "" || g.include.Match(rel) || !strings.Contains(string(g.include), "/") && g.include.Match(path.Base(rel))
}

func (g *grep) isFull() bool { return g.matches >= g.max || len(g.found) >= g.c.s.cfg.Answer }

func (g *grep) result(cursor string) *result {
	note := g.c.unread.note(continueNote(cursor))
	if g.skipped > 0 {
		note = strings.TrimSpace(fmt.Sprintf("%d files were passed over: they are no text, or larger than %d bytes. %s", g.skipped, maxSearched, note))
	}
	if g.ignores != nil && g.ignores.large > 0 {
		note = strings.TrimSpace(fmt.Sprintf("%d .gitignore files do not count: too large, or too many rules. %s", g.ignores.large, note))
	}
	return foundResult(g.found, note)
}

// file searches one file. If the file cannot be read, skipUnreadable decides whether the search
// goes on. name is the file's name in the answer's note.
func (g *grep) file(p guard.Path, name string) error {
	data, _, err := g.c.readChunk(p, 0, maxSearched+1)
	if err != nil {
		return g.c.skipUnreadable(g.at.Path, name, err)
	}
	defer putBuffer(data)
	if len(data) > maxSearched || bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 { // git detects binary files in this way
		g.skipped++
		return nil
	}
	if g.a.Substring != "" && !g.a.IgnoreCase && !bytes.Contains(data, g.literal) {
		return nil
	}
	shown := validUTF8(g.c.s.display(g.at, p))
	line, counted, from := 1, 0, 0
	for from <= len(data) && !g.isFull() {
		m, err := g.re.find(g.c.stopped, data[from:])
		if err != nil {
			return err
		}
		if m == nil {
			return nil
		}
		begin := from + m[0]
		line += bytes.Count(data[counted:begin], []byte("\n"))
		counted = begin
		end := len(data)
		if i := bytes.IndexByte(data[begin:], '\n'); i >= 0 {
			end = begin + i
		}
		g.matches++
		g.show(shown, data, line, begin, end)
		from = end + 1 // one match a line
	}
	return nil
}

// show adds the line of a match, and the lines around it, to the answer. line is the number of the
// match's line. at and end are offsets in data: at is inside the match's line, and end is where
// this line ends.
func (g *grep) show(name string, data []byte, line, at, end int) {
	begin := bytes.LastIndexByte(data[:at], '\n') + 1
	first := line
	for ; line-first < g.a.Context && begin > 0; first-- {
		begin = bytes.LastIndexByte(data[:begin-1], '\n') + 1
	}
	for n := 0; n < g.a.Context && end < len(data); n++ {
		if i := bytes.IndexByte(data[end+1:], '\n'); i >= 0 {
			end += 1 + i
		} else {
			end = len(data)
		}
	}
	for i, text := range strings.Split(strings.TrimSuffix(string(data[begin:end]), "\n"), "\n") {
		sep := "-"
		if first+i == line {
			sep = ":"
		}
		text = strings.TrimSuffix(text, "\r")
		if len(text) > maxShown {
			text = string(wholeRunes([]byte(text[:maxShown]))) + "..."
		}
		g.found = fmt.Appendf(g.found, "%s%s%d%s %s\n", name, sep, first+i, sep, validUTF8(text))
	}
	if g.a.Context > 0 {
		g.found = append(g.found, "--\n"...)
	}
}
