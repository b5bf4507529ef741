package broker

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// counters are a session's figures since it began.
type counters struct {
	requests, refused, failed, read, written, notified atomic.Int64
	asked, given                                       atomic.Int64 // paths asked for and approved in files/consent

	mu       sync.Mutex       // guards the field below
	byMethod map[string]int64 // requests
}

func (c *counters) count(method string, err error) {
	c.requests.Add(1)
	if err != nil {
		if guardError(err).Kind.Refusal() {
			c.refused.Add(1)
		} else {
			c.failed.Add(1)
		}
	}
	if _, known := methods[method]; !known {
		method = "other" // a peer must not be able to add keys
	}
	c.mu.Lock()
	if c.byMethod == nil {
		c.byMethod = map[string]int64{}
	}
	c.byMethod[method]++
	c.mu.Unlock()
}

// Stats are a session's figures, for status and metrics.
type Stats struct {
	Subject   names.Foreign    `json:"subject"`                      // name of the server
	SharedBy  string           `json:"consents_shared_by,omitempty"` // other clients that share its consents: requests have no session
	Server    names.Text       `json:"server,omitempty"`             // what the server calls itself
	Revision  string           `json:"protocol,omitempty"`           // revision of MCP
	Started   time.Time        `json:"started"`                      // when it connected
	InFlight  int              `json:"in_flight"`                    // requests in progress
	Unread    int              `json:"unread"`                       // answers that the server has not read yet
	HeldBytes int64            `json:"held_bytes"`                   // memory that its requests hold
	Watches   int              `json:"watches"`                      // open watches
	Uploads   int              `json:"uploads"`                      // uploads in progress
	Requests  int64            `json:"requests"`                     // requests
	Refused   int64            `json:"refused"`                      // requests that were refused
	Failed    int64            `json:"failed"`                       // requests that failed
	Read      int64            `json:"bytes_read"`                   // bytes read
	Written   int64            `json:"bytes_written"`                // bytes written
	Notified  int64            `json:"notifications"`                // notifications sent
	Asked     int64            `json:"paths_asked"`                  // paths asked for with `files/consent`
	Given     int64            `json:"paths_given"`                  // paths allowed
	Methods   map[string]int64 `json:"methods,omitempty"`            // requests by method
}

// ShareConsents sets Stats.SharedBy, the other clients that share the consents of this session.
// All clients that send requests without an MCP session have one Session together, because they
// cannot be distinguished.
func (s *Session) ShareConsents(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sharedBy = by
}

// Stats returns the session's figures now.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	st := Stats{
		Subject: names.Foreign(s.subject), SharedBy: s.sharedBy, Server: names.Text(names.Escape(s.server)), Revision: s.revision, Started: s.started,
		InFlight: len(s.inflight), Watches: len(s.watches), Uploads: len(s.uploads),
	}
	s.mu.Unlock()
	running, held := s.limits.requests.Used()
	st.HeldBytes, st.Unread = held, max(0, running-st.InFlight)
	c := &s.stats
	st.Requests, st.Refused, st.Failed = c.requests.Load(), c.refused.Load(), c.failed.Load()
	st.Asked, st.Given = c.asked.Load(), c.given.Load()
	st.Read, st.Written, st.Notified = c.read.Load(), c.written.Load(), c.notified.Load()
	c.mu.Lock()
	st.Methods = maps.Clone(c.byMethod)
	c.mu.Unlock()
	return st
}
