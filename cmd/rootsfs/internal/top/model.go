// Package top is the console in a terminal: it shows every live session of the user with its
// roots and events, the questions of servers, and the records. It has the same source (package
// sessionhub) and the same actions as the console's web page, and decides nothing itself.
//
// # Promises
//
//   - No text of a server, and no name of a file, reaches the terminal with control
//     or bidirectional characters: each is escaped, and no line is longer than the
//     terminal is wide.
//   - Keys that answer a question work only while the questions have the focus. These keys, and
//     the key that makes a root writable, do not work within settle after their target has come
//     to the front, has changed, or was scrolled to. A key that comes too soon starts the time
//     again. So a key that was typed ahead, or is held down, answers nothing.
//   - Leaving the console ends no session.
//
// # Not promised
//
// The layout of the screen may change. Only the goroutine of the terminal library may use the
// model.
package top

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
)

// settle is how long a key does not grant or answer after its target came to the front,
// changed, or was acted upon.
const settle = 700 * time.Millisecond

// stalled is the time without any message, even the tick of each second, after which the
// process counts as having been stopped. Keys that come then were typed at an older screen.
const stalled = 3 * time.Second

const (
	maxEvents   = 200
	maxFound    = 200
	actTimeout  = time.Minute
	findTimeout = 20 * time.Second
)

// view is a part of the console: its sessions, its questions, its records, or the stage of one
// root.
type view int

const (
	viewNow view = iota
	viewAsk
	viewHistory
	viewStage // of one root; not among the tabs
)

// typing is the purpose of the line that the user is typing.
type typing int

const (
	typingNothing typing = iota
	typingPath           // a narrower path for the question in front
	typingSearch         // a glob for the records
	typingSure           // y, to revoke everything
	typingForget         // the number of a denial to be lifted
)

// spans are the durations that the user can choose for a consent; 0: as long as the session.
var spans = []time.Duration{0, 15 * time.Minute, time.Hour, 8 * time.Hour}

// model is the state of the screen.
type model struct {
	live  *sessionhub.Sessions
	store *auditview.Store
	ctx   context.Context //nolint:containedctx // the context of Run

	width, height int
	now           time.Time
	view          view
	sessions      []sessionhub.Session
	speeds        map[string]*speeds
	questions     []control.Question
	denials       []control.Denial
	denialChoices []control.Denial // the denials when the user began to choose one
	events        []control.Event  // the newest first
	lost          int
	row           int       // the index of the chosen root among the roots of all sessions
	chosen        rootKey   // the root in row
	mode          string    // of the chosen root
	moved         time.Time // when another root came to row, or mode changed, without a key
	scroll        scroll
	frontIndex    int // the index of the question in front
	front         string
	frontQuestion control.Question
	since         time.Time // when the target of keys came to the front or changed, or a key came too soon
	previews      map[string]string
	span          int // an index of spans
	path          string
	typing        typing
	text          string
	glob          string
	found         auditview.SearchResult
	finding       bool
	stage         stageView
	message       string
	isError       bool // message is an error
}

// framesPerSecond is how often the screen may change. bubbletea wakes up that often, even if
// nothing changes; its default of 60 is for animations.
const framesPerSecond = 20

// Messages.
type (
	tickMsg    time.Time
	resultMsg  struct{ text string }
	errorMsg   struct{ text string }
	foundMsg   struct{ found auditview.SearchResult }
	previewMsg struct{ key, text string }
)

// Run shows the sessions until the user leaves or ctx ends. Input and output are the terminal.
func Run(ctx context.Context, store *auditview.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &model{live: &sessionhub.Sessions{}, store: store, ctx: ctx, now: time.Now(), previews: map[string]string{}, scroll: scroll{follow: true}}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithFPS(framesPerSecond))
	failed := make(chan error, 1)
	go func() {
		err := m.live.Run(ctx)
		failed <- err
		if err != nil {
			p.Quit()
		}
	}()
	sub := m.live.Subscribe()
	defer sub.Close()
	go func() {
		for {
			u, ok := m.live.Next(ctx, sub)
			if !ok {
				return
			}
			p.Send(u)
		}
	}()
	_, err := p.Run()
	ended := ctx.Err() != nil
	cancel()
	if herr := <-failed; herr != nil {
		return herr
	}
	if ended {
		return nil // a signal
	}
	return err
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tick() }

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	now := time.Now()
	if now.Sub(m.now) > stalled {
		m.since, m.moved = now, now
	}
	m.now = now
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.scroll.begin() // the lines have changed
	case tickMsg:
		return m, tick()
	case sessionhub.Update:
		return m, m.apply(msg)
	case resultMsg:
		m.message, m.isError = msg.text, false
	case errorMsg:
		m.message, m.isError = msg.text, true
	case foundMsg:
		m.found, m.finding = msg.found, false
	case stageMsg:
		return m, m.setStage(msg)
	case stageDiffMsg:
		m.setDiff(msg)
	case previewMsg:
		m.previews[msg.key] = msg.text
	case tea.KeyPressMsg:
		return m, m.press(msg.String(), msg.Key().Text)
	}
	return m, nil
}

