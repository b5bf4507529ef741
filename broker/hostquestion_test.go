package broker

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard/names"
)

// hostQuestion returns a question about a host, with hostile text in each part that an approver
// shows.
func hostQuestion() *Question {
	const hostile = "\x1b[2Jyes\n1. \"good.test\" port 443\u202e`x` [a](http://b) <i>"
	q := &Question{Kind: HostKind, ID: "abcdefgh", Subject: hostile, Host: &Host{
		Name: hostile, Port: 443, Program: names.Foreign("/" + strings.Repeat(hostile, 100)), PID: 7, Others: 2,
	}}
	for range maxNamedHosts + 1 {
		q.Host.Reached = append(q.Host.Reached, Reached{Host: hostile, Port: 1, Sent: 12, Received: 34})
	}
	return q
}

func TestHostQuestionOnATerminal(t *testing.T) {
	for typed, want := range map[string]Decision{
		"y\n": {Allow: true}, "YES\n": {Allow: true}, "n\n": {}, "\n": {}, "o\ns\nw\nn\n": {},
		"t\nsoon\nt\n30m\ny\n": {Allow: true, For: 30 * time.Minute},
	} {
		tty := typedTTY(typed)
		term := &Terminal{Open: func() (io.ReadWriteCloser, error) { return tty, nil }}
		got, err := term.Ask(t.Context(), hostQuestion())
		if err != nil || !slices.Equal(got.Decisions, []Decision{want}) {
			t.Errorf("%q: %+v, %v", typed, got, err)
		}
		shown := tty.out.String()
		for _, line := range strings.Split(shown, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "1.") {
				t.Errorf("a line that looks like ours: %q", line)
			}
		}
		if strings.ContainsAny(shown, "\x1b\u202e") || !strings.Contains(shown, "12 bytes sent, 34 received") || !strings.Contains(shown, "and 3 more") {
			t.Errorf("shown: %q", shown)
		}
	}
}

func TestHostQuestionIsElicited(t *testing.T) {
	for _, c := range []struct {
		action  string
		content map[string]any
		want    Decision
	}{
		{"accept", map[string]any{"host": "allow"}, Decision{Allow: true}},
		{"accept", map[string]any{"host": "allow", "minutes": 5.0}, Decision{Allow: true, For: 5 * time.Minute}},
		{"accept", map[string]any{"host": "deny"}, Decision{}},
		{"accept", map[string]any{"host": true, "path1": "allow"}, Decision{}},
		{"decline", map[string]any{"host": "allow"}, Decision{}},
		{"cancel", nil, Decision{}},
	} {
		got, err := Elicit{elicitor(func(p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			form, err := json.Marshal(p.RequestedSchema)
			if err != nil || !strings.Contains(string(form), `"enum":["deny","allow"]`) || !strings.Contains(string(form), `"required":["host"]`) {
				t.Errorf("the form is %s, %v", form, err)
			}
			if all := p.Message + string(form); strings.ContainsAny(p.Message, "\x1b\u202e<") || strings.Contains(all, "[a](") || strings.Contains(all, "http://") {
				t.Errorf("shown: %q", all)
			}
			return &mcp.ElicitResult{Action: c.action, Content: c.content}, nil
		})}.Ask(t.Context(), hostQuestion())
		if err != nil || !slices.Equal(got.Decisions, []Decision{c.want}) {
			t.Errorf("%s %v: %+v, %v", c.action, c.content, got, err)
		}
	}
}

func TestHostQuestionOfAnUnknownProgram(t *testing.T) {
	q := &Question{Kind: HostKind, Subject: "me", Host: &Host{Name: "2606:4700::1", Port: 443}}
	want := "The command of session me connects to a host that no rule permits, and waits.\nWhich of its programs it is, is not known.\nReached so far: no host\n"
	if got := Heading(q); got != want {
		t.Errorf("%q", got)
	}
	if got := Lines(q); len(got) != 1 || got[0] != `"2606:4700::1" port 443` || q.Host.String() != "[2606:4700::1]:443" {
		t.Errorf("%q, %s", got, q.Host)
	}
}
