package markdown

import (
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard/names"
)

// indent is one step of the left margin. Headings have no margin.
const indent = "  "

// Text renders a page for a terminal with width columns. Links to other pages become
// the command that shows them.
func Text(page string, width int) string {
	width = max(width, 40)
	var b strings.Builder
	var last kind
	for i, bl := range parse(page) {
		if i > 0 && (bl.kind != item || last != item) {
			b.WriteByte('\n')
		}
		switch last = bl.kind; bl.kind {
		case heading:
			b.WriteString(title(bl, width))
		case paragraph:
			write(&b, Wrap(plain(bl.text), width-len(indent)), indent, indent)
		case item:
			write(&b, Wrap(plain(bl.text), width-len(indent)-len(bl.mark)-1), indent+bl.mark+" ", indent+strings.Repeat(" ", len(bl.mark)+1))
		case code:
			write(&b, bl.lines, indent+indent, indent+indent)
		case table:
			for _, line := range columns(bl.rows, width-len(indent)) {
				write(&b, []string{line}, indent, indent)
			}
		}
	}
	return b.String()
}

// title renders a heading without a margin. A heading below the first level is in capitals, unless
// it contains code.
func title(b block, width int) string {
	text := plain(b.text)
	switch {
	case b.level == 1:
		text = strings.ToUpper(text[:1]) + text[1:]
	case !strings.Contains(b.text, "`"):
		text = strings.ToUpper(text)
	}
	return strings.Join(Wrap(text, width), "\n") + "\n"
}

// write writes lines to b. The margin of the first line is first, the margin of the others is rest.
func write(b *strings.Builder, lines []string, first, rest string) {
	for i, line := range lines {
		margin := rest
		if i == 0 {
			margin = first
		}
		b.WriteString(strings.TrimRight(margin+line, " "))
		b.WriteByte('\n')
	}
}

// plain returns inline text without its marks.
func plain(text string) string {
	var b strings.Builder
	for _, s := range spans(text) {
		switch topic := topicOf(s.link); {
		case topic != "" && hasArticle(b.String()):
			b.WriteString(s.text + " (rootsfs help " + names.ShellWord(topic) + ")")
		case topic != "":
			b.WriteString("rootsfs help " + names.ShellWord(topic))
		case strings.HasPrefix(s.link, "https:"):
			b.WriteString(s.text + " (" + s.link + ")")
		default:
			b.WriteString(s.text)
		}
	}
	return strings.ReplaceAll(b.String(), "`", "")
}

// Wrap breaks text into lines of at most width columns. A longer word has a line of
// its own.
func Wrap(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			out = append(out, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" || len(out) == 0 {
		out = append(out, line)
	}
	return out
}

// columns renders a table in columns. It narrows the widest columns, and wraps their cells, until
// the table fits. If that would break words or make a column too narrow, it renders the rows as
// stacked does.
func columns(rows [][]string, width int) []string {
	const gap, least = 2, 14
	var cells [][]string
	widths, mins := make([]int, len(rows[0])), make([]int, len(rows[0]))
	for _, row := range rows {
		line := make([]string, len(widths))
		for i := range min(len(row), len(widths)) {
			line[i] = plain(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
			for word := range strings.FieldsSeq(line[i]) {
				mins[i] = max(mins[i], utf8.RuneCountInString(word), least)
			}
		}
		cells = append(cells, line)
	}
	excess := gap*(len(widths)-1) - width
	for _, w := range widths {
		excess += w
	}
	for excess > 0 {
		widest := -1
		for i, w := range widths {
			if w > mins[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return stacked(cells, width)
		}
		widths[widest]--
		excess--
	}
	var out []string
	for _, row := range cells {
		out = append(out, setRow(row, widths, gap)...)
	}
	return out
}

// setRow renders one row of a table as lines. gap is the number of spaces between its columns.
func setRow(row []string, widths []int, gap int) []string {
	var wrapped [][]string
	height := 0
	for i, c := range row {
		wrapped = append(wrapped, Wrap(c, widths[i]))
		height = max(height, len(wrapped[i]))
	}
	var out []string
	for n := range height {
		line := ""
		for i, lines := range wrapped {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}
			line += text + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text))+gap)
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

// stacked renders each row of a table as a list below its first cell. Neighbouring columns with
// the same text share a line.
func stacked(rows [][]string, width int) []string {
	var out []string
	for _, row := range rows[1:] {
		out = append(out, Wrap(row[0], width)...)
		heads := ""
		for i, c := range row[1:] {
			heads += rows[0][i+1]
			if i+2 < len(row) && row[i+2] == c {
				heads += "; "
				continue
			}
			text := heads + ": " + c
			if heads = ""; c == "" {
				continue
			}
			for n, line := range Wrap(text, width-4) {
				margin := indent
				if n > 0 {
					margin = indent + indent
				}
				out = append(out, margin+line)
			}
		}
	}
	return out
}
