package tools

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Bounds of a search in files.
const (
	defaultMatches = 200
	maxMatches     = 10_000
	maxContext     = 20
	// maxSearched is the largest file that is searched, bytes: it is held
	// whole, because a match may lie anywhere.
	maxSearched = 32 << 20
	// shownLine is how much of a line is shown, bytes; lines of minified code
	// are megabytes.
	shownLine = 500
	// maxBlind is how much work, in instructions of the pattern for each byte, is done
	// without a look at whether anybody still wants it: seconds, at the worst.
	maxBlind = 1 << 28
)

type grepArgs struct {
	Path       string   `json:"path"`
	Substring  string   `json:"substring"`
	Regex      string   `json:"regex"`
	IgnoreCase bool     `json:"ignoreCase"`
	Include    string   `json:"include"`
	Exclude    []string `json:"excludePatterns"` // grepCheck has both translated
	Context    int      `json:"contextLines"`
	Depth      int      `json:"depth"`
	Max        int      `json:"max_results"`
	Ignore     *bool    `json:"respect_gitignore"` // nil: true
	Cursor     string   `json:"cursor"`
}

// finder is what is searched for.
type finder struct {
	*regexp.Regexp
	steps int // at the most, for each byte
}

// compile reads a regular expression. It is read twice, because how long it became
// is not to be had of the first.
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

// find is where the first match in data is. A long search ends with what over says:
// package regexp, given bytes, would go on for hours, and whoever ends the session, or
// takes the root back, would wait.
func (f finder) find(over func() error, data []byte) ([]int, error) {
	if len(data) < maxBlind/f.steps {
		return f.FindIndex(data), over()
	}
	m := f.FindReaderIndex(&wantedRunes{Reader: bytes.NewReader(data), over: over})
	return m, over()
}

// wantedRunes end when the work is over.
type wantedRunes struct {
	*bytes.Reader
	over func() error
	n    int
}

// ReadRune implements io.RuneReader.
func (w *wantedRunes) ReadRune() (r rune, size int, err error) {
	if w.n++; w.n%64 == 0 && w.over() != nil {
		return 0, 0, io.EOF
	}
	return w.Reader.ReadRune()
}

