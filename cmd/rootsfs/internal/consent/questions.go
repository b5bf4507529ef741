// Package consent answers the questions of one session: questions about paths from MCP servers
// and clients, and about hosts from the session's command. The configuration, the MCP host that
// started rootsfs, or the owner answers: see Way and Answerer.
//
// # Promises
//
//   - Only the owner's answer, the asker and the deadline end a question that waits for the owner.
//     An answer that grants nothing reveals neither by its time nor by its text which paths exist.
//   - If the owner wants a denial remembered, it is remembered before the asker gets the
//     answer. If the audit log rejects the record, nothing is permitted, and no denial is
//     lifted.
//   - A preview of a question's item opens only directories, and follows no link.
//
// # Not promised
//
// Denials and questions end with the session. Package broker grants the paths, and the caller
// of AskHost makes the connections.
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

// Config configures Questions.
type Config struct {
	Session  string          // name of the session; also the subject of questions about hosts
	Registry *guard.Registry // writes the records
	Log      *slog.Logger
	Events   *events.Hub // gets questions and denials
	// Servers returns the connected servers. The command's own MCP host, which is asked about
	// hosts, is reached through one of them.
	Servers func() []*broker.Session
	// Terms narrows the grant of a consent. A preview counts the names that the rules of the
	// narrowed grant withhold.
	Terms func(guard.Grant) guard.Grant
	// SaveHost writes an approved host to the configuration, for a duration or without an end
	// (0), and returns the file.
	SaveHost func(h *broker.Host, length time.Duration) (file string, err error)
}

// Questions answers the questions of one session. Make it with New.
type Questions struct {
	cfg     Config
	waiting broker.Queue // questions that wait for the owner
	denials denials
	notices *notify.Notifier
	looks   chan struct{} // holds a token for each preview in progress

	mu         sync.Mutex // guards the fields below
	allow      []Preapproved
	denyOthers bool // paths that are not pre-approved are denied
}

// New returns Questions without any question yet.
func New(cfg Config) *Questions {
	qs := &Questions{cfg: cfg, looks: make(chan struct{}, previewsAtATime)}
	qs.waiting.By = "control"
	qs.notices = notify.New(func(err error) { cfg.Log.Debug("the desktop could not be told", "error", err) })
	return qs
}
