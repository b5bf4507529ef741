package top

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// hostile is a text that a server may use as its name, in messages and as the name of a file.
const hostile = "\x1b[35mred\u202e\nAllow? y\x07\u200b\xff" + "a\u2800\u115f   b"

// ownStyles matches the escape sequences of the screen's own styles. None of them is in hostile.
var ownStyles = regexp.MustCompile("\x1b\\[(1|2|7|31|32|33|1;7|1;33)?m")

// newHostileModel returns a model with the text hostile in many fields of foreign text.
func newHostileModel(width, height int) *model {
	m := &model{live: &sessionhub.Sessions{}, width: width, height: height, now: time.Now(), previews: map[string]string{}}
	end := m.now.Add(time.Hour)
	st := control.Status{
		Session: "s", Point: "/mnt/" + hostile, ConfigError: hostile, Server: &control.Confined{Command: []names.Foreign{hostile}, Confinement: "namespaces"},
		Files:   []broker.Stats{{Subject: hostile, Server: hostile}},
		Network: &control.NetState{Connections: []control.NetConnection{{Host: hostile, Rate: 1 << 40}}, Unapproved: []control.NetUnapproved{{Host: hostile, Times: 1}}},
	}
	for i := range 30 {
		st.Roots = append(st.Roots, control.Root{Name: names.Foreign(fmt.Sprint("root", i, hostile)), Resolved: names.Foreign("/" + strings.Repeat(hostile, 20)), Mode: "ro", State: "live", Expires: &end,
			Limits: guard.Limits{MaxWritten: 10, MaxCreated: 3}, Written: 1 << 40})
	}
	q := control.Question{OfSession: control.OfSession{Session: "s"}, Question: broker.Question{ID: "q", Server: hostile, Message: names.Foreign(strings.Repeat(hostile, 50)), Subject: hostile,
		Asked: m.now, Until: end, Items: []broker.Item{{Requested: hostile, Resolved: "/" + hostile, Mode: "rw"}, {Requested: hostile, Problem: hostile}}}}
	two := q
	two.ID = "r"
	m.apply(sessionhub.Update{Sessions: []sessionhub.Session{{Status: st, Problem: hostile}}, QuestionsIncluded: true, Questions: []control.Question{q, two},
		Denials: []control.Denial{{OfSession: control.OfSession{Session: "s"}, ID: "d", Subject: hostile, Path: "/" + hostile}},
		Events:  []control.Event{{OfSession: control.OfSession{Session: "s"}, Kind: "refusal", Op: "open", Path: hostile, Reason: "Permission", Detail: hostile}}})
	m.stage = stageView{session: "s", root: hostile, list: sessionhub.StageListAnswer{
		Rows:        []sessionhub.StageRow{{StageChange: control.StageChange{Path: []byte(hostile), Class: 'C', Why: hostile}}, {StageChange: control.StageChange{Path: []byte("b"), Class: sessionhub.UnitClass}}},
		Checkpoints: []control.Checkpoint{{Number: 1, Name: hostile, Cause: hostile, Time: m.now}}},
		diff: sessionhub.StageDiffAnswer{Lines: []string{"@@ -1 +1 @@", "-" + hostile, "+" + hostile, "+" + strings.Repeat(" ", 400) + "far away", "+\t\tx"}}}
	m.speeds["s"].total = []rate{{ops: 1}, {ops: 1 << 40, read: 1 << 60}}
	m.found = auditview.SearchResult{Entries: []auditview.Entry{{Session: hostile, Op: hostile, Verdict: "refused", Path: hostile, Detail: hostile}}}
	m.message, m.glob, m.text, m.path = hostile, hostile, hostile, "/"+hostile
	return m
}

