package top

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard/names"
)

// newHostModel returns a model with a question about a host in front.
func newHostModel(width, height int, host broker.Host) *model {
	m := newHostileModel(width, height)
	m.path = ""
	m.apply(sessionhub.Update{QuestionsIncluded: true, Questions: []control.Question{{OfSession: control.OfSession{Session: "s"}, Question: broker.Question{
		Kind: broker.HostKind, ID: "h", Subject: "s", Asked: m.now, Until: m.now.Add(time.Minute), Host: &host,
	}}}, Denials: []control.Denial{{OfSession: control.OfSession{Session: "s"}, ID: "d", Subject: "s", Host: names.Foreign(host.String())}}})
	m.view, m.message = viewAsk, ""
	return m
}

// A question about a host shows the host, the program and at most maxReached reached hosts. w, d
// and D answer the question. r and n do not: they show an error.
func TestHostQuestion(t *testing.T) {
	host := broker.Host{Name: "api.example.org", Port: 443, Program: "/usr/bin/curl", PID: 17, Others: 3}
	for range maxReached + 2 {
		host.Reached = append(host.Reached, broker.Reached{Host: "files.example.org", Port: 22, Sent: 2048, Received: 5})
	}
	m := newHostModel(100, 60, host)
	text := ansi.Strip(m.View().Content)
	for _, want := range []string{
		`the command asks, in session s: `, `to connect to "api.example.org" port 443`, `its program "/usr/bin/curl", process 17`,
		"files.example.org:22: 2.0K sent, 5 received", "and 5 more", `"api.example.org:443"  since`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not on the screen: %s\n%s", want, text)
		}
	}
	if n := strings.Count(text, "files.example.org"); n != maxReached {
		t.Errorf("%d reached hosts are shown", n)
	}
	for key, answers := range map[string]bool{"r": false, "n": false, "w": true, "d": true, "D": true} {
		m := newHostModel(100, 60, host)
		readAll(m)
		m.since = time.Now().Add(-2 * settle)
		if got := m.press(key, key) != nil; got != answers || m.typing != typingNothing || m.isError == answers {
			t.Errorf("%s answers: %v, says %q", key, got, m.message)
		}
	}
	m = newHostModel(100, 60, broker.Host{Name: "1.1.1.1", Port: 1})
	if text := ansi.Strip(m.View().Content); !strings.Contains(text, "which of its programs it is, is not known") || !strings.Contains(text, "it has reached no host so far") {
		t.Errorf("%s", text)
	}
}

func TestHostQuestionIsSafe(t *testing.T) {
	for _, size := range [][2]int{{150, 40}, {80, 24}, {20, 5}, {1, 1}, {0, 0}} {
		m := newHostModel(size[0], size[1], broker.Host{Name: names.Foreign(strings.Repeat(hostile, 9)), Program: names.Foreign("/" + strings.Repeat(hostile, 9)), Reached: []broker.Reached{{Host: hostile}}})
		for _, l := range strings.Split(ansi.Strip(m.View().Content), "\n") {
			if ansi.StringWidth(l) > max(size[0], 1) || strings.ContainsAny(l, "\x1b\x07\u202e\u200b\r\u2800\u115f") || strings.Contains(l, "   b") {
				t.Errorf("%v: %q", size, l)
			}
		}
	}
}

// A question without items, as a damaged or hostile session can send it, is narrowed to nothing.
func TestQuestionWithoutItems(t *testing.T) {
	m := newHostileModel(100, 30)
	m.view, m.path, m.text, m.questions[0].Items = viewAsk, "", "", nil
	if m.Update(tea.KeyPressMsg{Text: "n", Code: 'n'}); m.typing != typingPath || m.text != "" {
		t.Errorf("n begins %v with %q", m.typing, m.text)
	}
}
