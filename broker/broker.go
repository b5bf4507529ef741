package broker

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Defaults of Config and Limits.
const (
	DefaultFrame    = 4 << 20
	DefaultChunkMax = 4 << 20
	DefaultDebounce = 250 * time.Millisecond // R177
	DefaultAskFor   = 2 * time.Minute
)

// Config configures a Broker. Registry and Tree are required, and the tree must belong to
// that registry. If the roots are mounted, use the mount's tree: a write with ifMatch never
// overwrites an update that another user of the same tree has made, but it may overwrite one that
// was made through another tree.
type Config struct {
	Registry *guard.Registry
	Tree     *vfs.Tree
	// Hub watches files for files/watch. The caller adds it to the registry's views
	// (guard.Registry.AddView), and closes it. Users of one Hub share its capacity fairly. nil: the
	// broker makes its own.
	Hub *watch.Hub
	// Asker decides about files/consent for paths that are not approved yet; nil refuses
	// them. Broker.SessionFor sets another one for a session.
	Asker Asker
	// AskFor is how long a question waits for its answer.
	AskFor time.Duration
	// Terms narrows every root that consent grants, such as by limits or a latest expiry; nil:
	// no terms.
	Terms func(guard.Grant) guard.Grant
	// Limits hold for each session.
	Limits Limits
	// NoListChanged switches list_changed off. The capability then has listChanged false.
	NoListChanged bool
	// NoRoots makes the MCP client one without roots: it declares neither roots nor the broker in
	// its capabilities, and roots/list and files/* are unknown methods.
	NoRoots bool
	// Debounce is the least time between two list_changed notifications.
	Debounce time.Duration
	// FlatAt, unless "", is the directory in which servers see each root under its name (`run
	// --map flat`). roots/list then returns these paths, and requests may use absolute paths
	// below it. If FlatAt is "", servers see the roots at their paths on the host.
	FlatAt string
	// PageSize is how many roots one page of roots/list has; default 50.
	PageSize int
	// UID and GID own the files that the broker makes, if the process may give files
	// away; default: the process's own.
	UID, GID uint32
	Log      *slog.Logger
}

// Limits bound the resources that one server may use. Zero means the default; a negative
// number means no limit.
type Limits struct {
	OpsPerSecond   float64       // requests; default no limit
	Burst          int           // default OpsPerSecond, at least 1; negative: the default
	BytesPerSecond float64       // contents read and written; default no limit
	InFlight       int           // requests whose answers are not sent yet; default 256
	BytesInFlight  int64         // memory that these requests and their answers hold; default 64 MiB
	Watches        int           // default 64
	Uploads        int           // uploads at a time; default 16
	MaxFile        int64         // bytes of one file; default no limit beside the root's
	MaxWritten     int64         // bytes over the session; default no limit
	MaxChunk       int64         // bytes of one read or write; default 4 MiB
	Timeout        time.Duration // of a request, while no bytes move; default 60 s
	Consents       int           // questions a minute, of all sessions of one subject; default 6
}

func (l Limits) withDefaults() Limits {
	l.InFlight = cmp.Or(l.InFlight, 256)
	l.BytesInFlight = cmp.Or(l.BytesInFlight, 64<<20)
	l.Watches = cmp.Or(l.Watches, 64)
	l.Uploads = cmp.Or(l.Uploads, 16)
	l.MaxChunk = cmp.Or(l.MaxChunk, DefaultChunkMax)
	l.Consents = cmp.Or(l.Consents, 6)
	l.Timeout = cmp.Or(l.Timeout, rules.DefaultTimeout)
	return l
}

// Broker serves the sessions of one registry. Its methods may be called
// concurrently.
type Broker struct {
	cfg Config
	hub *watch.Hub
	own *watch.Hub // hub, if the broker made it; else nil

	inHandshake, inRequest jsonline.Patch // see Session.Advertise

	nameMu sync.Mutex // held from the search for a free root name until the root is granted

	mu       sync.Mutex // guards the fields below
	sessions map[*Session]bool
	asks     map[guard.Subject]*rate.Limiter // limits of questions, by the subject without its session
	closed   bool
}

// New makes a broker and adds it to the registry's views. The caller must close the broker.
func New(cfg Config) *Broker {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.AskFor = cmp.Or(max(cfg.AskFor, 0), DefaultAskFor)
	cfg.Debounce = cmp.Or(max(cfg.Debounce, 0), DefaultDebounce)
	cfg.PageSize = cmp.Or(max(cfg.PageSize, 0), 50)
	if cfg.UID == 0 && cfg.GID == 0 {
		cfg.UID, cfg.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	cfg.Limits = cfg.Limits.withDefaults()
	b := &Broker{cfg: cfg, hub: cfg.Hub, sessions: map[*Session]bool{}, asks: map[guard.Subject]*rate.Limiter{}, inHandshake: cfg.advertise(true), inRequest: cfg.advertise(false)}
	if b.hub == nil {
		b.own = cfg.Tree.NewHub(watch.HubOptions{})
		b.hub = b.own
		cfg.Registry.AddView(b.own)
	}
	cfg.Registry.AddView(b)
	return b
}

// Close ends every session, and removes the broker, and the Hub that it made, from the
// registry's views.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, s := range b.Sessions() {
		s.Close()
	}
	b.cfg.Registry.RemoveView(b)
	if b.own != nil {
		b.cfg.Registry.RemoveView(b.own)
		b.own.Close()
	}
}

// Sessions lists the live sessions, in no order.
func (b *Broker) Sessions() []*Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.sessions))
}

// Invalidate implements guard.View. It gives up the uploads into a root that ended or was
// narrowed, and makes every session announce its list of roots if the list has changed. It need
// not end requests or watches: the registry has drained the requests, and the hub ends the
// watches.
func (b *Broker) Invalidate(_ context.Context, c guard.Change) error {
	for _, s := range b.Sessions() {
		if c.Kind == guard.ChangeEnded || c.Kind == guard.ChangeNarrowed {
			s.dropUploads(c.Root)
		}
		s.announceRoots()
	}
	return nil
}

// Flush implements guard.Flusher. It gives up uploads into a root that is about to end,
// while their temporary files can still be removed.
func (b *Broker) Flush(ctx context.Context, c guard.Change) error {
	if c.Kind != guard.ChangeEnded {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range b.Sessions() {
			s.dropUploads(c.Root)
		}
	}()
	select {
	case <-done:
	case <-ctx.Done(): // on a source that hangs, dropUploads returns only after the root's gate was shut
	}
	return nil
}

var _ guard.Flusher = (*Broker)(nil)
