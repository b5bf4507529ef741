package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// maxConns bounds the connections that a program holds at once. One more is reset, not left
// to wait in the kernel's queue, where the program would hang until it times out.
const maxConns = 4096

// connLimit returns how many connections a process may hold with this many descriptors
// (RLIMIT_NOFILE). A connection takes two descriptors, and up to four while it is dialled. At
// least a third of the descriptors are left for the mount and for revocation.
func connLimit(descriptors uint64) int { return int(min(maxConns, descriptors/6)) }

// Reasons of refusals. Their texts are in the records. The program only sees that the
// connection is reset or that the look-up of the name fails.
var (
	ErrNoRule    = errors.New("no rule permits it")
	ErrClosed    = errors.New("the name leads to an address of this machine or of a private network; a rule that names the address would permit it")
	ErrTooMany   = fmt.Errorf("the program holds %d connections already, or a sixth of ulimit -n", maxConns)
	ErrRevoked   = errors.New("the rule was removed")
	ErrEnded     = errors.New("the session ended")
	ErrPaused    = errors.New("the session is paused")
	errNoRecord  = errors.New("it cannot be recorded")
	errNoAddress = errors.New("no name has this address")
	errNotName   = errors.New("a rule permits what is no host name, and does not exist")
)

// Options configure a gate.
type Options struct {
	Rules []Rule
	// AnyServerName lets TLS connections name any server. Without it, a connection that names
	// another server than its host needs a rule for that server.
	AnyServerName bool
	// ResolveAll makes names without a rule resolve inside, so that the port that the
	// program wants is known when the connection is refused. Nothing about them leaves the
	// machine.
	ResolveAll bool
	Limits     Limits
	// Ask makes the gate ask about hosts that no rule permits while the connection waits,
	// instead of refusing at once. Their names resolve inside as with ResolveAll. Nil: no
	// questions.
	Ask *Ask
	// Services are names inside that are answered outside. No two share both name and port.
	Services []*Service
	// Resolver resolves permitted names; nil is the machine's.
	Resolver *net.Resolver
	// Record takes the events of connections. It is called concurrently. If it returns an
	// error for Opened, the connection is not carried.
	Record func(Event) error
}

// Gate carries the connections of one network namespace. It is safe for concurrent use.
type Gate struct {
	opt   Options
	log   *slog.Logger // set by Serve
	names *nameTable

	ctx    context.Context
	cancel context.CancelFunc
	served sync.WaitGroup // every goroutine, and every connection of a service
	// deciding is how many connections are being accepted and decided about.
	deciding atomic.Int64

	maxConns int // see connLimit
	meter    *meter
	totals   totals

	mu        sync.Mutex
	rules     rules
	conns     map[*conn]struct{}
	questions *questions
	reached   map[target]*Reached // by connections that have ended
	closed    bool
	paused    bool
	// servedConns counts the connections that services serve.
	servedConns int
	inside      *inside // nil before Serve
}

// State is the kind of an Event.
type State string

// The states. A permitted connection that reaches its host is Opened and, later, Ended.
const (
	Opened  State = "opened"
	Ended   State = "ended"
	Refused State = "refused" // by the gate
	Failed  State = "failed"  // the host was not found or not reached
)

// Event is a step in the life of a connection, or a refused look-up of a name.
type Event struct {
	State   State
	Host    names.Foreign  // name, or the address if the program gave no name
	Port    uint16         // 0: a name was looked up
	Addr    netip.AddrPort // the address that the gate connected to
	Program Program        // that made the connection, if it was found
	// ServerName is the last name in a hello of TLS that differs from Host.
	ServerName names.Foreign
	Sent       int64 // bytes from the program
	Received   int64 // bytes to the program
	Began      time.Time
	Duration   time.Duration
	Reason     error // of Refused and Failed; of Ended, why the connection ended early, or nil
}

// New returns a gate that carries nothing yet.
func New(o Options) *Gate {
	g := &Gate{
		opt: o, names: newNameTable(namedNet), rules: slices.Clone(o.Rules), conns: map[*conn]struct{}{},
		meter: newMeter(o.Limits), questions: newQuestions(), reached: map[target]*Reached{},
	}
	if g.opt.Record == nil {
		g.opt.Record = func(Event) error { return nil }
	}
	record := g.opt.Record
	g.opt.Record = func(e Event) error { g.totals.count(e); return record(e) }
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		files.Cur = 1024 // the usual limit
	}
	g.maxConns = connLimit(files.Cur)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	for _, s := range o.Services {
		s.conns = make(chan net.Conn)
	}
	return g
}

// Serve prepares the namespace that the sockets are from, and starts the goroutines that carry its
// connections until Close. It owns the sockets, also after an error. It is called once.
func (g *Gate) Serve(s *Sockets, log *slog.Logger) error {
	g.log = log
	in, err := s.prepare()
	if err != nil {
		return err
	}
	if in.reach == NamedHosts {
		g.names = newNameTable(loopbackNet) // no name has been asked for yet
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		in.Close()
		return ErrEnded
	}
	g.inside = in
	g.served.Go(func() { g.serveDatagrams(in.datagrams) })
	for _, l := range in.listeners {
		g.served.Go(func() { g.accept(l) })
	}
	first := append(g.startServices(), g.rules...)
	if g.IsAsking() || len(first) == 0 {
		first = append(first, Rule{}) // listen on the default ports, so that attempts are recorded
	}
	return g.listenLocked(first)
}

// listenLocked opens the listeners that rules need, if the namespace is served already.
func (g *Gate) listenLocked(list []Rule) error {
	if g.inside == nil {
		return nil
	}
	added, err := g.inside.listenFor(list)
	for _, l := range added {
		g.served.Go(func() { g.accept(l) })
	}
	return err
}

