package top

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Styles use the terminal's sixteen colours, because the user has chosen these.
var (
	bold   = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	warn   = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
	wrong  = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	chosen = lipgloss.NewStyle().Reverse(true)
	none   = lipgloss.NewStyle()
)

// page has the lines of a screen, or of a part of it. Every text is cut to the width before it is
// styled. The callers escape foreign texts before they add them.
type page struct {
	lines []string
	width int
}

func (p *page) add(style lipgloss.Style, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.lines = append(p.lines, style.Render(ansi.Truncate(text, max(p.width, 1), "…")))
}

// brief escapes a name, and shortens it for a line with other text: of a long name it keeps both
// ends.
func brief[S ~string](name S, width int) string { return elideMiddle(names.Escape(name), width) }

// elideMiddle leaves out the middle of a text that is wider than width.
func elideMiddle(text string, width int) string {
	over := ansi.StringWidth(text) - width
	if over <= 0 {
		return text
	}
	return ansi.Truncate(text, width/2, "") + "…" + ansi.TruncateLeft(text, over+width/2+1, "")
}

// addWrapped adds a text, broken into lines if needed. After maxLines lines, a line with … replaces
// the rest of the text.
func (p *page) addWrapped(style lipgloss.Style, indent, text string, maxLines int) {
	width := max(p.width-len(indent)-len(bar), 8)
	// Wrap alone leaves some lines a little too long.
	p.addLines(style, indent, ansi.Hardwrap(ansi.Wrap(text, width, " /"), width, false), maxLines)
}

// addExact adds the whole text with all its spaces, in as many lines as it takes.
func (p *page) addExact(style lipgloss.Style, indent, text string) {
	p.addLines(style, indent, ansi.Hardwrap(text, max(p.width-len(indent)-len(bar), 8), true), math.MaxInt)
}

// bar begins a line that continues a text, so that it does not look like a line of the console
// itself.
const bar = "| "

// addLines adds the lines of text. Each line but the first begins with bar. After maxLines lines, a
// line with … replaces the rest of the text.
func (p *page) addLines(style lipgloss.Style, indent, text string, maxLines int) {
	for i, line := range strings.Split(text, "\n") {
		if i == maxLines {
			p.add(faint, "%s…", indent)
			return
		}
		if i > 0 {
			line = bar + line
		}
		p.add(style, "%s%s", indent, line)
	}
}

// addInput adds the line that the user is typing, and shows its end if it is too long.
func (p *page) addInput(what, text string) {
	line := what + names.Escape(text) + "_   (enter, esc)"
	if over := ansi.StringWidth(line) - max(p.width, 1); over > 0 {
		line = ansi.TruncateLeft(line, over+1, "…")
	}
	p.add(warn, "%s", line)
}

// note adds a text like addWrapped. On a screen of fewer than 12 lines, note adds only one line,
// which is cut to the width.
func (m *model) note(p *page, style lipgloss.Style, text string, maxLines int) {
	if m.height < 12 {
		p.add(style, "%s", text)
		return
	}
	p.addWrapped(style, "", text, maxLines)
}

func (m *model) head(p *page) {
	tabs := []string{"1 now", fmt.Sprintf("2 ask (%d)", len(m.questions)), "3 history"}
	for i := range tabs {
		if view(i) == m.view {
			tabs[i] = "[" + tabs[i] + "]"
		}
	}
	style := bold
	if len(m.questions) > 0 {
		style = bold.Inherit(warn)
	}
	p.add(style, "rootsfs   %s   %s", strings.Join(tabs, "   "), m.now.Format(time.TimeOnly))
	p.add(none, "")
}

