package broker

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Elicitor shows a form to the user of an MCP host. *mcp.ServerSession implements it.
type Elicitor interface {
	Elicit(ctx context.Context, params *mcp.ElicitParams) (*mcp.ElicitResult, error)
}

// Elicit is an Asker that asks through elicitation/create of an MCP host. The answer is as
// trustworthy as the host. Answer.By says that the answer came from the host's elicitation.
type Elicit struct{ Host Elicitor }

// AskHost is an Asker that asks through the MCP host of the question: the host that
// Session.Consent was given, or else the session's host (see Session.AskThrough). Without a host
// AskHost returns ErrUnanswered.
var AskHost Asker = AskerFunc(func(ctx context.Context, q *Question) (Answer, error) {
	if q.elicitor == nil {
		return Answer{}, ErrUnanswered
	}
	return Elicit{q.elicitor}.Ask(ctx, q)
})

// Ask implements Asker. It shows one form with a choice for each path that can be granted, or for
// the Host of the question, and with a number of minutes.
func (e Elicit) Ask(ctx context.Context, q *Question) (Answer, error) {
	var text strings.Builder
	for line := range strings.Lines(Heading(q)) {
		text.WriteString(formText(names.Fold(line, "", formColumns)))
	}
	for i, line := range Lines(q) {
		text.WriteString(formText(names.Fold(fmt.Sprintf("%d. %s\n", i+1, line), "", formColumns)))
	}
	choices := choicesOf(q)
	props := map[string]any{"minutes": map[string]any{
		"type": "integer", "title": "For how many minutes (0: until the session ends)", "minimum": 0, "maximum": maxMinutes, "default": 0,
	}}
	required := []string{}
	for _, c := range choices {
		if c.options != nil {
			props[c.key] = map[string]any{"type": "string", "title": c.title, "enum": c.options, "default": "deny"}
			required = append(required, c.key)
		}
	}
	res, err := e.Host.Elicit(ctx, &mcp.ElicitParams{
		Mode:            "form",
		Message:         text.String(),
		RequestedSchema: map[string]any{"type": "object", "properties": props, "required": required},
	})
	if err != nil {
		return Answer{}, fmt.Errorf("%w: the host cannot ask: %w", ErrUnanswered, err)
	}
	a := Answer{By: "the host's elicitation", Decisions: q.Decisions()}
	if res.Action != "accept" {
		return a, nil
	}
	length, err := minutesOf(res.Content["minutes"])
	if err != nil {
		return Answer{}, err
	}
	for i, c := range choices {
		switch chosen, _ := res.Content[c.key].(string); {
		case chosen == "allow":
			a.Decisions[i] = Decision{Allow: true, For: length}
		case chosen == "read only" && q.Host == nil:
			mode, ok := ReadOnlyMode(&q.Items[i])
			a.Decisions[i] = Decision{Allow: ok, For: length, Mode: mode}
		}
	}
	return a, nil
}

// choice is a field of a form, for the decision about one item or the host.
type choice struct {
	key, title string
	options    []string // nil: the path cannot be granted, so the form does not ask about it
}

func choicesOf(q *Question) []choice {
	if q.Host != nil {
		return []choice{{"host", formText(clip(q.Host.String())), []string{"deny", "allow"}}}
	}
	var all []choice
	for i := range q.Items {
		c := choice{key: fmt.Sprintf("path%d", i+1), title: fmt.Sprintf("%d. %s", i+1, formText(clip(q.Items[i].Resolved.Raw())))}
		if q.Items[i].Problem == "" {
			c.options = []string{"deny", "allow", "read only"}
		}
		all = append(all, c)
	}
	return all
}

// formColumns is the width of a form's lines. MCP hosts that show plain text do not break lines.
const formColumns = 76

// formText adds backslashes to escaped text, and escapes "<" and "&", so that no MCP host shows a
// link, a picture or a style in it, whether the host shows Markdown, HTML or plain text. A "_"
// within a word stays as it is, because it has no meaning in Markdown.
func formText(s string) string {
	var b strings.Builder
	for i, c := range []byte(s) {
		switch c {
		case '<', '&':
			fmt.Fprintf(&b, `\u{%x}`, c)
			continue
		case '_':
			if i == 0 || i+1 == len(s) || !isWord(s[i-1]) || !isWord(s[i+1]) {
				b.WriteByte('\\')
			}
		case '`', '*', '~', '[', ']':
			b.WriteByte('\\')
		case ':':
			if strings.HasPrefix(s[i:], "://") {
				b.WriteByte('\\')
			}
		case '.':
			if i >= 3 && strings.EqualFold(s[i-3:i], "www") {
				b.WriteByte('\\')
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

func isWord(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

// maxMinutes, a hundred years, is the longest time that a form can allow. A longer time is a
// mistake, and a much longer one does not fit a time.Duration.
const maxMinutes = 100 * 365 * 24 * 60

// errAnswer refuses an answer with a value out of bounds. Such an answer decides nothing:
// ignoring a bad duration would grant the path without an end.
type errAnswer struct{ field, want string }

func (e *errAnswer) Error() string {
	return fmt.Sprintf("the answer was refused: %s is out of bounds; write %s", e.field, e.want)
}

// minutesOf returns the duration in a form's answer. v is nil if the field was left out.
func minutesOf(v any) (time.Duration, error) {
	bad := &errAnswer{"minutes", fmt.Sprintf("a whole number from 0 (until the session ends) to %d", maxMinutes)}
	var m float64
	switch v := v.(type) {
	case nil:
		return 0, nil
	case float64:
		m = v
	case int: // from a host in this process
		m = float64(v)
	default:
		return 0, bad
	}
	if !(m >= 0 && m <= maxMinutes) || m != math.Trunc(m) { // NaN is in no range
		return 0, bad
	}
	return time.Duration(m) * time.Minute, nil
}

// ReadOnlyMode returns the mode that "read only" grants: the rights to read among those that
// were asked for. ok is false if there are none.
func ReadOnlyMode(it *Item) (mode string, ok bool) {
	rights := it.Rights & guard.ReadOnly
	return rights.String(), rights != 0
}

// clip quotes a path for a title. It shortens a long path, and keeps the end, where paths differ.
func clip(p string) string {
	const longest = 80
	r := []rune(names.Quote(p))
	if len(r) <= longest {
		return string(r)
	}
	return "…" + string(r[len(r)-longest:])
}
