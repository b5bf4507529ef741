package consent

import (
	"context"
	"maps"
	"slices"

	"github.com/rootsfs/rootsfs/broker"
)

// Way is a way in by which a client can ask for more than was granted.
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

// Answerer is a person or program that may answer a question.
type Answerer string

// The answerers. .github/SECURITY.md names them in the same words.
const (
	// Configuration allows by files.allow. By files.consent it denies all questions.
	Configuration Answerer = "`[[files.allow]]`"
	// StartingHost is the MCP host on the standard streams of rootsfs, which the owner started.
	// It answers by a form (elicitation). It is the only answerer that is also a connection
	// that asks.
	StartingHost Answerer = "the MCP host that started rootsfs"
	// Owner answers over the control socket: console, consent, top.
	Owner Answerer = "the owner"
)

// mayAnswer lists the answerers for the questions of a way in, in their order. If there is
// none, nothing is asked, and a request for more is refused.
var mayAnswer = map[Way][]Answerer{
	WayMount:   {},
	WayServer:  {Configuration, StartingHost, Owner},
	WayNetwork: {StartingHost, Owner},
	WayStdio:   {Configuration, StartingHost, Owner},
	WayToken:   {Owner},
	WayOAuth:   {Owner},
	WayNoToken: {Owner},
	WayRoots:   {},
	WayOther:   {Owner},
}

// Ways returns the ways in.
func Ways() []Way { return slices.Collect(maps.Keys(mayAnswer)) }

// Answerers returns the answerers for a way in, or those for any other connection if the table
// lacks it.
func Answerers(w Way) []Answerer {
	if list, known := mayAnswer[w]; known {
		return list
	}
	return mayAnswer[WayOther]
}

// Asker returns an Asker that puts the questions of a way in to its answerers.
func (qs *Questions) Asker(w Way) broker.Asker {
	list := Answerers(w)
	chain := []broker.Asker{qs.askConfig(slices.Contains(list, Configuration))}
	for _, a := range list {
		switch a {
		case Configuration: // askConfig is the first of chain
		case StartingHost:
			chain = append(chain, broker.AskerFunc(qs.askStartingHost))
		case Owner:
			chain = append(chain, broker.AskerFunc(qs.askOwner))
		}
	}
	return broker.Chain(chain...)
}

// askStartingHost asks through the MCP host of the connection that asks, or of the session's
// command.
func (qs *Questions) askStartingHost(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	if q.Host != nil {
		return qs.askCommandsHost(ctx, q)
	}
	return broker.AskHost.Ask(ctx, q)
}
