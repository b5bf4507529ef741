package top

import (
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

func (m *model) viewAsk(p *page) {
	if len(m.questions) == 0 {
		p.add(faint, "nobody asks")
	}
	for i := range m.questions {
		q := &m.questions[i]
		style := bold
		if i == m.frontIndex {
			style, m.scroll.at = bold.Reverse(true), len(p.lines)
		}
		p.add(style, "%s asks, in session %s: %s left", who(q, max(p.width/4, 8)), brief(q.Session, 16), formatSeconds(q.Until.Sub(m.now)))
		if i == m.frontIndex {
			m.question(p, q)
			m.scroll.end = len(p.lines)
		}
	}
	m.viewDenials(p)
}

// viewDenials lists the remembered denials.
func (m *model) viewDenials(p *page) {
	list := m.denials
	if m.typing == typingForget {
		list = m.denialChoices
	}
	if len(list) == 0 {
		return
	}
	p.add(none, "")
	p.add(bold, "denied without a question, there and below (%d); f: ask me again", len(list))
	for i := range list {
		d := &list[i]
		p.add(none, "  %d. \"%s\" in %s: %s  since %s", i+1, brief(d.Subject, 30), brief(d.Session, 20), names.Quote(d.What()), d.Since.Local().Format(time.TimeOnly))
	}
}

func who(q *control.Question, width int) string {
	switch {
	case q.Host != nil:
		return "the command"
	case q.Server != "":
		return "\"" + brief(q.Server, width) + "\""
	}
	return "\"" + brief(string(q.Subject), width) + "\""
}

func (m *model) question(p *page, q *control.Question) {
	if q.Host != nil {
		m.host(p, q.Host)
	} else {
		m.files(p, q)
	}
	length := "as long as the session"
	if spans[m.span] > 0 {
		length = spans[m.span].String()
	}
	p.add(none, "  for: %s", length)
	if m.path != "" {
		p.addExact(none, "  ", "only: "+names.Quote(m.path))
	}
	p.add(none, "")
}

// host shows a question about a host.
func (m *model) host(p *page, h *broker.Host) {
	p.addExact(bold, "  ", fmt.Sprintf("to connect to %s port %d", names.Quote(h.Name), h.Port))
	if h.Program == "" {
		p.add(none, "  which of its programs it is, is not known")
	} else {
		p.addExact(none, "  ", fmt.Sprintf("its program %s, process %d", names.Quote(h.Program), h.PID))
	}
	if len(h.Reached) == 0 {
		p.add(none, "  it has reached no host so far")
		return
	}
	p.add(none, "  it has reached so far:")
	shown := h.Reached[:min(len(h.Reached), maxReached)]
	for _, r := range shown {
		at := broker.Host{Name: r.Host, Port: r.Port}
		p.add(none, "    %s: %s sent, %s received", brief(at.String(), max(p.width-40, 16)), config.FormatSize(r.Sent), config.FormatSize(r.Received))
	}
	if more := len(h.Reached) - len(shown) + h.Others; more > 0 {
		p.add(none, "    and %d more", more)
	}
}

// maxReached is how many of the hosts that a command has reached are shown.
const maxReached = 8

// files shows a question about files.
func (m *model) files(p *page, q *control.Question) {
	p.addExact(none, "  ", "subject "+names.Quote(string(q.Subject)))
	if q.Server != "" {
		p.addExact(none, "  ", "calls itself "+names.Quote(q.Server))
	}
	p.add(none, "  its reason, in its own words (not checked):")
	p.addWrapped(warn, "    ", names.Quote(q.Message), 6)
	for i := range q.Items {
		it := &q.Items[i]
		where := it.Resolved
		if where == "" {
			where = it.Requested
		}
		what := "with everything below"
		if it.File {
			what = "this file alone"
		}
		// The whole path, however long: it is the path that would be granted.
		p.addExact(bold, "  ", fmt.Sprintf("%d. %s  %s, %s", i+1, names.Quote(where), it.Mode, what))
		if it.Resolved != "" && it.Resolved != it.Requested {
			p.addWrapped(faint, "     ", "asked for as "+names.Quote(it.Requested), 3)
		}
		switch {
		case it.Problem != "":
			p.addWrapped(wrong, "     ", "cannot be granted: "+names.EscapeQuoted(it.Problem), 2)
		default:
			text := m.previews[previewKey(q.ID, i)]
			if text == "" {
				text = "looking at what is there"
			}
			p.addWrapped(faint, "     ", text, 3)
		}
	}
}