// With hostile texts of servers and hostile names of files, the screen keeps its size and shows no
// control, bidirectional or invisible characters.
func TestScreenIsSafe(t *testing.T) {
	for _, size := range [][2]int{{150, 40}, {80, 24}, {20, 5}, {1, 1}, {0, 0}} {
		for v := range viewStage + 1 {
			for ty := range typingForget + 1 {
				m := newHostileModel(size[0], size[1])
				m.view, m.typing = v, ty
				text := ownStyles.ReplaceAllString(m.View().Content, "")
				lines := strings.Split(text, "\n")
				if len(lines) > max(size[1], 4) {
					t.Errorf("%v, view %d: %d lines", size, v, len(lines))
				}
				for _, l := range lines {
					if ansi.StringWidth(l) > max(size[0], 1) {
						t.Errorf("%v, view %d: %d wide: %q", size, v, ansi.StringWidth(l), l)
					}
					if strings.ContainsAny(l, "\x1b\x07\u202e\u200b\r\u2800\u115f") || strings.Contains(l, "   b") {
						t.Errorf("%v, view %d: %q", size, v, l)
					}
				}
			}
		}
	}
}

// Keys answer no question in its first moment, outside the view of the questions, or while a
// line is typed.
func TestAnswersSettle(t *testing.T) {
	key := func(m *model, k string) tea.Cmd {
		_, cmd := m.Update(tea.KeyPressMsg{Text: k, Code: []rune(k)[0]})
		return cmd
	}
	for _, k := range []string{"r", "w", "d", "D"} {
		m := newHostileModel(100, 30)
		if m.view = viewAsk; key(m, k) != nil {
			t.Errorf("%s answers at once", k)
		}
		readAll(m)
		m.since = time.Now().Add(-2 * settle)
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
		// When the first question is over, the next one comes to the front, and its settle time
		// begins.
		m.apply(sessionhub.Update{QuestionsIncluded: true, Questions: m.questions[1:]})
		if m.front != "r" || key(m, k) != nil {
			t.Errorf("%s answers the next question (%s) at once", k, m.front)
		}
	}
	// A narrowing that was entered for one question does not apply to another.
	m := newHostileModel(100, 30)
	m.path, m.span = "/x", 2
	m.apply(sessionhub.Update{QuestionsIncluded: true, Questions: m.questions[1:]})
	if m.path != "" || m.span != 0 {
		t.Errorf("the next question is narrowed to %q for %v", m.path, spans[m.span])
	}
	// A later question does not take the front.
	first := m.questions[0]
	late := first
	late.ID = "a"
	m.apply(sessionhub.Update{QuestionsIncluded: true, Questions: []control.Question{late, first}})
	if m.front != "r" || m.frontIndex != 1 {
		t.Errorf("in front is %s", m.front)
	}
}

// Whatever questions and roots do while keys are pressed, held and typed ahead, a key
// grants only what has been on the screen, unchanged, for the settle time.
func TestKeysGrantWhatWasSeen(t *testing.T) {
	rnd := rand.New(rand.NewPCG(36, 3))
	m := &model{live: &sessionhub.Sessions{}, width: 100, height: 60, now: time.Now(), previews: map[string]string{}, scroll: scroll{follow: true}}
	made := 0
	question := func(id string) control.Question {
		made++
		return control.Question{OfSession: control.OfSession{Session: "s"}, Question: broker.Question{ID: id, Subject: "x", Message: names.Foreign(strings.Repeat("please ", rnd.IntN(200))), Asked: m.now, Until: m.now.Add(24 * time.Hour),
			Items: []broker.Item{{Requested: "/p", Resolved: names.Foreign(fmt.Sprint("/p", made)), Mode: "rw"}}}}
	}
	root := func() control.Root {
		made++
		return control.Root{Name: names.Foreign(fmt.Sprint("r", made)), Epoch: uint64(made), Mode: []string{"ro", "rw"}[rnd.IntN(2)]}
	}
	questions, roots := []control.Question{question("a"), question("b")}, []control.Root{root(), root()}
	send := func() {
		m.apply(sessionhub.Update{Sessions: []sessionhub.Session{{Status: control.Status{Session: "s", Roots: slices.Clone(roots)}}}, QuestionsIncluded: true, Questions: slices.Clone(questions)})
	}
	send()
	// target returns the root or question that a granting key would act upon.
	target := func() string {
		rows := m.rows()
		switch {
		case m.view == viewAsk && len(m.questions) > 0:
			return fmt.Sprintf("%+v", m.questions[m.frontIndex])
		case m.view == viewNow && len(rows) > 0:
			return fmt.Sprintf("%+v", rows[m.row].root)
		}
		return ""
	}
	seen, since, answered := "", m.now, time.Time{}
	keys := []string{"r", "r", "w", "w", "m", "m", "d", "up", "down", "1", "2", "tab", "pgdown", "x"}
	early, late, key := 0, 0, "r"
	for range 2000 {
		if rnd.IntN(4) > 0 { // otherwise the previous key is held down
			key = keys[rnd.IntN(len(keys))]
		}
		m.now = m.now.Add(time.Duration(rnd.IntN(100)*rnd.IntN(20)) * time.Millisecond)
		switch rnd.IntN(12) {
		case 0:
			questions = append(questions[min(len(questions), rnd.IntN(2)):], question(fmt.Sprint("q", made)))
		case 1:
			i := rnd.IntN(len(questions))
			questions[i] = question(questions[i].ID)
		case 2:
			roots = append(roots[rnd.IntN(2):], root())
		case 3:
			roots[0].Mode = root().Mode
		}
		send()
		m.View()
		before := target()
		if before != seen {
			seen, since = before, m.now
		}
		grants := m.view == viewAsk && (key == "r" || key == "w") || m.view == viewNow && key == "m" && len(m.rows()) > 0 && m.rows()[m.row].root.Mode != "rw"
		if cmd := m.press(key, key); cmd != nil && m.typing == typingNothing && target() == before && (grants || m.view == viewAsk && key == "d") {
			if grants && (m.now.Sub(since) < settle || m.now.Sub(answered) < settle) {
				early++
			} else if grants {
				late++
			}
			if m.view == viewAsk {
				answered = m.now
			}
		}
		m.View()
		if after := target(); after != seen {
			seen, since = after, m.now
		}
	}
	if early > 0 || late < 20 {
		t.Errorf("%d grants within the settle time, %d after it", early, late)
	}
}