// Reach returns which connections reach the gate, "" before Serve.
func (g *Gate) Reach() Reach {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == nil {
		return ""
	}
	return g.inside.reach
}

// Rules returns the rules in force.
func (g *Gate) Rules() []Rule {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.rules)
}

// Add adds rules. After an error it has added none.
func (g *Gate) Add(more ...Rule) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addLocked(more)
}

func (g *Gate) addLocked(more []Rule) error {
	if g.closed {
		return ErrEnded
	}
	if err := g.listenLocked(more); err != nil {
		return err
	}
	for _, r := range more {
		if !slices.Contains(g.rules, r) {
			g.rules = append(g.rules, r)
		}
	}
	g.endQuestionsLocked(ErrPermitted, true)
	return nil
}

// Remove removes rules and ends every connection that the remaining rules do not permit. When it returns,
// none of these carries any more data. It returns how many it ended. It denies all open
// questions: an owner who removes hosts does not want to add others.
func (g *Gate) Remove(gone ...Rule) int {
	return g.end(func() []*conn {
		g.endQuestionsLocked(ErrRevoked, false)
		return g.removeLocked(gone)
	})
}

// RemoveAll does what Remove does, for all rules that are in force when it locks the gate. It
// returns these rules and how many connections it ended. Afterwards there are no more questions
// about hosts.
func (g *Gate) RemoveAll() (gone []Rule, ended int) {
	ended = g.end(func() []*conn {
		g.questions.stopped.Store(true)
		g.endQuestionsLocked(ErrRevoked, false)
		gone = g.rules
		return g.removeLocked(gone)
	})
	return gone, ended
}

// Expire is Remove for rules whose time has passed. Questions stay open.
func (g *Gate) Expire(gone ...Rule) int { return g.end(func() []*conn { return g.removeLocked(gone) }) }

// end resets the connections that takeOutLocked takes out of the table, and returns how many.
func (g *Gate) end(takeOutLocked func() []*conn) int {
	g.mu.Lock()
	ended := takeOutLocked()
	g.mu.Unlock()
	resetAll(ended)
	return len(ended)
}

// removeLocked removes rules, and takes the connections that the remaining rules do not permit out of
// the table.
func (g *Gate) removeLocked(gone []Rule) []*conn {
	g.rules = slices.DeleteFunc(slices.Clone(g.rules), func(r Rule) bool { return slices.Contains(gone, r) })
	return g.endLocked(ErrRevoked, func(c *conn) bool { return !g.permitsLocked(c) })
}

// Pause ends every connection and every question, and refuses new ones until Resume. Rules stay
// in force. When it returns, no connection carries any more data.
func (g *Gate) Pause() {
	g.end(func() []*conn {
		g.paused = true
		ended := g.endLocked(ErrPaused, func(*conn) bool { return true })
		g.endQuestionsLocked(ErrPaused, false)
		return ended
	})
}

// Resume ends a pause.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = false
}

// Close ends every connection and waits for the gate's goroutines. No byte is carried
// afterwards.
func (g *Gate) Close() {
	g.end(func() []*conn {
		g.closed = true
		ended := g.endLocked(ErrEnded, func(*conn) bool { return true })
		g.endQuestionsLocked(ErrEnded, false)
		if g.inside != nil {
			g.inside.Close()
		}
		return ended
	})
	g.cancel()
	g.served.Wait()
}

// endLocked takes the connections that isEnding selects out of the table. A connection that is
// still being dialled then never begins. The caller resets the returned connections.
func (g *Gate) endLocked(reason error, isEnding func(*conn) bool) (ended []*conn) {
	for c := range g.conns {
		if isEnding(c) {
			c.reason = reason
			c.cancel()
			g.dropLocked(c)
			ended = append(ended, c)
		}
	}
	return ended
}

// permitsLocked reports whether everything that a connection needs is permitted: its host by the
// rules or by its service, and a closed address and server names by the rules.
func (g *Gate) permitsLocked(c *conn) bool {
	permitted := g.rules.permits(c)
	if c.service != nil {
		permitted = c.service.permits(c)
	}
	return permitted &&
		(!c.needsAddr || g.rules.permitsAddr(c.addr.Addr(), c.port)) &&
		!slices.ContainsFunc(c.serverNames, func(name string) bool { return !g.rules.permitsServer(c, name) })
}

// rulesLocked returns the rules that permit the host, the closed address or a server name of a
// connection.
func (g *Gate) rulesLocked(c *conn) []Rule {
	return slices.DeleteFunc(slices.Clone(g.rules), func(r Rule) bool {
		permitsPart := c.service == nil && (r.hasName(c.host) || r.hasAddr(c.literal)) ||
			c.needsAddr && r.hasAddr(c.addr.Addr()) || slices.ContainsFunc(c.serverNames, r.hasName)
		return !permitsPart || !r.hasPort(c.port)
	})
}

func (g *Gate) mayResolve(name string) bool {
	if g.opt.ResolveAll || g.IsAsking() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	hasName := func(s *Service) bool { return s.Name == name && !s.isGone() }
	return slices.ContainsFunc(g.opt.Services, hasName) || g.rules.permitsName(name, 0)
}

func (g *Gate) refuseName(name string, reason error) {
	g.note(Event{State: Refused, Host: names.Foreign(name), Began: time.Now(), Reason: reason})
}

// note records an event that has already happened. If Record fails, note only logs the error.
func (g *Gate) note(e Event) {
	if err := g.opt.Record(e); err != nil {
		g.log.Error("a connection cannot be recorded", "host", e.Host, "state", string(e.State), "error", err)
	}
}
