package markdown

import "strings"

// Man renders a page for man(1). name and section go into its heading, and summary behind the
// dash of its NAME line. Links to other pages become references to man pages.
func Man(page, name, section, summary string) string {
	var b strings.Builder
	b.WriteString(".TH " + strings.ToUpper(name) + " " + section + " \"\" rootsfs rootsfs\n.SH NAME\n" + Roff(name) + ` \- ` + Roff(summary) + "\n")
	b.WriteString(body(page))
	return b.String()
}

// body renders a page for Man. If the page begins with a heading of level 1, body writes
// DESCRIPTION in place of that heading, because Man writes a heading of its own.
func body(page string) string {
	var b strings.Builder
	for i, bl := range parse(page) {
		switch bl.kind {
		case heading:
			switch {
			case i == 0 && bl.level == 1:
				b.WriteString(".SH DESCRIPTION\n")
			case bl.level <= 2:
				b.WriteString(".SH " + inlineRoff(strings.ToUpper(bl.text)) + "\n")
			default:
				b.WriteString(".SS " + inlineRoff(bl.text) + "\n")
			}
		case paragraph:
			b.WriteString(".PP\n" + line(inlineRoff(bl.text)))
		case item:
			mark := `\(bu`
			if bl.mark != "-" {
				mark = bl.mark
			}
			b.WriteString(".IP " + mark + " 4\n" + line(inlineRoff(bl.text)))
		case code:
			b.WriteString(Code(bl.lines))
		case table:
			for _, row := range bl.rows[1:] {
				b.WriteString(".TP\n" + line(inlineRoff(row[0])) + rowRoff(bl.rows[0], row))
			}
		}
	}
	return b.String()
}

// Code renders lines with an indent. roff does not join them.
func Code(lines []string) string {
	var b strings.Builder
	b.WriteString(".PP\n.in +4n\n.nf\n")
	for _, l := range lines {
		b.WriteString(line(Roff(l)))
	}
	b.WriteString(".fi\n.in\n")
	return b.String()
}

// rowRoff renders the cells of a row, except the first cell, as one line. Each cell follows the
// heading of its column, unless the row has only two cells.
func rowRoff(head, row []string) string {
	var parts []string
	for i, c := range row[1:] {
		switch {
		case c == "":
		case len(row) == 2 || i+1 >= len(head) || head[i+1] == "":
			parts = append(parts, inlineRoff(c))
		default:
			parts = append(parts, inlineRoff(head[i+1])+": "+inlineRoff(c))
		}
	}
	if len(parts) == 0 {
		return "\\&\n"
	}
	return line(strings.Join(parts, "; "))
}

// Line renders text on a line of its own.
func Line(text string) string { return line(Roff(text)) }

// line returns one line of roff. It escapes a beginning that roff would take for a
// request.
func line(text string) string {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text + "\n"
}

// inlineRoff renders inline text as roff.
func inlineRoff(text string) string {
	var b strings.Builder
	for _, s := range spans(text) {
		switch topic := topicOf(s.link); {
		case topic != "" && hasArticle(b.String()):
			b.WriteString(Roff(s.text) + ` (\fBrootsfs\-` + Roff(topic) + `\fR(7))`)
		case topic != "":
			b.WriteString(`\fBrootsfs\-` + Roff(topic) + `\fR(7)`)
		case strings.HasPrefix(s.link, "https:"):
			b.WriteString(Roff(s.text + " (" + s.link + ")"))
		case s.code, s.strong:
			b.WriteString(`\fB` + Roff(s.text) + `\fR`)
		default:
			b.WriteString(Roff(s.text))
		}
	}
	return b.String()
}

// Roff escapes plain text for roff.
func Roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`, "'", `\(aq`, `"`, `\(dq`).Replace(text)
}
