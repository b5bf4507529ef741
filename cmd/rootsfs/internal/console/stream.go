package console

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/live"
)

// maxStreams is how many event streams there are at a time: one for each tab.
const maxStreams = 16

// streams ends the oldest of too many event streams.
type streams struct {
	mu   sync.Mutex // guards the field below
	list []*live.Subscriber
}

func (s *streams) begin(sub *live.Subscriber) {
	s.mu.Lock()
	s.list = append(s.list, sub)
	var old *live.Subscriber
	if len(s.list) > maxStreams {
		old, s.list = s.list[0], s.list[1:]
	}
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

func (s *streams) end(sub *live.Subscriber) {
	s.mu.Lock()
	for i := range s.list {
		if s.list[i] == sub {
			s.list = append(s.list[:i:i], s.list[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	sub.Close()
}

// stream answers with an update a line until the browser leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	sub := s.hub.Subscribe()
	s.streams.begin(sub)
	defer s.streams.end(sub)
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // whoever stays has sent everything
	enc := json.NewEncoder(w)
	for {
		u, ok := sub.Next(r.Context())
		if !ok {
			return
		}
		// A browser that does not read is given up, not waited for.
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if enc.Encode(u) != nil || rc.Flush() != nil {
			return
		}
		if !s.access.known(r) {
			return // it was shown out meanwhile
		}
	}
}
