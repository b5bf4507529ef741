package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// revoke revokes roots of sessions, and reports the results in one message.
func (m *model) revoke(req control.RevokeRequest, sessions ...string) tea.Cmd {
	return m.inBackground(actTimeout, func(ctx context.Context) (tea.Msg, error) {
		start := time.Now()
		results, failed := []string{}, false
		for _, r := range m.live.Revoke(ctx, sessions, req) {
			text := r.Error
			if failed = failed || text != ""; text == "" {
				text = describeEnded(r.Session, r.Ended, time.Since(start))
			}
			results = append(results, text)
		}
		switch all := strings.Join(results, "; "); {
		case failed:
			return errorMsg{all}, nil
		case all == "":
			return resultMsg{"no session is live"}, nil
		default:
			return resultMsg{all}, nil
		}
	})
}

func describeEnded(session string, ended []control.Ended, took time.Duration) string {
	var parts []string
	for _, e := range ended {
		parts = append(parts, fmt.Sprintf("%s %s in %.1f ms", names.Escape(e.Root), e.State, e.TookMS))
	}
	if len(parts) == 0 {
		return names.Escape(session) + ": there was no root to revoke"
	}
	if len(parts) > 4 {
		parts = append(parts[:4], fmt.Sprintf("and %d more", len(parts)-4))
	}
	return fmt.Sprintf("%s: %s (%d in all, %v)", names.Escape(session), strings.Join(parts, ", "), len(ended), took.Round(100*time.Microsecond))
}

// widestMode returns the mode that gives a root the most rights.
func widestMode(r *control.Root) string {
	if r.Stage != nil {
		return "stage"
	}
	return "rw"
}

// toggleMode toggles a root between ro and its widest mode.
func (m *model) toggleMode(r rootRow) tea.Cmd {
	mode := widestMode(&r.root)
	if r.root.Mode == mode {
		mode = "ro"
	}
	return m.do(r.session, func(ctx context.Context, c *control.Client) (string, error) {
		a, err := control.SetMode.Call(ctx, c, control.SetRequest{Name: r.root.Name.Raw(), Mode: mode})
		return names.Escape(a.Root.Name) + " is " + a.Root.Mode + " now", err
	})
}

// answer answers the question in front.
func (m *model) answer(req control.AnswerRequest) tea.Cmd {
	q := m.questions[m.frontIndex]
	req.ID = q.ID
	if req.Approve {
		req.ForMS = spans[m.span].Milliseconds()
		req.Path = m.path
	}
	return m.do(q.Session, func(ctx context.Context, c *control.Client) (string, error) {
		a, err := control.AnswerQuestion.Call(ctx, c, req)
		var parts []string
		for _, one := range a.Answered {
			for _, p := range one.Allowed {
				parts = append(parts, "allowed "+p.String())
			}
			for _, p := range one.Denied {
				parts = append(parts, "denied "+p.String())
			}
		}
		if req.Remember {
			parts = append(parts, "and remembered")
		}
		return strings.Join(parts, ", "), err
	})
}

// lift lifts a remembered denial, so that the owner is asked again.
func (m *model) lift(d control.Denial) tea.Cmd {
	return m.do(d.Session, func(ctx context.Context, c *control.Client) (string, error) {
		_, err := control.ForgetDenial.Call(ctx, c, control.ForgetRequest{ID: d.ID})
		return names.Quote(d.Subject) + " may ask again about " + names.Quote(d.What()), err
	})
}

// preview requests figures about the files that an item of a question is about.
func (m *model) preview(q control.Question, i int) tea.Cmd {
	return m.inBackground(actTimeout, func(ctx context.Context) (tea.Msg, error) {
		key := previewKey(q.ID, i)
		c, err := m.live.Client(q.Session)
		if err != nil {
			return nil, nil // the session has ended
		}
		a, err := control.PreviewQuestion.Call(ctx, c, control.PreviewRequest{ID: q.ID, Item: i + 1})
		if err != nil {
			return previewMsg{key, "what is there could not be looked at: " + names.EscapeQuoted(control.Text(err))}, nil
		}
		more := ""
		if !a.Complete {
			more = "more than "
		}
		text := fmt.Sprintf("%sfiles: %d (%sB), directories below: %d, names that the policy would hide: %d", more, a.Files, config.FormatSize(a.Bytes), a.Dirs, a.Withheld)
		if len(a.Examples) > 0 {
			text += ", such as " + names.Join(a.Examples[:min(3, len(a.Examples))], ", ")
		}
		return previewMsg{key, text}, nil
	})
}

// find searches the records.
func (m *model) find() tea.Cmd {
	m.finding = true
	q := auditview.Query{Filter: audit.Filter{Path: m.glob}, Limit: maxFound}
	return m.inBackground(findTimeout, func(ctx context.Context) (tea.Msg, error) {
		f, err := m.store.Find(ctx, q)
		return foundMsg{f}, err
	})
}

// verify checks the chains of the records of all sessions.
func (m *model) verify() tea.Cmd {
	return m.inBackground(actTimeout, func(ctx context.Context) (tea.Msg, error) {
		reports, err := m.store.Verify(ctx, "")
		if err != nil {
			return nil, err
		}
		var whole, records uint64
		for _, r := range reports {
			if !r.OK {
				return nil, fmt.Errorf("%s: BROKEN at record %d: %s", names.Escape(r.Session), r.At, names.Escape(r.Problem))
			}
			whole++
			records += r.Records
		}
		return resultMsg{fmt.Sprintf("%d sessions, %d records: whole", whole, records)}, nil
	})
}
