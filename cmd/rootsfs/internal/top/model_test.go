package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/live"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/records"
	"github.com/rootsfs/rootsfs/guard"
)

// hostile is what a server may call itself, say, and name a file.
const hostile = "\x1b[31mred\u202e\nAllow? y\x07\u200b\xff" + "ab"

// full is a model with something hostile in every place.
func full(width, height int) *model {
	m := &model{hub: &live.Hub{}, width: width, height: height, now: time.Now(), inside: map[string]string{}}
	end := m.now.Add(time.Hour)
	st := control.Status{
		Session: "s", Point: "/mnt/" + hostile, ConfigError: hostile, Server: &control.Confined{Command: []string{hostile}, Confinement: "namespaces"},
		Files: []broker.Stats{{Subject: hostile, Server: hostile}},
	}
	for i := range 30 {
		st.Roots = append(st.Roots, control.Root{Name: fmt.Sprint("root", i, hostile), Resolved: "/" + strings.Repeat(hostile, 20), Mode: "ro", State: "live", Expires: &end,
			Limits: guard.Limits{MaxWritten: 10, MaxCreated: 3}, Written: 1 << 40})
	}
	q := live.Question{Session: "s", Question: control.Question{Question: broker.Question{ID: "q", Server: hostile, Message: strings.Repeat(hostile, 50), Subject: hostile,
		Asked: m.now, Until: end, Items: []broker.Item{{Requested: hostile, Resolved: "/" + hostile, Mode: "rw"}, {Requested: hostile, Problem: hostile}}}}}
	two := q
	two.ID = "r"
	m.take(live.Update{Sessions: []live.Session{{Status: st, Problem: hostile}}, Asked: true, Questions: []live.Question{q, two},
		Denials: []live.Denial{{Session: "s", Denial: control.Denial{ID: "d", Subject: hostile, Path: "/" + hostile}}},
		Figures: map[string]control.Figures{"s": {Last: 2, Times: []int64{1, 2}, Total: []control.Rate{{Ops: 1}, {Ops: 1 << 40, Read: 1 << 60}}}},
		Events:  []live.Event{{Session: "s", Event: control.Event{Kind: "refusal", Op: "open", Path: hostile, Reason: "Permission", Detail: hostile}}}})
	m.found = records.Found{Entries: []records.Entry{{Session: hostile, Op: hostile, Verdict: "refused", Path: "a"}}}
	m.said, m.glob, m.text, m.path = hostile, hostile, hostile, "/"+hostile
	return m
}

// Whatever servers say and files are called, the screen keeps its size, and the
// terminal gets no control characters but those of the styles.
func TestScreenIsSafe(t *testing.T) {
	for _, size := range [][2]int{{150, 40}, {80, 24}, {20, 5}, {1, 1}, {0, 0}} {
		for v := range viewHistory + 1 {
			for ty := range typingForget + 1 {
				m := full(size[0], size[1])
				m.view, m.typing = v, ty
				text := ansi.Strip(m.View().Content)
				lines := strings.Split(text, "\n")
				if len(lines) > max(size[1], 4) {
					t.Errorf("%v, view %d: %d lines", size, v, len(lines))
				}
				for _, l := range lines {
					if ansi.StringWidth(l) > max(size[0], 1) {
						t.Errorf("%v, view %d: %d wide: %q", size, v, ansi.StringWidth(l), l)
					}
					if strings.ContainsAny(l, "\x1b\x07\u202e\u200b\r") {
						t.Errorf("%v, view %d: %q", size, v, l)
					}
				}
			}
		}
	}
}

