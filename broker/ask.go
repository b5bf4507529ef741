package broker

import (
	"context"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Kind tells what a question asks for.
type Kind string

// The kinds of questions.
const (
	FileKind Kind = "file" // paths that a server asks for
	HostKind Kind = "host" // a host that the session's command connects to
)

// Question is one question for a person: a server wants paths that are not approved, or a
// command connects to a host that no rule permits. The server or the command can choose the texts
// of type names.Foreign, even the resolved paths. Code that shows such a text must make its control
// and bidirectional characters visible (names.Escape).
type Question struct {
	Kind    Kind          `json:"kind"`             // what it asks for: file or host
	ID      string        `json:"id"`               // id, for `consent approve` and `consent deny`
	Asked   time.Time     `json:"asked"`            // when the server asked
	Until   time.Time     `json:"until"`            // when it is denied if nobody answers
	Subject guard.Subject `json:"subject"`          // server that asks
	Server  names.Foreign `json:"server,omitempty"` // what the server calls itself
	Message names.Foreign `json:"message"`          // purpose, in the server's words
	Items   []Item        `json:"items"`            // paths that it asks for; none if it asks for a host
	Host    *Host         `json:"host,omitempty"`   // host that it asks for

	elicitor Elicitor // shows a form to the user of the session's MCP host; nil: no such user can be asked
}

// Decisions returns zero Decisions, which deny: one for each item, or one for the host.
func (q *Question) Decisions() []Decision {
	if q.Host != nil {
		return make([]Decision, 1)
	}
	return make([]Decision, len(q.Items))
}

// Item is one path of a question.
type Item struct {
	Requested names.Foreign `json:"requested"` // path as the server named it
	Resolved  names.Foreign `json:"resolved"`  // path that was opened: this very directory would be granted
	File      bool          `json:"file"`      // it is a single file
	Mode      string        `json:"mode"`      // mode that was asked for
	Rights    guard.Rights  `json:"-"`
	Problem   names.Foreign `json:"problem,omitempty"` // why it cannot be granted, whatever the answer
}

// Answer holds the person's decisions: one Decision for each Item, or one for the Host.
// Fewer decisions deny the rest.
type Answer struct {
	Decisions []Decision `json:"decisions"`
	// By says who answered, for status and the audit: for example "terminal", "control",
	// "the host's elicitation" or "deny-all".
	By string `json:"by"`
}

// Decision is about one Item or the Host. A Decision about the Host does not use Path, Mode and
// Idle. The zero Decision denies.
type Decision struct {
	Allow bool          `json:"allow"`
	Path  string        `json:"path,omitempty"` // narrower than Resolved: a host path below it
	Mode  string        `json:"mode,omitempty"` // narrower than asked
	For   time.Duration `json:"for,omitempty"`  // 0: with the session
	Idle  time.Duration `json:"idle,omitempty"` // the grant ends when unused for so long; 0: never for that reason
}

// Asker puts a question to a person, or decides it by itself. After an error nothing is
// granted. ctx ends at q.Until, or earlier if the question is withdrawn.
type Asker interface {
	Ask(ctx context.Context, q *Question) (Answer, error)
}

// AskerFunc is a function that is an Asker.
type AskerFunc func(ctx context.Context, q *Question) (Answer, error)

// Ask implements Asker.
func (f AskerFunc) Ask(ctx context.Context, q *Question) (Answer, error) { return f(ctx, q) }

// ErrUnanswered means that the question got no answer. Nothing is granted.
var ErrUnanswered = errors.New("nobody answered")

// DenyAll denies every question. It is for MCP hosts that have no person to ask.
var DenyAll Asker = AskerFunc(func(context.Context, *Question) (Answer, error) {
	return Answer{By: "deny-all"}, nil
})

// Chain asks its Askers one after the other. If one returns ErrUnanswered, Chain asks the next,
// as long as ctx has not ended. Any other result of an Asker is the result of Chain.
func Chain(list ...Asker) Asker {
	return AskerFunc(func(ctx context.Context, q *Question) (Answer, error) {
		for _, a := range list {
			ans, err := a.Ask(ctx, q)
			if err == nil || !errors.Is(err, ErrUnanswered) || ctx.Err() != nil {
				return ans, err
			}
		}
		return Answer{}, ErrUnanswered
	})
}
