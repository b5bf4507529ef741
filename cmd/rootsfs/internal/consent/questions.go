// Package consent answers the questions of one session: of MCP servers and clients that ask
// for paths, and of the session's command, which connects to hosts. The configuration, the MCP
// host that started rootsfs, or the owner answers: see Way and Answerer.
//
// # Promises
//
//   - A question that waits for the owner is answered, denied or withdrawn by the owner's verbs
//     and the asker alone. No asker learns from the time or the text of an answer which paths
//     exist.
//   - A denial that the owner wants remembered is remembered before the asker is told of it.
//     Nothing is permitted, and no denial lifted, that the audit log does not accept.
//   - A preview of what a question asks for opens directories only, and follows no link.
//
// # Not promised
//
// Denials and questions end with the session. Granting a path is left to package broker,
// carrying connections to the caller of AskHost.
//
// The exported functions may be called concurrently.
package consent

import (
	"log/slog"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/notify"
	"github.com/rootsfs/rootsfs/guard"
)

// Config says whose questions are answered, and how.
type Config struct {
	Session  string          // its name, which is the subject of questions about hosts, too
	Registry *guard.Registry // has the audit log
	Log      *slog.Logger
	Events   *events.Hub // is told of questions and denials
	// Servers returns the connected servers. The command's own MCP host, which is asked about
	// hosts, is reached through one of them.
	Servers func() []*broker.Session
	// Terms narrows the grant of a consent. A preview shows what its rules withhold.
	Terms func(guard.Grant) guard.Grant
	// SaveHost writes a host that is allowed, for a length of time or 0 for no end, to the
	// configuration, and returns the file.
	SaveHost func(h *broker.Host, length time.Duration) (file string, err error)
}

// Questions are those of one session. Make them with New.
type Questions struct {
	cfg     Config
	waiting broker.Queue // for the owner
	denials denials
	notices *notify.Notifier
	looks   chan struct{} // holds a token for each preview in progress

	mu         sync.Mutex // guards the fields below
	allow      []Preapproved
	denyOthers bool // what is not pre-approved is denied
}

// New returns the questions of a session, of which none has been asked.
func New(cfg Config) *Questions {
	qs := &Questions{cfg: cfg, looks: make(chan struct{}, insideLooks)}
	qs.waiting.By = "control"
	qs.notices = notify.New(func(err error) { cfg.Log.Debug("the desktop could not be told", "error", err) })
	return qs
}
