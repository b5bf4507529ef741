// Package markdown renders the help's pages, which are written in a small part of
// Markdown: headings, paragraphs, lists of one level, fenced code, and tables. Text may
// hold `code`, **strong words** and [links](page.md).
//
// Text renders a page as plain text without escape sequences. A line of prose has at most the given
// width (at least 40 columns), unless a single word is longer. Man renders a page as roff. The same
// page gives the same bytes.
//
// Markdown that the pages do not use (nested lists, quotes, HTML, reference links) is
// taken for text. Comments, and lines that consist of images, are left out. Pages are the program's
// own: foreign text must not be rendered.
package markdown

import (
	"regexp"
	"strings"
	"sync"
)

// kind is the kind of a block.
type kind int

const (
	paragraph kind = iota
	heading
	item
	code
	table
)

// block is one part of a page.
type block struct {
	kind  kind
	level int        // of a heading, from 1
	mark  string     // of an item: "-" or "1."
	text  string     // in one line, with its inline marks
	lines []string   // of code
	rows  [][]string // of a table, the head first
}

// grammar is compiled when the first page is parsed, so that it does not delay commands that
// show no page.
type grammar struct{ heading, item, rule, images, inline *regexp.Regexp }

var syntax = sync.OnceValue(func() *grammar {
	return &grammar{
		heading: regexp.MustCompile(`^(#{1,4}) +(.*)$`),
		item:    regexp.MustCompile(`^(-|[0-9]+\.) +(.*)$`),
		rule:    regexp.MustCompile(`^\|[-:| ]+\|$`),
		images:  regexp.MustCompile(`^(!\[[^\]]*\]\([^)]*\)\s*|\|\s*)+$`),
		inline:  regexp.MustCompile("``[^`]+``|`[^`]+`|\\*\\*[^*]+\\*\\*|\\[[^\\]]+\\]\\([^)]+\\)"),
	}
})

// parse splits a page into blocks.
func parse(page string) []block {
	var out []block
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " ")
		switch {
		case line == "", syntax().rule.MatchString(line), strings.Contains(line, "![") && syntax().images.MatchString(line):
		case strings.HasPrefix(line, "<!--"):
			for !strings.HasSuffix(line, "-->") && i+1 < len(lines) {
				i++
				line = lines[i]
			}
		case strings.HasPrefix(line, "```"):
			b := block{kind: code}
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				b.lines = append(b.lines, lines[i])
			}
			out = append(out, b)
		case syntax().heading.MatchString(line):
			m := syntax().heading.FindStringSubmatch(line)
			out = append(out, block{kind: heading, level: len(m[1]), text: m[2]})
		case strings.HasPrefix(line, "|"):
			out = addRow(out, line, i > 0 && strings.HasPrefix(lines[i-1], "|"))
		default:
			out = addText(out, line, i > 0 && isText(lines[i-1]))
		}
	}
	return out
}

// addRow adds a row to the table above it, or begins a table.
func addRow(out []block, line string, continued bool) []block {
	const bar = "\x00" // a bar that is text
	cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, bar), "| "), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(c, bar, "|"))
	}
	if !continued || len(out) == 0 || out[len(out)-1].kind != table {
		out = append(out, block{kind: table})
	}
	last := &out[len(out)-1]
	last.rows = append(last.rows, cells)
	return out
}

// addText adds a line to the paragraph or item above it, or begins a new paragraph or item.
func addText(out []block, line string, continued bool) []block {
	if m := syntax().item.FindStringSubmatch(line); m != nil {
		return append(out, block{kind: item, mark: m[1], text: m[2]})
	}
	text := strings.TrimSpace(line)
	if continued && len(out) > 0 {
		if last := &out[len(out)-1]; last.kind == paragraph || last.kind == item {
			last.text += " " + text
			return out
		}
	}
	return append(out, block{kind: paragraph, text: text})
}

// isText reports whether a line can be continued by the next.
func isText(line string) bool {
	line = strings.TrimSpace(line)
	return line != "" && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "```") &&
		!strings.HasPrefix(line, "<!--") && !syntax().heading.MatchString(line) && !syntax().images.MatchString(line)
}

// span is a piece of inline text.
type span struct {
	text         string
	code, strong bool
	link         string // target of the link; "" for plain text
}

// spans splits text at its inline marks.
func spans(text string) []span {
	var out []span
	at := 0
	for _, m := range syntax().inline.FindAllStringIndex(text, -1) {
		if m[0] > at {
			out = append(out, span{text: text[at:m[0]]})
		}
		switch s := text[m[0]:m[1]]; s[0] {
		case '`':
			out = append(out, span{text: strings.Trim(s, "`"), code: true})
		case '*':
			out = append(out, span{text: strings.Trim(s, "*"), strong: true})
		default:
			label, link, _ := strings.Cut(s[1:len(s)-1], "](")
			out = append(out, span{text: strings.Trim(label, "`*"), link: link})
		}
		at = m[1]
	}
	if at < len(text) {
		out = append(out, span{text: text[at:]})
	}
	return out
}

// hasArticle reports whether text ends with the article "the". After an article, a link to a topic is
// rendered as the words of the link and the reference to the topic, otherwise as the reference alone.
func hasArticle(text string) bool { return strings.HasSuffix(text, "the ") }

// topicOf returns the topic that a link leads to, "" if it leads elsewhere.
func topicOf(link string) string {
	page, _, _ := strings.Cut(link, "#")
	name, ok := strings.CutSuffix(page, ".md")
	if !ok || strings.Contains(name, "/") {
		return ""
	}
	return name
}