func (m *model) foot(p *page) {
	if m.message != "" {
		style := good
		if m.isError {
			style = wrong
		}
		m.note(p, style, names.EscapeQuoted(m.message), 3)
	}
	switch m.typing {
	case typingPath:
		p.addInput("only this, below what is asked for: ", m.text)
	case typingSearch:
		p.addInput("path, such as *.md or src/**: ", m.text)
	case typingForget:
		p.addInput("ask me again about the denial with the number: ", m.text)
	case typingSure:
		p.add(wrong, "revoke every root of every session? y: yes; any other key: no")
	case typingNothing:
		m.note(p, faint, [...]string{
			"up down: choose  x: revoke root  X: revoke session  E: revoke everything  m: ro or rw  s: staged  tab: views  q: quit",
			"r: allow read-only  w: allow as asked  n: narrow  t: for how long  d: deny  D: deny and remember  f: forget a denial  tab: views  q: quit",
			"up down PgUp PgDn  /: search  enter: again  v: verify the chain  tab: views  q: quit",
			"up down: choose  a: apply it  d: discard it  u: undo  enter: again  esc: back  q: quit",
		}[m.view], 4)
	}
}

func (m *model) viewNow(p *page) {
	if len(m.sessions) == 0 {
		p.add(faint, "no session is live; start one: rootsfs mount --root PATH MOUNTPOINT")
		return
	}
	at := 0
	for i := range m.sessions {
		s := &m.sessions[i]
		m.session(p, s)
		rates := m.speeds[s.Session].roots
		for i := range s.Roots {
			r := &s.Roots[i]
			m.root(p, r, rates[r.Epoch], at == m.row)
			if q := quota("written", r.Written, r.Limits.MaxWritten, config.FormatSize) + quota("names", r.Created, r.Limits.MaxCreated, decimal); q != "" {
				p.add(faint, "    %s", strings.TrimSpace(q))
			}
			stagedLine(p, r)
			at++
		}
		if s.MoreRoots > 0 {
			p.add(faint, "  and %d roots more; see: rootsfs roots list", s.MoreRoots)
		}
		p.add(none, "")
	}
	m.refusals(p)
}

// root adds the line of a root. On a narrow screen the chosen root has further lines with the
// columns for which there is no room.
func (m *model) root(p *page, r *control.Root, rate rate, here bool) {
	style := none
	if here {
		style, m.scroll.at = chosen, len(p.lines)
	}
	bytes := config.FormatSize(int64(rate.read + rate.written))
	name, path := brief(r.Name, 16), names.Escape(r.Resolved)
	if p.width < 120 {
		name = brief(r.Name, 12)
	}
	switch {
	case p.width >= 120:
		p.add(style, "  %-16s %-4s %-11s %6s/s %9s/s %8d ops %6d refused  %-12s %s", name, r.Mode, r.State,
			short(rate.ops), bytes, r.Ops, r.Refused, m.endText(r.Expires), path)
	case p.width >= 64:
		p.add(style, "  %-12s %-3s %-5s %5s/s %7s/s %4d refused  %s", name, r.Mode, r.State, short(rate.ops), bytes, r.Refused, path)
	default:
		p.add(style, "  %-8s %-3s %-5s %s", brief(r.Name, 8), r.Mode, r.State, path)
	}
	if here && strings.Contains(name, "…") {
		p.addExact(none, "    ", names.Quote(r.Name))
	}
	if here && p.width < 120 {
		p.addWrapped(none, "    ", fmt.Sprintf("%s: %d ops, %d refused, end: %s", path, r.Ops, r.Refused, m.endText(r.Expires)), 3)
	}
}

func (m *model) session(p *page, s *sessionhub.Session) {
	what := brief(s.Session, 40)
	if s.Point != "" {
		what += " at " + names.Escape(s.Point)
	}
	if c := s.Server; c != nil {
		what += fmt.Sprintf("  confined: %s, runs %s", c.Confinement, names.Join(c.Command, " "))
	}
	p.add(bold, "%s", what)
	if s.Problem != "" {
		p.add(wrong, "  no answer: %s", names.EscapeQuoted(s.Problem))
	}
	for _, at := range s.Paused {
		p.add(wrong, "  %s", at.String())
	}
	if s.ConfigError != "" {
		p.add(wrong, "  the configuration is not in force: %s", names.EscapeQuoted(s.ConfigError))
	}
	total := m.speeds[s.Session].total
	rate := total[len(total)-1]
	p.add(faint, "  %s ops/s, %s/s read, %s/s written, %d in flight", short(rate.ops), config.FormatSize(int64(rate.read)), config.FormatSize(int64(rate.written)), s.Process.InFlight)
	charts(p, total)
	m.network(p, s.Network)
	for _, f := range s.Files {
		itself := ""
		if f.Server != "" {
			itself = " calls itself \"" + elideMiddle(names.EscapeQuoted(f.Server), 30) + "\""
		}
		p.add(faint, "  server %s%s: %d requests, %d refused", brief(f.Subject, 30), itself, f.Requests, f.Refused)
	}
}

