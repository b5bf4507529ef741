package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// serveFiles makes the broker, which serves files/* of the session's registry to MCP servers.
func (s *Session) serveFiles() {
	var f config.Files
	if s.opt.Config != nil {
		f = s.opt.Config.Files
	}
	s.consent = consent.New(consent.Config{
		Session: s.dir.Name(), Registry: s.reg, Log: s.log, Events: &s.hub, Terms: s.opt.Bound.Apply, SaveHost: s.saveHost,
		Servers: func() []*broker.Session { return s.broker.Sessions() },
	})
	s.setFiles(&f)
	s.setStageOutput(s.opt.Config)
	if s.opt.Config != nil {
		s.reg.SetQuotas(s.opt.Config.Subjects)
	}
	s.watching = s.tree.NewHub(watch.HubOptions{MaxEach: f.WatchedDirs})
	s.reg.AddView(s.watching)
	s.broker = broker.New(broker.Config{
		Registry: s.reg, Tree: s.tree, Hub: s.watching, Log: s.log,
		Asker:  s.consent.Asker(consent.WayOther), // see Connect
		AskFor: f.ConsentTimeout, Terms: s.opt.Bound.Apply,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), FlatAt: s.opt.FlatAt,
		Limits: broker.Limits{
			OpsPerSecond: f.OpsPerSecond, BytesPerSecond: float64(f.BytesPerSecond),
			MaxFile: f.MaxFile, MaxWritten: f.MaxWritten, Watches: f.Watches,
		},
	})
}

// startJournal removes the unfinished files of killed sessions from the roots, and opens the
// journal of this session.
func (s *Session) startJournal(ctx context.Context) error {
	dir, err := config.StateDir("unfinished")
	if err != nil {
		return err
	}
	n, err := cleanUp(ctx, dir, s.reg, s.tree)
	if err != nil {
		return fmt.Errorf("remove what a killed session left: %w", err)
	}
	if n > 0 {
		s.log.Info("removed unfinished files that a killed session left", "files", n)
	}
	if s.journal, err = openJournal(dir, s.dir.Name(), s.reg); err != nil {
		return fmt.Errorf("the journal of unfinished files: %w", err)
	}
	s.tree.SetJournal(s.journal)
	return nil
}

// Connect begins the broker's side of a connection, for a subject that comes by the way in w. A
// server whose subject is sharedSubject becomes one session of this subject, so that the server's
// grants do not hold for the shared clients.
func (s *Session) Connect(w consent.Way, subject guard.Subject) *broker.Session {
	if subject == sharedSubject {
		subject = subject.InSession(s.clients.Add(1))
	}
	return s.broker.SessionFor(subject, s.consent.Asker(w))
}

// Broker returns the broker, which serves the session's roots to MCP servers. A front end that
// runs a server begins a broker session for it by Connect. The broker ends with the session,
// before the roots do.
func (s *Session) Broker() *broker.Broker { return s.broker }

// Frame returns the length of the longest message from a server, in bytes, for the broker's
// transports; 0 means their default.
func (s *Session) Frame() int {
	if s.opt.Config == nil {
		return 0
	}
	return s.opt.Config.Files.Frame
}

// closeBroker closes the broker, which ends the operations of servers. It waits at most
// guard.EndDeadline for an operation that hangs in a source: the end of the roots shuts the gate
// for that operation, too.
func (s *Session) closeBroker() {
	if s.broker == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.broker.Close()
	}()
	select {
	case <-done:
	case <-time.After(guard.EndDeadline):
		s.log.Warn("a request of a server is stuck in its source; revoking all the same")
	}
}

// setFiles puts [files] in force, except for the keys that only count at the start.
//
// The paths are resolved now, not when a server asks: until then, a server that may write next
// to a path could have replaced the path by a link to another location.
func (s *Session) setFiles(f *config.Files) {
	var allow []consent.Preapproved
	for _, a := range f.Allow {
		// A path that does not exist yet, or cannot be read, covers the place that it names.
		if err := s.reg.CheckLinks(a.Path); errors.As(err, new(*rules.LinkError)) {
			s.log.Error("a path of [[files.allow]] allows nothing", "error", err)
			s.note(guard.Refused, "files.allow: "+err.Error())
			continue
		}
		allow = append(allow, consent.Preapproved{Dir: Resolve(a.Path), Rights: a.Rights})
	}
	s.consent.SetFiles(allow, f.Deny)
}