// Keys answer nothing in the first moment of a question, nor outside the view of
// the questions, nor while a line is typed.
func TestAnswersSettle(t *testing.T) {
	key := func(m *model, k string) tea.Cmd {
		_, cmd := m.Update(tea.KeyPressMsg{Text: k, Code: []rune(k)[0]})
		return cmd
	}
	for _, k := range []string{"r", "w", "d", "D"} {
		m := full(100, 30)
		if m.view = viewAsk; key(m, k) != nil {
			t.Errorf("%s answers at once", k)
		}
		m.since = time.Now().Add(-2 * Settle)
		m.view = viewNow
		if key(m, k) != nil {
			t.Errorf("%s answers from another view", k)
		}
		m.view, m.typing = viewAsk, typingPath
		if key(m, k) != nil {
			t.Errorf("%s answers while a line is typed", k)
		}
		m.typing = typingNothing
		if key(m, k) == nil {
			t.Errorf("%s does not answer", k)
		}
		// The next one comes to the front when the first is over: it settles anew.
		m.take(live.Update{Asked: true, Questions: m.questions[1:]})
		if m.front != "r" || key(m, k) != nil {
			t.Errorf("%s answers the next question (%s) at once", k, m.front)
		}
	}
	// What was narrowed for one question does not hold for another.
	m := full(100, 30)
	m.path, m.span = "/x", 2
	m.take(live.Update{Asked: true, Questions: m.questions[1:]})
	if m.path != "" || m.span != 0 {
		t.Errorf("the next question is narrowed to %q for %v", m.path, spans[m.span])
	}
	// One that came later does not take the front.
	first := m.questions[0]
	late := first
	late.ID = "a"
	m.take(live.Update{Asked: true, Questions: []live.Question{late, first}})
	if m.front != "r" || m.asked != 1 {
		t.Errorf("in front is %s", m.front)
	}
}

// A denial is lifted by its number, in the list as it was when that was asked for.
func TestForget(t *testing.T) {
	m := full(100, 30)
	m.view = viewAsk
	press := func(keys ...string) (cmd tea.Cmd) {
		for _, k := range keys {
			cmd = m.press(k, k)
		}
		return cmd
	}
	press("f")
	if m.typing != typingForget {
		t.Fatal("f asks for no number")
	}
	first := m.denials[0]
	m.take(live.Update{Asked: true, Questions: m.questions, Denials: []live.Denial{{Denial: control.Denial{ID: "other"}}, first}})
	if len(m.listed) != 1 || m.listed[0].ID != first.ID {
		t.Errorf("the list moved under the finger: %+v", m.listed)
	}
	for _, wrong := range []string{"", "0", "2", "x", "-1", "99999999999999999999"} {
		m.typing, m.text, m.listed = typingForget, wrong, m.listed[:1]
		if press("enter") != nil || !m.bad {
			t.Errorf("%q is taken for a number", wrong)
		}
	}
	m.typing, m.text = typingForget, ""
	if press("1", "enter") == nil || m.typing != typingNothing {
		t.Error("nothing is lifted")
	}
	m.denials = nil
	if press("f"); m.typing != typingNothing {
		t.Error("there is none, and one is asked for")
	}
}

// Ten thousand events leave what is kept bounded.
func TestManyEvents(t *testing.T) {
	m := full(100, 30)
	for i := range 10_000 {
		m.take(live.Update{Events: []live.Event{{Session: "s", Event: control.Event{Kind: "refusal", PID: int32(i)}}}})
	}
	if len(m.events) != keptEvents || m.events[0].PID != 9999 {
		t.Errorf("%d events, the newest is %d", len(m.events), m.events[0].PID)
	}
}

// Everything is revoked only after a yes.
func TestEverythingAsks(t *testing.T) {
	m := full(100, 30)
	press := func(k string) tea.Cmd {
		_, cmd := m.Update(tea.KeyPressMsg{Text: k, Code: []rune(k)[0]})
		return cmd
	}
	for _, k := range []string{"n", "x", "Y", " "} {
		if press("E") != nil || m.typing != typingSure || press(k) != nil || m.typing != typingNothing {
			t.Errorf("%q is taken for a yes", k)
		}
	}
	if press("E"); press("y") == nil {
		t.Error("y is no yes")
	}
}
