package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxTyped bounds a typed line, in bytes.
const maxTyped = 4096

// press handles a key. text is the text that the key types, if any.
func (m *model) press(key, text string) tea.Cmd {
	if key == "ctrl+c" {
		return tea.Quit
	}
	if m.typing != typingNothing {
		return m.pressTyping(key, text)
	}
	switch key {
	case "q":
		return tea.Quit
	case "1":
		return m.showView(viewNow)
	case "2":
		return m.showView(viewAsk)
	case "3":
		return m.showView(viewHistory)
	case "tab":
		return m.showView((m.view + 1) % viewStage)
	case "E":
		m.typing, m.text = typingSure, ""
	default:
		if m.pressScroll(key) {
			return nil
		}
		switch m.view {
		case viewNow:
			return m.pressNow(key)
		case viewAsk:
			return m.pressAsk(key)
		case viewHistory:
			return m.pressHistory(key)
		case viewStage:
			return m.pressStage(key)
		}
	}
	return nil
}

func (m *model) pressNow(key string) tea.Cmd {
	rows := m.rows()
	switch key {
	case "up", "k":
		m.choose(rows, m.row-1)
		return nil
	case "down", "j":
		m.choose(rows, m.row+1)
		return nil
	}
	if len(rows) == 0 || !slices.Contains([]string{"x", "X", "m", "s"}, key) {
		return nil
	}
	if m.now.Sub(m.moved) < settle {
		m.message, m.isError = "the chosen root has just ended or changed: look again, then press the key", true
		return nil
	}
	at := rows[m.row]
	if key == "m" && at.root.Mode != widestMode(&at.root) && m.refuseEarly() {
		return nil
	}
	switch key {
	case "x":
		return m.revoke(control.RevokeRequest{Names: []string{at.root.Name.Raw()}}, at.session)
	case "X":
		return m.revoke(control.RevokeRequest{All: true}, at.session)
	case "m":
		return m.toggleMode(at)
	case "s":
		return m.showStage(at)
	}
	return nil
}

func (m *model) pressAsk(key string) tea.Cmd {
	if key == "f" && len(m.denials) > 0 {
		// The list does not change while the user types a number.
		m.typing, m.text, m.denialChoices = typingForget, "", m.denials
		return nil
	}
	if len(m.questions) == 0 {
		return nil
	}
	switch key {
	case "up", "k":
		m.frontIndex = max(0, m.frontIndex-1)
		return m.bringToFront()
	case "down", "j":
		m.frontIndex = min(m.frontIndex+1, len(m.questions)-1)
		return m.bringToFront()
	case "t":
		m.span = (m.span + 1) % len(spans)
		return nil
	case "n":
		if m.questions[m.frontIndex].Host != nil {
			m.message, m.isError = "a host is allowed as it is asked for: w, or t and w for a time", true
			return nil
		}
		m.typing, m.text = typingPath, m.path
		// A damaged or hostile session can send a question without items.
		if items := m.questions[m.frontIndex].Items; m.text == "" && len(items) > 0 {
			m.text = items[0].Resolved.Raw()
		}
		return nil
	}
	if m.refuseEarly() {
		return nil
	}
	if why := m.unseenReason(); why != "" && (key == "r" || key == "w") {
		m.message, m.isError = why, true
		return nil
	}
	if key == "r" && m.questions[m.frontIndex].Host != nil {
		m.message, m.isError = "a host is allowed as it is asked for: w", true
		return nil
	}
	req, ok := map[string]control.AnswerRequest{"r": {Approve: true, Mode: "ro"}, "w": {Approve: true}, "d": {}, "D": {Remember: true}}[key]
	if !ok {
		return nil
	}
	m.since = m.now // a further key within settle answers nothing
	return m.answer(req)
}

// refuseEarly reports whether a key comes so soon that the user may have typed it at an earlier
// screen. Each early key starts the time again, so keys of a user who goes on typing, or holds
// a key down, stay early.
func (m *model) refuseEarly() bool {
	if m.now.Sub(m.since) >= settle {
		return false
	}
	m.since = m.now
	m.message, m.isError = "this has just come, moved or changed: look again, then press the key", true
	return true
}

func (m *model) pressHistory(key string) tea.Cmd {
	switch key {
	case "up", "k":
		m.scroll.turn(-1)
	case "down", "j":
		m.scroll.turn(1)
	case "/":
		m.typing, m.text = typingSearch, m.glob
	case "v":
		return m.verify()
	case "enter":
		return m.find()
	}
	return nil
}

// pressTyping handles a key while the user types a line.
func (m *model) pressTyping(key, text string) tea.Cmd {
	what := m.typing
	switch key {
	case "esc":
		m.typing = typingNothing
		return nil
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.text)
		m.text = m.text[:len(m.text)-n]
		return nil
	case "ctrl+u":
		m.text = ""
		return nil
	case "enter":
		m.typing = typingNothing
	default:
		if what == typingSure {
			m.typing = typingNothing
			if key == "y" {
				return m.revoke(control.RevokeRequest{All: true}, m.live.Names()...)
			}
			return nil
		}
		if len(m.text)+len(text) <= maxTyped {
			m.text += text
		}
		return nil
	}
	switch what {
	case typingPath:
		m.path = strings.TrimSpace(m.text)
	case typingSearch:
		m.glob = strings.TrimSpace(m.text)
		return m.find()
	case typingForget:
		n, err := strconv.Atoi(strings.TrimSpace(m.text))
		if err != nil || n < 1 || n > len(m.denialChoices) {
			m.message, m.isError = fmt.Sprintf("there is no denial %s: write a number from 1 to %d", names.QuoteShort(m.text), len(m.denialChoices)), true
			return nil
		}
		return m.lift(m.denialChoices[n-1])
	case typingNothing, typingSure:
	}
	return nil
}
