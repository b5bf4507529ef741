package consent

import (
	"context"
	"maps"
	"slices"

	"github.com/rootsfs/rootsfs/broker"
)

// Way is a way into rootsfs, by which a client may try to get more than was granted. Its text
// describes the client.
type Way string

// The ways into rootsfs. Each is a row of the table "Who may answer what" in .github/SECURITY.md.
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
	// Configuration allows the paths in files.allow. If files.consent is "deny", Configuration
	// denies all other paths.
	Configuration Answerer = "`[[files.allow]]`"
	// StartingHost is the MCP host on the standard streams of rootsfs. The owner started this
	// host. It asks its user by a form (elicitation). No other answerer may answer a question
	// that came over the answerer's own connection.
	StartingHost Answerer = "the MCP host that started rootsfs"
	// Owner answers over the control socket, with rootsfs console, consent or top.
	Owner Answerer = "the owner"
)

// mayAnswer lists, for each Way, the answerers of its questions, in the order in which they are
// asked. If the list is empty, nobody is asked, and a request for more is refused.
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

// Ways returns every Way, in no fixed order.
func Ways() []Way { return slices.Collect(maps.Keys(mayAnswer)) }

// Answerers returns the answerers for w, or those of WayOther if mayAnswer lacks w.
func Answerers(w Way) []Answerer {
	if list, known := mayAnswer[w]; known {
		return list
	}
	return mayAnswer[WayOther]
}

// Asker returns an Asker that puts the questions of w to its answerers, in their order. It applies
// the configuration first, even if Configuration is not an answerer of w: then the configuration
// may deny, but not allow (see askConfig).
func (qs *Questions) Asker(w Way) broker.Asker {
	list := Answerers(w)
	chain := []broker.Asker{qs.askConfig(slices.Contains(list, Configuration))}
	for _, a := range list {
		switch a {
		case Configuration: // chain begins with askConfig
		case StartingHost:
			chain = append(chain, broker.AskerFunc(qs.askStartingHost))
		case Owner:
			chain = append(chain, broker.AskerFunc(qs.askOwner))
		}
	}
	return broker.Chain(chain...)
}

// askStartingHost puts a question about paths to the MCP host of the connection that asks, and a
// question about a host to the MCP host of the session's command.
func (qs *Questions) askStartingHost(ctx context.Context, q *broker.Question) (broker.Answer, error) {
	if q.Host != nil {
		return qs.askCommandsHost(ctx, q)
	}
	return broker.AskHost.Ask(ctx, q)
}