// Bounds of the lines about a network.
const (
	shownConnections = 5
	shownHosts       = 3
)

// network shows a network of approved hosts, the busiest connections first.
func (m *model) network(p *page, n *control.NetState) {
	if n == nil || n.IsUnused() {
		return
	}
	p.add(faint, "  network: %d connections open, of %d; %s sent, %s received, %d refused, %d failed", n.Open, n.Opened,
		config.FormatSize(n.Sent), config.FormatSize(n.Received), n.Refused, n.Failed)
	for i := range n.Connections[:min(len(n.Connections), shownConnections)] {
		c := &n.Connections[i]
		p.add(none, "    %9s/s  %s port %d  %s sent, %s received, for %s", config.FormatSize(c.Rate), brief(c.Host, max(p.width/3, 12)), c.Port,
			config.FormatSize(c.Sent), config.FormatSize(c.Received), formatSeconds(m.now.Sub(c.Began)))
	}
	for _, u := range n.Unapproved[max(0, len(n.Unapproved)-shownHosts):] {
		p.add(warn, "    refused: %s, %d times: no rule permits it", brief(u.Host, max(p.width/3, 12)), u.Times)
	}
}

// refusals shows the last refusals and failures, at most 20.
func (m *model) refusals(p *page) {
	p.add(bold, "last refusals")
	n := 0
	for _, e := range m.events {
		if e.Kind != "refusal" && e.Kind != "failure" {
			continue
		}
		p.add(none, "  %s %s: %s %s %s  %s", e.Time.Local().Format(time.TimeOnly), brief(e.Session, 20), e.Op, elideMiddle(names.EscapeQuoted(e.Path), max(p.width/3, 12)), e.Reason, names.EscapeQuoted(e.Detail))
		if n++; n == 20 {
			break
		}
	}
	if n == 0 {
		p.add(faint, "  nothing was refused")
	}
	if m.lost > 0 {
		p.add(faint, "  %d events came faster than they could be shown", m.lost)
	}
}

func (m *model) viewHistory(p *page) {
	what := "all records"
	if m.glob != "" {
		what = "records of " + names.Quote(m.glob)
	}
	state := ""
	switch {
	case m.finding:
		state = ", searching"
	case !m.found.Complete:
		state = ", not all were looked at"
	}
	p.add(bold, "%s: %d%s", what, m.found.Matched, state)
	for i := range m.found.Entries {
		e := &m.found.Entries[i]
		style := none
		switch e.Verdict {
		case "refused":
			style = wrong
		case "failed":
			style = warn
		}
		path := names.EscapeQuoted(e.Path)
		if e.Path2 != "" {
			path += " -> " + names.EscapeQuoted(e.Path2)
		}
		p.add(style, "%s  %-12s %-8s %-10s %s  %s", e.Time.Local().Format("01-02 15:04:05"), brief(e.Session, 12), names.Escape(e.Verdict), names.Escape(e.Op), elideMiddle(path, max(p.width/3, 12)),
			strings.TrimSpace(names.Escape(e.Kind)+" "+names.EscapeQuoted(e.Detail)))
	}
}

func (m *model) endText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return "ends " + formatSeconds(t.Sub(m.now))
}

// formatSeconds formats a duration in whole seconds. A negative duration counts as 0.
func formatSeconds(d time.Duration) string {
	return max(0, d).Truncate(time.Second).String()
}