func (c *call) grepCheck(a *grepArgs) (re finder, err error) {
	switch {
	case (a.Substring == "") == (a.Regex == ""):
		return re, invalid("arguments: give substring or regex, one of them")
	case a.Context < 0 || a.Context > maxContext:
		return re, invalid("arguments: contextLines must be from 0 to %d", maxContext)
	case a.Max < 0 || a.Max > maxMatches:
		return re, invalid("arguments: max_results must be from 1 to %d", maxMatches)
	case a.Depth < 0:
		return re, invalid("arguments: depth must be 0 (no limit) or more")
	}
	if a.Max == 0 {
		a.Max = defaultMatches
	}
	if a.Include != "" {
		if a.Include, err = c.pattern("include", a.Include); err != nil {
			return re, err
		}
	}
	if a.Exclude, err = c.patterns("excludePatterns", a.Exclude); err != nil {
		return re, err
	}
	text := a.Regex
	if text == "" {
		text = regexp.QuoteMeta(a.Substring)
	}
	if len(text) > maxPattern {
		return re, invalid("arguments: what is searched for is longer than %d bytes", maxPattern)
	}
	flags := "(?m)"
	if a.IgnoreCase {
		flags = "(?mi)"
	}
	if re, err = compile(flags + text); err != nil {
		return re, invalid("arguments: regex is not in RE2 syntax: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return re, nil
}

// searchWithinFiles goes through the text files of a tree. What the policy hides
// is not there for it either; files that are not text, or too large, are passed
// over. What git ignores is left out as by ripgrep, unless it is named itself.
func (c *call) searchWithinFiles() (*result, error) {
	var a grepArgs
	if err := c.args(&a); err != nil {
		return nil, err
	}
	re, err := c.grepCheck(&a)
	if err != nil {
		return nil, err
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	g := &grep{c: c, a: &a, re: re, at: at, literal: []byte(a.Substring)}
	if info, _, err := c.s.cfg.Tree.Stat(c.ctx, c.s.caller, at.Path); err != nil {
		return nil, err
	} else if info.IsRegular() {
		if err := g.file(at.Path); err != nil {
			return nil, err
		}
		return g.result(""), nil
	}
	if a.Ignore == nil || *a.Ignore {
		g.ignores = &ignores{c: c}
	}
	w, err := c.walk(at, walkHow{a.Depth, a.Exclude, g.ignores, a.Include}, a.Cursor)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for {
		e, rel, ok, err := w.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return g.result(""), nil
		}
		switch e.typ {
		case unix.S_IFDIR:
			err = w.down(&e)
		case unix.S_IFREG:
			include := pattern.Glob(a.Include)
			if include == "" || include.Match(rel) || !strings.Contains(string(include), "/") && include.Match(path.Base(rel)) {
				err = g.file(e.path)
			}
		}
		if err != nil {
			return nil, err
		}
		if g.full() {
			return g.result(w.cursor()), nil
		}
	}
}

// grep is one search in files.
type grep struct {
	c       *call
	a       *grepArgs
	re      finder
	literal []byte
	at      place
	b       strings.Builder
	matches int
	skipped int
	ignores *ignores // nil: git's ignored files are searched too
}

func (g *grep) full() bool { return g.matches >= g.a.Max || g.b.Len() >= g.c.s.cfg.Answer }

func (g *grep) result(cursor string) *result {
	r := &result{text: "No matches found", note: goOn(cursor)}
	if g.matches > 0 {
		r.text = strings.TrimSuffix(g.b.String(), "\n")
	}
	if g.skipped > 0 {
		r.note = strings.TrimSpace(fmt.Sprintf("%d files were passed over: they are no text, larger than %d bytes, or cannot be read. %s", g.skipped, maxSearched, r.note))
	}
	if g.ignores != nil && g.ignores.large > 0 {
		r.note = strings.TrimSpace(fmt.Sprintf("%d .gitignore files are too large to be respected. %s", g.ignores.large, r.note))
	}
	return r
}

// file searches one file. That it cannot be read is no error of the search.
func (g *grep) file(p guard.Path) error {
	data, _, err := g.c.read(place{Path: p}, 0, maxSearched+1)
	if err != nil {
		g.skipped++
		return g.c.passOver(g.at.Path, err)
	}
	defer giveBack(data)
	if len(data) > maxSearched || bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 { // as git tells binary files
		g.skipped++
		return nil
	}
	if g.a.Substring != "" && !g.a.IgnoreCase && !bytes.Contains(data, g.literal) {
		return nil
	}
	shown := shownName(g.c.s.shown(g.at, p))
	line, counted, from := 1, 0, 0
	for from <= len(data) && !g.full() {
		m, err := g.re.find(g.c.over, data[from:])
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

// show writes the line of a match, with what is around it.
func (g *grep) show(name string, data []byte, line, at, end int) {
	begin := bytes.LastIndexByte(data[:at], '\n') + 1
	first := line
	for range g.a.Context {
		if begin == 0 {
			break
		}
		begin = bytes.LastIndexByte(data[:begin-1], '\n') + 1
		first--
	}
	for range g.a.Context {
		if end >= len(data) {
			break
		}
		next := bytes.IndexByte(data[end+1:], '\n')
		if next < 0 {
			end = len(data)
			break
		}
		end += 1 + next
	}
	for i, text := range strings.Split(strings.TrimSuffix(string(data[begin:end]), "\n"), "\n") {
		sep := "-"
		if first+i == line {
			sep = ":"
		}
		text = strings.TrimSuffix(text, "\r")
		if len(text) > shownLine {
			text = string(whole([]byte(text[:shownLine]))) + "..."
		}
		if !utf8.ValidString(text) {
			text = shownName(text)
		}
		fmt.Fprintf(&g.b, "%s%s%d%s %s\n", name, sep, first+i, sep, text)
	}
	if g.a.Context > 0 {
		g.b.WriteString("--\n")
	}
}