// A key answers no question if the program was stopped until the key was pressed, if the previous key
// has just answered a question or shown this one, or if the key is held down.
func TestTypedAhead(t *testing.T) {
	for _, keys := range []string{"r", "dr", "2r"} {
		m := newHostileModel(100, 200)
		readAll(m)
		m.since = time.Now().Add(-2 * settle)
		switch keys {
		case "r":
			m.now = time.Now().Add(-time.Minute)
		case "2r":
			m.view = viewNow
		}
		var cmd tea.Cmd
		for _, k := range keys {
			_, cmd = m.Update(tea.KeyPressMsg{Text: string(k), Code: k})
			m.View()
		}
		if cmd != nil {
			t.Errorf("the last key of %q answers", keys)
		}
	}
	m := newHostileModel(100, 200)
	readAll(m)
	for range 50 { // held down
		m.now = m.now.Add(settle / 5)
		if m.press("r", "r") != nil {
			t.Fatal("a key that is held down answers")
		}
	}
}

// A long name leaves room for the text beside it, and can be read whole.
func TestLongNames(t *testing.T) {
	long := "begin" + strings.Repeat("x", 246) + "ender"
	for _, width := range []int{150, 80, 40} {
		m := &model{live: &sessionhub.Sessions{}, width: width, height: 60, now: time.Now(), previews: map[string]string{}, scroll: scroll{follow: true}}
		q := control.Question{OfSession: control.OfSession{Session: long}, Question: broker.Question{ID: "q", Server: names.Foreign(long), Subject: guard.Subject(long), Until: m.now.Add(time.Minute + time.Second/2), Items: []broker.Item{{Resolved: "/p", Mode: "rw"}}}}
		m.apply(sessionhub.Update{Sessions: []sessionhub.Session{{Status: control.Status{Session: long, Point: "/mnt", Roots: []control.Root{{Name: names.Foreign(long), Mode: "rw", State: "live", Resolved: "/p"}}, Files: []broker.Stats{{Subject: names.Foreign(long), Requests: 7}}}}},
			QuestionsIncluded: true, Questions: []control.Question{q}, Events: []control.Event{{OfSession: control.OfSession{Session: long}, Kind: "refusal", Op: "open", Path: names.Text(long), Reason: "Permission"}}})
		text := strings.Join(strings.Fields(ansi.Strip(m.View().Content)), " ")
		for _, want := range []string{"er rw live", " /p ", "7 requests", " Permission"} {
			if (width >= 80 || want[0] != ' ' && want[0] != '7') && !strings.Contains(text, want) {
				t.Errorf("at width %d, %q is not on the screen:\n%s", width, want, text)
			}
		}
		whole := func(text string) bool {
			return strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(text, bar, "")), ""), `"`+long+`"`)
		}
		if !whole(text) {
			t.Errorf("at width %d, the name of the chosen root is not shown whole:\n%s", width, text)
		}
		m.showView(viewAsk)
		if text = ansi.Strip(m.View().Content); !whole(text) || width >= 80 && !strings.Contains(text, ": 1m0s left") {
			t.Errorf("at width %d, the name of the server is not shown whole, or the time left is missing:\n%s", width, text)
		}
	}
}