// quota returns a text that shows how much of a limit is used, with a bar of ten characters. It
// returns "" if there is no limit.
func quota(what string, used, limit int64, show func(int64) string) string {
	if limit <= 0 {
		return ""
	}
	full := int(math.Round(10 * float64(min(used, limit)) / float64(limit)))
	return fmt.Sprintf("%s [%s%s] %s of %s  ", what, strings.Repeat("#", full), strings.Repeat(".", 10-full), show(used), show(limit))
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func short(f float64) string {
	if f >= 10 || f == 0 {
		return strconv.FormatFloat(math.Round(f), 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

// levels are the heights of a bar in a chart; the lowest stands for 0.
var levels = []rune("▁▂▃▄▅▆▇█")

// minChart is the smallest useful width of a chart.
const minChart = 8

// rate is a speed: each figure is per second.
type rate struct{ ops, read, written float64 }

// keptPoints is how many speeds of a session are kept: five minutes of them.
const keptPoints = 300

// speeds are the speeds of one session, calculated from the counters in its states.
type speeds struct {
	at    time.Time          // the time of the last counted state
	last  sessionhub.Session // the last counted state
	total []rate             // of all roots, the oldest first
	roots map[uint64]rate    // of the present roots, by epoch; a root that is granted again has a new epoch
}

// count adds a speed. It skips a state that comes soon after the last one, as after an event.
// For the first state the speed is 0, because nobody knows when its counters began.
func (s *speeds) count(now time.Time, st *sessionhub.Session) {
	spent := now.Sub(s.at)
	isFirst := len(s.total) == 0
	if !isFirst && spent < sessionhub.Every/2 {
		return
	}
	each := func(now, was int64) float64 { return max(0, float64(now-was)/spent.Seconds()) }
	p, q := &st.Process, &s.last.Process
	var total rate
	if !isFirst {
		total = rate{each(p.Ops, q.Ops), each(p.Read, q.Read), each(p.Written, q.Written)}
	}
	before := map[uint64]*control.Root{}
	for i := range s.last.Roots {
		before[s.last.Roots[i].Epoch] = &s.last.Roots[i]
	}
	s.roots = map[uint64]rate{}
	for i := range st.Roots {
		r := &st.Roots[i]
		if b := before[r.Epoch]; b != nil {
			s.roots[r.Epoch] = rate{each(r.Ops, b.Ops), each(r.BytesRead, b.BytesRead), each(r.Written, b.Written)}
		}
	}
	s.at, s.last = now, *st
	s.total = append(s.total, total)
	s.total = s.total[max(0, len(s.total)-keptPoints):]
}

// charts shows the speeds of the last minutes: operations, and bytes read and written, with the
// highest values. It shows nothing for a session without operations, or on a narrow screen.
func charts(p *page, list []rate) {
	text := func(what string, most float64, show func(float64) string, of func(rate) float64, room int) string {
		return fmt.Sprintf("%s %s up to %s/s", what, chart(list, of, room), show(most))
	}
	ops := func(r rate) float64 { return r.ops }
	bytes := func(r rate) float64 { return r.read + r.written }
	mostOps, mostBytes := highest(list, ops), highest(list, bytes)
	// Each of the two charts has about thirty columns of text.
	room := (p.width - 60) / 2
	if mostOps == 0 || room < minChart {
		return
	}
	over := (time.Duration(len(list)) * sessionhub.Every).Truncate(time.Second)
	p.add(good, "  %s  %s  in %v", text("ops", mostOps, short, ops, min(room, 60)),
		text("bytes", mostBytes, func(v float64) string { return config.FormatSize(int64(v)) }, bytes, min(room, 60)), over)
}

func highest(list []rate, of func(rate) float64) float64 {
	most := 0.0
	for _, r := range list {
		most = max(most, of(r))
	}
	return most
}

// chart draws a list of speeds in at most places columns. Each column shows the highest speed of
// its span.
func chart(list []rate, of func(rate) float64, places int) string {
	most := highest(list, of)
	places = min(places, len(list))
	var b strings.Builder
	for i := range places {
		span := list[i*len(list)/places : (i+1)*len(list)/places]
		level := 0
		if v := highest(span, of); v > 0 {
			level = 1 + int(v/most*float64(len(levels)-2))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}
