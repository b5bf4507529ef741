package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// scroll is the state of scrolling: which lines between head and foot are on the screen.
type scroll struct {
	top    int  // the first line on the screen
	room   int  // how many lines fit on the screen
	lines  int  // how many lines there are
	follow bool // the line with the index at stays on the screen until the user scrolls
	at     int  // the line of the chosen root or change, or the first line of the question in front
	// end is the line after the question in front. text has the lines of the question without the
	// first line, which changes every second. shownLines has the lines of text that have been on the
	// screen. It identifies a line by its text, because a preview that arrives moves lines.
	end        int
	text       []string
	shownLines map[string]bool
}

// turn scrolls by a number of lines.
func (s *scroll) turn(by int) {
	s.follow = false
	s.top = max(0, min(s.top+by, s.lines-s.room))
}

// page returns how far a page key scrolls: two lines less than the screen, so that no line is
// skipped.
func (s *scroll) page() int { return max(1, s.room-2) }

// begin scrolls to the top, and forgets which lines have been on the screen.
func (s *scroll) begin() { *s = scroll{follow: true} }

// show returns the lines for the screen, room in number. If more lines are below, the last line
// says how many. With ask, show notes which lines of the question in front are on the screen.
func (s *scroll) show(p *page, room int, ask bool) []string {
	s.room, s.lines = room, len(p.lines)
	if s.follow {
		switch {
		case ask || s.at < s.top:
			s.top = s.at
		case s.at >= s.top+room-1:
			s.top = s.at - room + 2
		}
	}
	s.top = max(0, min(s.top, s.lines-room))
	last := min(s.top+room, s.lines)
	out := append([]string{}, p.lines[s.top:last]...)
	if below := s.lines - last; below > 0 && room > 1 {
		more := &page{width: p.width}
		more.add(warn, "  %d lines more below: PgDn", below+1)
		out[len(out)-1] = more.lines[0]
		last--
	}
	if ask {
		s.note(p.lines, last)
	}
	for len(out) < room {
		out = append(out, "")
	}
	return out
}

// note notes which lines of the question in front are on the screen. last is the index of the first
// line below the screen.
func (s *scroll) note(lines []string, last int) {
	if s.shownLines == nil {
		s.shownLines = map[string]bool{}
	}
	from := min(s.at+1, s.end)
	s.text = lines[from:s.end]
	for i := max(from, s.top); i < min(last, s.end); i++ {
		s.shownLines[lines[i]] = true
	}
}

// missing returns how many lines of the question in front have not been on the screen.
func (s *scroll) missing() (n int) {
	if s.shownLines == nil {
		return 1 // nothing has been on the screen yet
	}
	for _, line := range s.text {
		if !s.shownLines[line] {
			n++
		}
	}
	return n
}

// pressScroll handles a key that scrolls. It reports false for any other key.
func (m *model) pressScroll(key string) bool {
	switch key {
	case "pgdown", "space", " ", "ctrl+f":
		m.scroll.turn(m.scroll.page())
	case "pgup", "b", "ctrl+b":
		m.scroll.turn(-m.scroll.page())
	case "home", "g":
		m.scroll.turn(-m.scroll.lines)
	default:
		return false
	}
	m.since = m.now // the lines have just come to the screen
	return true
}

// showView shows a view from its beginning.
func (m *model) showView(v view) tea.Cmd {
	m.view, m.since = v, m.now
	m.scroll.begin()
	if v == viewHistory {
		return m.find()
	}
	return nil
}

// body returns all lines between head and foot.
func (m *model) body() *page {
	p := &page{width: m.width}
	switch m.view {
	case viewNow:
		m.viewNow(p)
	case viewAsk:
		m.viewAsk(p)
	case viewHistory:
		m.viewHistory(p)
	case viewStage:
		m.viewStage(p)
	}
	return p
}

// View implements tea.Model.
func (m *model) View() tea.View {
	head := &page{width: m.width}
	m.head(head)
	foot := &page{width: m.width}
	m.foot(foot)
	room := max(m.height-len(head.lines)-len(foot.lines), 1)
	lines := append(head.lines, m.scroll.show(m.body(), room, m.view == viewAsk)...)
	lines = lines[:max(1, min(len(lines), m.height-len(foot.lines)))]
	v := tea.NewView(strings.Join(append(lines, foot.lines...), "\n"))
	v.AltScreen = true
	v.WindowTitle = "rootsfs top"
	return v
}

// unseenReason returns why the question in front cannot be allowed yet; "": it can.
func (m *model) unseenReason() string {
	n := m.scroll.missing()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("not all of the question has been on the screen: PgDn shows the other %d lines; then allow", n)
}