// apply notes an update.
func (m *model) apply(u sessionhub.Update) tea.Cmd {
	if u.Sessions != nil || u.Empty {
		m.sessions = u.Sessions
		m.countSpeeds()
		m.rechoose()
	}
	for _, e := range u.Events {
		m.events = append([]control.Event{e}, m.events[:min(len(m.events), maxEvents-1)]...)
	}
	m.lost += u.Lost
	if !u.QuestionsIncluded {
		return nil
	}
	m.questions, m.denials = u.Questions, u.Denials
	m.dropPreviews()
	return m.keepFront()
}

// countSpeeds updates the speeds from the counters of sessions, and drops those of ended
// sessions.
func (m *model) countSpeeds() {
	next := make(map[string]*speeds, len(m.sessions))
	for i := range m.sessions {
		name := m.sessions[i].Session
		if next[name] = m.speeds[name]; next[name] == nil {
			next[name] = &speeds{}
		}
		next[name].count(m.now, &m.sessions[i])
	}
	m.speeds = next
}

// keepFront finds the question in front in the new list, and leaves it in front if it is unchanged.
// Otherwise keepFront brings the question at frontIndex to the front.
func (m *model) keepFront() tea.Cmd {
	m.frontIndex = max(0, min(m.frontIndex, len(m.questions)-1))
	for i := range m.questions {
		if m.questions[i].ID == m.front {
			m.frontIndex = i
			if !reflect.DeepEqual(m.questions[i], m.frontQuestion) {
				// This is another question with the same id.
				maps.DeleteFunc(m.previews, func(key, _ string) bool { return strings.HasPrefix(key, m.front+"/") })
				break
			}
			return nil
		}
	}
	return m.bringToFront()
}

// bringToFront brings the question at frontIndex to the front.
func (m *model) bringToFront() tea.Cmd {
	m.front, m.since, m.path, m.span, m.frontQuestion = "", m.now, "", 0, control.Question{}
	if m.view == viewAsk {
		m.scroll.begin()
	}
	if m.typing == typingPath {
		m.typing = typingNothing
	}
	if len(m.questions) == 0 {
		return nil
	}
	q := m.questions[m.frontIndex]
	m.front, m.frontQuestion = q.ID, q
	var looks []tea.Cmd
	for i := range q.Items {
		if _, known := m.previews[previewKey(q.ID, i)]; !known && q.Items[i].Problem == "" {
			looks = append(looks, m.preview(q, i))
		}
	}
	// One after the other: the session refuses too many previews at a time.
	return tea.Sequence(looks...)
}

// dropPreviews drops the previews of ended questions.
func (m *model) dropPreviews() {
	for key := range m.previews {
		id, _, _ := strings.Cut(key, "/")
		live := false
		for i := range m.questions {
			live = live || m.questions[i].ID == id
		}
		if !live {
			delete(m.previews, key)
		}
	}
}

func previewKey(id string, item int) string { return fmt.Sprintf("%s/%d", id, item) }

// rootKey identifies a root, independent of its place in the list.
type rootKey struct {
	session, name string
	epoch         uint64
}

func (r *rootRow) key() rootKey { return rootKey{r.session, r.root.Name.Raw(), r.root.Epoch} }

// choose moves the mark to a row, and begins the settle time of the keys that grant.
func (m *model) choose(rows []rootRow, row int) {
	m.row, m.chosen, m.moved, m.since = max(0, min(row, len(rows)-1)), rootKey{}, time.Time{}, m.now
	m.scroll.follow = true
	if len(rows) > 0 {
		m.chosen, m.mode = rows[m.row].key(), rows[m.row].root.Mode
	}
}

// rechoose keeps the mark on its root when the list has changed. If that root is gone, another
// root gets the mark; for a moment no key revokes it.
func (m *model) rechoose() {
	rows := m.rows()
	for i := range rows {
		if rows[i].key() == m.chosen {
			m.row = i
			if rows[i].root.Mode != m.mode {
				m.mode, m.moved = rows[i].root.Mode, m.now
			}
			return
		}
	}
	first := m.chosen == rootKey{}
	follow := m.scroll.follow
	m.choose(rows, m.row)
	m.scroll.follow = follow
	if !first {
		m.moved = m.now
	}
}

// rootRow is a row in the list of roots.
type rootRow struct {
	session string
	root    control.Root
}

func (m *model) rows() []rootRow {
	var out []rootRow
	for _, s := range m.sessions {
		for _, r := range s.Roots {
			out = append(out, rootRow{s.Session, r})
		}
	}
	return out
}

// inBackground returns a command that runs f with a time limit. bubbletea runs commands in the
// background.
func (m *model) inBackground(limit time.Duration, f func(context.Context) (tea.Msg, error)) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, limit)
		defer cancel()
		msg, err := f(ctx)
		if err != nil {
			return errorMsg{control.Text(err)}
		}
		return msg
	}
}

// do returns a command that runs f in the background, with a session's client.
func (m *model) do(session string, f func(context.Context, *control.Client) (string, error)) tea.Cmd {
	return m.inBackground(actTimeout, func(ctx context.Context) (tea.Msg, error) {
		c, err := m.live.Client(session)
		if err != nil {
			return nil, err
		}
		text, err := f(ctx, c)
		return resultMsg{text}, err
	})
}
