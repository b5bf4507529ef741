package session

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Sockets are the sockets of the host's that the session's command may connect to.
type Sockets interface {
	// Live returns those that are granted still.
	Live() []control.Socket
	// Cut ends a grant, with every connection, before it returns; false: none has the name.
	Cut(name string) bool
}

// liveSockets returns the sockets that are granted.
func (s *Session) liveSockets() []control.Socket {
	if s.opt.Sockets == nil {
		return nil
	}
	return s.opt.Sockets.Live()
}

// isSocket reports whether a granted socket has the name.
func (s *Session) isSocket(name string) bool {
	for _, one := range s.liveSockets() {
		if one.Name == name {
			return true
		}
	}
	return false
}

// cutSockets cuts the named sockets and puts that on record. A nil list is all of them.
func (s *Session) cutSockets(which []string) []control.Ended {
	if which == nil {
		for _, one := range s.liveSockets() {
			which = append(which, one.Name)
		}
	}
	var out []control.Ended
	for _, name := range which {
		begun := time.Now()
		if !s.opt.Sockets.Cut(name) {
			continue // somebody else has cut it meanwhile
		}
		e := control.Ended{Root: name, State: guard.RevokedState.String(), TookMS: float64(time.Since(begun).Microseconds()) / 1000}
		if err := s.reg.Note(names.OpRevoke, "", guard.Allowed, "socket "+name); err != nil {
			e.Error = "it is cut, which cannot be recorded: " + err.Error()
		}
		out = append(out, e)
	}
	return out
}

// revokeNamed ends the named roots and cuts the named sockets, or nothing if one of the
// names is neither.
func (s *Session) revokeNamed(ctx context.Context, which []string) ([]control.Ended, error) {
	var roots []guard.RootName
	var sockets []string
	seen := map[string]bool{}
	for _, n := range which {
		if seen[n] {
			continue
		}
		seen[n] = true
		socket := s.isSocket(n)
		if socket {
			sockets = append(sockets, n)
		}
		// A root that was granted later may have the same name.
		if _, root := s.reg.Lookup(guard.RootName(n)); root || !socket {
			roots = append(roots, guard.RootName(n))
		}
	}
	if err := s.known(roots); err != nil {
		return nil, err
	}
	var cut []control.Ended
	if len(sockets) > 0 {
		cut = s.cutSockets(sockets)
	}
	if len(roots) == 0 {
		return cut, incomplete(cut)
	}
	ended, err := s.revokeMany(ctx, roots)
	return append(cut, ended...), err
}
