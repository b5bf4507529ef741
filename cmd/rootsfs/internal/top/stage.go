package top

import (
	"context"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard/names"
)

// stageView is the list of the staged changes of one root. It is a picture of one moment: it
// changes only when the user acts, so that no row moves under a key.
type stageView struct {
	session, root, store string
	list                 sessionhub.StageListAnswer
	row                  int
	loading, failed      bool
	diff                 sessionhub.StageDiffAnswer // of row
	diffRow              int                        // the row that diff is of; -1: none yet
	acting               bool                       // a, d and u do nothing before the session has answered
}

// stageMsg has the changes of a stage, and stageDiffMsg the diff of one change.
type (
	stageMsg struct {
		store           string
		list            sessionhub.StageListAnswer
		message         string
		isError, failed bool // failed: there is no list
	}
	stageDiffMsg struct {
		store string
		row   int
		path  string
		diff  sessionhub.StageDiffAnswer
	}
)

// showStage shows the staged changes of a root.
func (m *model) showStage(r rootRow) tea.Cmd {
	if r.root.Stage == nil {
		m.message, m.isError = "the root is not staged: its programs change your files", true
		return nil
	}
	m.stage = stageView{session: r.session, root: r.root.Name.Raw(), store: r.root.Stage.Store.Raw(), loading: true, diffRow: -1}
	m.view, m.since = viewStage, m.now
	m.scroll.begin()
	return m.loadStage(nil)
}

// loadStage calls act, unless act is nil, and then lists the changes.
func (m *model) loadStage(act func(ctx context.Context, c *control.Client) (string, bool, error)) tea.Cmd {
	store, session := m.stage.store, m.stage.session
	m.stage.acting = true
	return m.inBackground(actTimeout, func(ctx context.Context) (tea.Msg, error) {
		msg := stageMsg{store: store}
		c, err := m.live.Client(session)
		if err == nil && act != nil {
			var actErr error
			if msg.message, msg.isError, actErr = act(ctx, c); actErr != nil {
				msg.message, msg.isError = control.Text(actErr), true
			}
		}
		if err == nil {
			msg.list, err = sessionhub.StageList(ctx, c, control.StageRequest{Store: store})
		}
		if err != nil {
			msg.message, msg.isError, msg.failed = control.Text(err), true, true
		}
		return msg, nil
	})
}

// setStage notes the changes of the stage that is shown, and asks for the diff of the chosen
// change.
func (m *model) setStage(msg stageMsg) tea.Cmd {
	st := &m.stage
	if msg.store != st.store {
		return nil // another stage is shown now
	}
	st.list, st.loading, st.failed, st.acting, m.since = msg.list, false, msg.failed, false, m.now
	if msg.message != "" {
		m.message, m.isError = msg.message, msg.isError
	}
	return m.chooseChange(st.row)
}

// chooseChange moves the mark to a change, and asks for its diff.
func (m *model) chooseChange(row int) tea.Cmd {
	st := &m.stage
	st.row, st.diffRow, m.since = max(0, min(row, len(st.list.Rows)-1)), -1, m.now
	m.scroll.follow = true
	if len(st.list.Rows) == 0 {
		return nil
	}
	at, change, store, session := st.row, st.list.Rows[st.row].StageChange, st.store, st.session
	if change.Class == sessionhub.UnitClass {
		return nil
	}
	return m.inBackground(actTimeout, func(ctx context.Context) (tea.Msg, error) {
		c, err := m.live.Client(session)
		if err != nil {
			return nil, err
		}
		diff, err := sessionhub.StageDiff(ctx, c, sessionhub.StageDiffRequest{Store: store, Change: change})
		return stageDiffMsg{store, at, string(change.Path), diff}, err
	})
}

// setDiff notes a diff, unless the mark has moved since.
func (m *model) setDiff(msg stageDiffMsg) {
	st := &m.stage
	if msg.store == st.store && msg.row == st.row && st.row < len(st.list.Rows) && string(st.list.Rows[st.row].Path) == msg.path {
		st.diff, st.diffRow, m.since = msg.diff, msg.row, m.now
	}
}

