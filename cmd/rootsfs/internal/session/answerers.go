package session

import (
	"context"
	"slices"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
)

// Way is a way in by which somebody can ask for more than was granted.
type Way string

// The ways in. Each is a row of the table "Who may answer what" in .github/SECURITY.md.
const (
	WayMount   Way = "a program in the mount"
	WayServer  Way = "an MCP server that `run` starts, also by `wrap`"
	WayNetwork Way = "the command of `run --net-ask`"
	WayStdio   Way = "a client of `serve` over standard streams, also with `--session`"
	WayToken   Way = "a client of `serve --http` with the token"
	WayOAuth   Way = "a user of `serve --http --oauth-issuer`"
	WayNoToken Way = "anybody who reaches `serve --http --no-token`"
	WayRoots   Way = "a client, by naming roots of its own (`roots/list`)"
	WayOther   Way = "any other connection"
)

// answerer is who may answer a question.
type answerer string

const (
	// configuration answers by files.allow. By files.consent it denies, whoever asks.
	configuration answerer = "`[[files.allow]]`"
	// startingHost is the MCP host on the standard streams of rootsfs, which the owner
	// started, by a form (elicitation). It is the one answerer that is also a connection
	// that asks.
	startingHost answerer = "the MCP host that started rootsfs"
	// owner answers over the control socket: console, consent, top.
	owner answerer = "the owner"
)

// mayAnswer says who answers the questions of a way in, in this order. Where it has nobody,
// there is no question: what was not granted is refused.
var mayAnswer = map[Way][]answerer{
	WayMount:   {},
	WayServer:  {configuration, startingHost, owner},
	WayNetwork: {startingHost, owner},
	WayStdio:   {configuration, startingHost, owner},
	WayToken:   {owner},
	WayOAuth:   {owner},
	WayNoToken: {owner},
	WayRoots:   {},
	WayOther:   {owner},
}

// answerersOf returns who answers the questions of a way in, as of any other connection if
// the table lacks it.
func answerersOf(w Way) []answerer {
	if list, known := mayAnswer[w]; known {
		return list
	}
	return mayAnswer[WayOther]
}

// asker puts the questions of a way in to those who may answer them.
func (s *Session) asker(w Way) broker.Asker {
	list := answerersOf(w)
	chain := []broker.Asker{s.askConfig(slices.Contains(list, configuration))}
	for _, a := range list {
		switch a {
		case configuration: // is the first
		case startingHost:
			chain = append(chain, broker.AskerFunc(s.askStartingHost))
		case owner:
			chain = append(chain, broker.AskerFunc(s.askOwner))
		}
	}
	return broker.Chain(chain...)
}

// askStartingHost asks through the MCP host of the connection that asks, or of the session's
// command.
func (s *Session) askStartingHost(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	if q.Host != nil {
		return s.askCommandsHost(ctx, q)
	}
	return broker.AskHost.Ask(ctx, q)
}

// Connect begins the broker's side of a connection, by a way in and for a subject. A server
// whose name is that of shared clients is one session of it: what it is allowed is not theirs.
func (s *Session) Connect(w Way, subject guard.Subject) *broker.Session {
	if subject == sharedSubject {
		subject = subject.InSession(s.sharings.Add(1))
	}
	return s.broker.SessionFor(subject, s.asker(w))
}