// A denial is lifted by its number in the list as it was shown when the user began to type.
func TestForget(t *testing.T) {
	m := newHostileModel(100, 30)
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
	m.apply(sessionhub.Update{QuestionsIncluded: true, Questions: m.questions, Denials: []control.Denial{{ID: "other"}, first}})
	if len(m.denialChoices) != 1 || m.denialChoices[0].ID != first.ID {
		t.Errorf("the list changed while the user typed: %+v", m.denialChoices)
	}
	for _, wrong := range []string{"", "0", "2", "x", "-1", "99999999999999999999"} {
		m.typing, m.text, m.denialChoices = typingForget, wrong, m.denialChoices[:1]
		if press("enter") != nil || !m.isError {
			t.Errorf("%q is taken for the number of a denial", wrong)
		}
	}
	m.typing, m.text = typingForget, ""
	if press("1", "enter") == nil || m.typing != typingNothing {
		t.Error("nothing is lifted")
	}
	m.denials = nil
	if press("f"); m.typing != typingNothing {
		t.Error("there is no denial, and a number is asked for")
	}
}

// No part of a text is lost at the end of a line, and no line is too long.
func TestExact(t *testing.T) {
	for range 2000 {
		var b strings.Builder
		for range rand.IntN(100) {
			b.WriteByte("ab  /:,"[rand.IntN(7)])
		}
		p := &page{width: 12 + rand.IntN(20)}
		p.addExact(none, "  ", b.String())
		got := ""
		for _, l := range p.lines {
			l = ansi.Strip(l)
			if ansi.StringWidth(l) > p.width {
				t.Fatalf("%q is %d wide", l, ansi.StringWidth(l))
			}
			l = strings.TrimPrefix(l, "  ")
			if got != "" {
				if !strings.HasPrefix(l, bar) {
					t.Fatalf("%q begins like a line of the console itself", l)
				}
				l = l[len(bar):]
			}
			got += l
		}
		if got != b.String() {
			t.Fatalf("%q, shown as %q", b.String(), got)
		}
		p.lines = nil
		p.addWrapped(none, "  ", b.String(), math.MaxInt)
		for _, l := range p.lines {
			if strings.Contains(l, "…") {
				t.Fatalf("%q is cut in %q", l, b.String())
			}
		}
	}
}

// readAll shows the questions, and turns the pages until all of the one in front was on the screen.
func readAll(m *model) (pages int) {
	m.showView(viewAsk)
	for m.View(); m.scroll.missing() > 0; m.View() {
		m.press("pgdown", "")
		pages++
	}
	return pages
}