func (m *model) pressStage(key string) tea.Cmd {
	st := &m.stage
	switch key {
	case "esc":
		return m.showView(viewNow)
	case "up", "k":
		return m.chooseChange(st.row - 1)
	case "down", "j":
		return m.chooseChange(st.row + 1)
	case "enter":
		return m.loadStage(nil)
	}
	if !slices.Contains([]string{"a", "d", "u"}, key) || st.acting || m.refuseEarly() {
		return nil
	}
	store := st.store
	if key == "u" {
		return m.loadStage(func(ctx context.Context, c *control.Client) (string, bool, error) {
			a, err := control.UndoStage.Call(ctx, c, control.UndoRequest{Store: store})
			return fmt.Sprintf("checkpoint %d is back: %d changes of what programs see", a.To.Number, len(a.Changes)), false, err
		})
	}
	if len(st.list.Rows) == 0 {
		return nil
	}
	change := st.list.Rows[st.row]
	if change.Class != sessionhub.UnitClass && st.diffRow != st.row {
		m.message, m.isError = "its diff is not on the screen yet", true
		return nil
	}
	req := control.StageRequest{Store: store, Paths: [][]byte{change.Path}}
	return m.loadStage(func(ctx context.Context, c *control.Client) (string, bool, error) {
		var a control.StageAnswer
		var err error
		verb := "discarded"
		if key == "a" {
			verb = "applied"
			a, err = control.ApplyStage.Call(ctx, c, control.StageApplyRequest{StageRequest: req})
		} else {
			a, err = control.DiscardStage.Call(ctx, c, req)
		}
		if len(a.Left) > 0 {
			return fmt.Sprintf("not %s: %s: %s", verb, names.Quote(string(a.Left[0].Path)), a.Left[0].Why), true, err
		}
		return fmt.Sprintf("%s: %s", verb, names.Quote(string(change.Path))), false, err
	})
}

func (m *model) viewStage(p *page) {
	st := &m.stage
	p.add(bold, "staged in %s, session %s: %d", names.Quote(st.root), brief(st.session, 40), len(st.list.Rows))
	if n := len(st.list.Checkpoints); n > 0 {
		c := &st.list.Checkpoints[n-1]
		p.add(faint, "  last checkpoint: %d \"%s\", %s, %s ago; u: undo", c.Number, brief(c.Name, 20), brief(c.Cause, 40), formatSeconds(m.now.Sub(c.Time)))
	}
	switch {
	case st.loading:
		p.add(faint, "  comparing")
	case st.failed:
		p.add(wrong, "  the changes cannot be listed; enter: again")
	case len(st.list.Rows) == 0:
		p.add(faint, "  nothing differs from your files")
	}
	for i := range st.list.Rows {
		c := &st.list.Rows[i]
		style := none
		if strings.IndexByte("CWPL?", c.Class) >= 0 {
			style = warn
		}
		if i == st.row {
			style, m.scroll.at = chosen, len(p.lines)
		}
		p.add(style, "  %c %s", c.Class, elideMiddle(names.Quote(string(c.Path)), max(p.width-6, 8)))
		if i == st.row {
			m.change(p, c)
		}
	}
}

// change shows the chosen change: its whole path, why it is not applied, and its diff.
func (m *model) change(p *page, c *sessionhub.StageRow) {
	st := &m.stage
	what := c.Kind
	if (c.Mode|c.OldMode)&unix.S_IFMT == unix.S_IFDIR {
		what += "; a and d are about everything below it"
	}
	p.addExact(none, "    ", names.Quote(string(c.Path)))
	p.add(faint, "    %s", what)
	if c.Why != "" {
		p.addWrapped(warn, "    ", names.EscapeQuoted(c.Why), 4)
	}
	if c.Class == sessionhub.UnitClass {
		return
	}
	if st.diffRow != st.row {
		p.add(faint, "    comparing")
		return
	}
	for _, line := range st.diff.Lines {
		p.addExact(diffStyle(line), "    ", diffLine(line))
	}
	if st.diff.Note != "" {
		p.add(faint, "    %s", st.diff.Note)
	}
	p.add(none, "")
}

func diffStyle(line string) lipgloss.Style {
	switch {
	case strings.HasPrefix(line, "+"):
		return good
	case strings.HasPrefix(line, "-"):
		return wrong
	case strings.HasPrefix(line, "@@"):
		return faint
	}
	return none
}

// maxIndent is the widest indentation, in columns, that is shown as it is. For a wider indentation,
// the width is shown instead.
const maxIndent = 40

// diffLine escapes a line of a diff. The indentation behind the line's first character stays, with
// spaces for tabs, unless it is wider than maxIndent.
func diffLine(line string) string {
	if line == "" {
		return ""
	}
	mark, rest := line[:1], line[1:]
	text := strings.TrimLeft(rest, " \t")
	indent := strings.ReplaceAll(rest[:len(rest)-len(text)], "\t", "    ")
	if len(indent) > maxIndent {
		indent = fmt.Sprintf(`\{%d columns}`, len(indent))
	}
	return names.EscapeQuoted(mark) + indent + names.EscapeQuoted(text)
}

// stagedLine adds a line that says how much is staged in a root.
func stagedLine(p *page, r *control.Root) {
	if r.Stage == nil {
		return
	}
	p.add(faint, "    staged: %d changes, %sB; s: look", r.Stage.Changed, config.FormatSize(r.Stage.Bytes))
	if r.Stage.Damaged != "" {
		p.addWrapped(wrong, "    ", names.EscapeQuoted(r.Stage.Damaged), 2)
	}
}