// A key grants only paths that have been on the screen, each with its end, however many and
// long they are.
func TestAllowNeedsAllOnTheScreen(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 15}, {20, 8}} {
		m := newHostileModel(size[0], size[1])
		q := &m.questions[0]
		q.Items = nil
		for i := range 32 {
			q.Items = append(q.Items, broker.Item{Resolved: names.Foreign(fmt.Sprintf("/%s/end%d", strings.Repeat("deep/", 20), i)), Mode: "rw"})
		}
		m.view = viewAsk
		m.bringToFront()
		m.View()
		m.since = time.Now().Add(-2 * settle)
		for _, k := range []string{"r", "w"} {
			if m.press(k, k) != nil || !m.isError {
				t.Errorf("%v: %s allows what was not on the screen", size, k)
			}
		}
		if m.press("d", "d") == nil {
			t.Errorf("%v: an unread question cannot be denied", size)
		}
		m.message = ""
		seen := ""
		m.View()
		for n := 0; m.scroll.missing() > 0; n++ {
			seen += ansi.Strip(m.View().Content) + "\n"
			m.press("pgdown", "")
			if n > 5000 {
				t.Fatalf("%v: no end: %+v", size, m.scroll)
			}
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(seen, bar, "")), "")
		for i := range 32 {
			if !strings.Contains(text, fmt.Sprintf("end%d\"", i)) {
				t.Errorf("%v: path %d was never shown to its end", size, i)
			}
		}
		if m.press("r", "r") != nil {
			t.Errorf("%v: the question is allowed as soon as its end is shown", size)
		}
		m.since = m.now.Add(-2 * settle)
		if m.press("r", "r") == nil {
			t.Errorf("%v: r does not allow, although all was on the screen: %s", size, m.message)
		}
		// Text that comes later and is not on the screen does not count as read.
		m.since = m.now.Add(-2 * settle)
		m.previews[previewKey(m.front, 0)] = "names that the policy would hide: 7"
		if m.View(); m.press("r", "r") != nil {
			t.Errorf("%v: r allows, although a later text was not on the screen", size)
		}
		for n := 0; m.scroll.missing() > 0 && n < 5000; n++ {
			m.press("pgup", "")
			m.View()
		}
		m.since = m.now.Add(-2 * settle)
		if m.press("r", "r") == nil {
			t.Errorf("%v: r does not allow, although the later text was on the screen: %s", size, m.message)
		}
		// After a change of the screen's size, the text has to be read again.
		m.Update(tea.WindowSizeMsg{Width: size[0] - 1, Height: 6})
		if m.View(); m.press("r", "r") != nil {
			t.Errorf("%v: r allows what was on the screen at another size", size)
		}
	}
}

// The mark stays on its root when the root moves in the list. When the root has ended, a key
// ends no other root in the first moment.
func TestTheMarkStays(t *testing.T) {
	m := &model{live: &sessionhub.Sessions{}, width: 80, height: 10, now: time.Now(), scroll: scroll{follow: true}}
	list := func(all ...string) {
		st := control.Status{Session: "s"}
		for i, n := range all {
			st.Roots = append(st.Roots, control.Root{Name: names.Foreign(n), Epoch: uint64(n[0]), Resolved: names.Foreign(fmt.Sprint("/", i))})
		}
		m.apply(sessionhub.Update{Sessions: []sessionhub.Session{{Status: st}}})
	}
	at := func() string { return m.rows()[m.row].root.Name.Raw() }
	list("b", "c")
	m.press("down", "")
	if at() != "c" || m.press("x", "x") == nil {
		t.Fatalf("chosen is %s", at())
	}
	list("a", "b", "c", "d")
	if at() != "c" || m.press("x", "x") == nil {
		t.Errorf("the mark has moved to %s", at())
	}
	list("a", "b", "d")
	for _, k := range []string{"x", "X", "m"} {
		if m.press(k, k) != nil || !m.isError {
			t.Errorf("%s acts on %s, which nobody chose", k, at())
		}
	}
	m.press("up", "")
	if at() != "b" || m.press("x", "x") == nil {
		t.Errorf("chosen anew is %s", at())
	}
	// The chosen root is on the screen, however many roots there are.
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("%c-%d", 'A'+i/10, i))
	}
	list(many...)
	for range 60 {
		m.press("down", "")
		if text := ansi.Strip(m.View().Content); !strings.Contains(text, at()+" ") {
			t.Fatalf("%s is not on the screen:\n%s", at(), text)
		}
	}
	m.press("home", "")
	if text := ansi.Strip(m.View().Content); !strings.Contains(text, "A-0 ") {
		t.Errorf("the first root is not on the screen:\n%s", text)
	}
}

// After ten thousand events the number of kept ones is still bounded.
func TestManyEvents(t *testing.T) {
	m := newHostileModel(100, 30)
	for i := range 10_000 {
		m.apply(sessionhub.Update{Events: []control.Event{{OfSession: control.OfSession{Session: "s"}, Kind: "refusal", PID: int32(i)}}})
	}
	if len(m.events) != maxEvents || m.events[0].PID != 9999 {
		t.Errorf("%d events, the newest is %d", len(m.events), m.events[0].PID)
	}
}

// Everything is revoked only after a yes.
func TestEverythingAsks(t *testing.T) {
	m := newHostileModel(100, 30)
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
