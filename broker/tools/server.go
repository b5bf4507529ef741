package tools

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Defaults of Config.
const (
	// DefaultAnswer bounds the contents in one answer, in bytes. Structured results repeat
	// their text, and frames over 16 MiB fail in some clients.
	DefaultAnswer = 4 << 20
	// DefaultInFlight bounds the calls that run at a time.
	DefaultInFlight = 64
)

// Config configures a Server. Registry and Tree are required, and the tree must belong to the
// registry. A mount, a broker and a Server of the same registry should share one tree: users of
// one tree never lose each other's updates, but users of two trees may.
type Config struct {
	Registry *guard.Registry
	Tree     *vfs.Tree
	// Subject is the subject of grants and audit records; empty means no particular server.
	Subject guard.Subject
	// Hub watches the files of subscriptions. It is a view of the registry. Servers that share
	// a Hub share its inotify instance. nil: the server has its own.
	Hub *watch.Hub
	// Ask, unless nil, is asked about absolute paths that no root holds, before
	// they are refused; see broker.Session.Consent. Ask must have the subject Subject. Server.Close
	// closes Ask. If Subject is a session (guard.Subject.InSession), Server.Close also revokes
	// the roots that were granted to that session alone.
	Ask *broker.Session
	// ClientAnswers lets the client's own user answer the questions of its calls: for a
	// client that is the owner's own host. Without it, and always over HTTP, Ask asks only its
	// Asker, never the client.
	ClientAnswers bool
	// IgnoreRoots ignores the client's roots. Otherwise they narrow the client's session, from
	// the client's first list of roots that is not empty.
	IgnoreRoots bool
	// Resolve, unless nil, follows the links in the absolute path of a client's root on the
	// host, and returns the resulting path. If a link is not trusted, Resolve returns an error.
	// The client may know a directory by another path than the owner approved.
	Resolve func(path string) (string, error)
	// Home is the directory that ~ stands for; "": ~ has no special meaning.
	Home string
	// Answer bounds the contents in one answer, in bytes; 0: DefaultAnswer.
	Answer int
	// InFlight is how many calls run at a time; others wait; 0: DefaultInFlight.
	InFlight int
	// UID and GID own the files that the tools make, if the process may change owners; default:
	// the process's own.
	UID, GID uint32
	Version  string // of this program
	Log      *slog.Logger
}

// Server offers the tree of one registry to one subject. Its methods may be
// called concurrently.
type Server struct {
	cfg    Config
	caller guard.Caller
	mcp    *mcp.Server
	hub    *watch.Hub
	own    *watch.Hub // the hub that New has made and Close closes; nil: Config.Hub is used
	roots  *client.RootsService
	room   *semaphore.Weighted // one unit for each call in progress, at most Config.InFlight
	ctx    context.Context
	cancel context.CancelFunc
	// asking is the context of questions to a person. It ends when withdraw is called, and at
	// the latest with ctx. After that no person is asked.
	asking   context.Context
	withdraw context.CancelFunc
	requests *openRequests // nil: the transport belongs to another package, and its answers are not checked again
	sharing  string        // text of a question that says who shares the consents; "": nobody
	offers   offers
	narrow   narrowing
	subs     subscriptions
	notices  notices
	// openQuestions are the questions that are results of calls.
	openQuestions openQuestions
	// questions counts the questions to the client, or to a person, that have no answer yet.
	questions atomic.Int64
}

// New makes a server and registers it as a view. The caller must close it.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Answer <= 0 {
		cfg.Answer = DefaultAnswer
	}
	if cfg.InFlight <= 0 {
		cfg.InFlight = DefaultInFlight
	}
	if cfg.UID == 0 && cfg.GID == 0 {
		cfg.UID, cfg.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	s := &Server{
		cfg:           cfg,
		caller:        guard.Caller{Subject: cfg.Subject, Via: guard.ViaTools, UID: cfg.UID, GID: cfg.GID},
		hub:           cfg.Hub,
		room:          semaphore.NewWeighted(int64(cfg.InFlight)),
		openQuestions: openQuestions{undecided: semaphore.NewWeighted(maxQuestions)},
	}
	if s.hub == nil {
		s.own = cfg.Tree.NewHub(watch.HubOptions{})
		s.hub = s.own
		cfg.Registry.AddView(s.own)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.asking, s.withdraw = context.WithCancel(s.ctx)
	s.roots = client.NewRootsService(nil)
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "rootsfs", Title: "rootsfs", Version: cfg.Version}, &mcp.ServerOptions{
		Instructions:       instructions,
		Logger:             cfg.Log,
		SubscribeHandler:   s.subscribe,
		UnsubscribeHandler: s.unsubscribe,
		CompletionHandler:  s.complete,
		SetCacheable:       forOneClient,
		InitializedHandler: s.initialized,
		Capabilities: &mcp.ServerCapabilities{
			Tools:     &mcp.ToolCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
		},
	})
	s.mcp.AddReceivingMiddleware(s.roots.Middleware(), s.checkRequests)
	s.mcp.AddSendingMiddleware(s.sendNotices)
	s.mcp.AddResourceTemplate(fileTemplate, s.readResource)
	cfg.Registry.AddView(s)
	s.offer()
	return s
}

// forOneClient marks a result as private to its client and as stale at once, because the result
// depends on the subject's grants and their times. By the SDK's default any intermediary may
// cache a result and give it to another client.
func forOneClient(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
	c.CacheScope, c.TTLMs = "private", 0
}

// initialized notes the client's own name for itself. Questions to a person show the name.
func (s *Server) initialized(_ context.Context, r *mcp.InitializedRequest) {
	if p := r.Session.InitializeParams(); s.cfg.Ask != nil && p != nil && p.ClientInfo != nil {
		s.cfg.Ask.SetPeer("", p.ClientInfo.Name)
	}
}

const instructions = `Files are named by the root they lie in: "name/path", as list_allowed_directories tells, ` +
	`or by an absolute path or file:// URI inside a root. A long answer says how to go on.`

// Close ends the calls in progress, the subscriptions and Config.Ask, and removes the view from
// the registry. The transports end the sessions.
func (s *Server) Close() {
	s.cancel()
	s.cfg.Registry.RemoveView(s)
	s.subs.close()
	s.openQuestions.close()
	if s.own != nil {
		s.cfg.Registry.RemoveView(s.own)
		s.own.Close()
	}
	if s.cfg.Ask != nil {
		s.endConsents()
	}
}

// endConsents closes Config.Ask. If the server's subject is a session, endConsents also revokes
// the roots that were granted to that session alone: nobody else can use these roots, and the owner
// would still see them.
func (s *Server) endConsents() {
	s.cfg.Ask.Close()
	if s.cfg.Subject.WithoutSession() == s.cfg.Subject {
		return
	}
	// A call may be about to grant a root, so wait for the calls in progress. Close has cancelled
	// them. A call may hang in the file system of its root, so wait for guard.EndDeadline at most.
	ctx, cancel := context.WithTimeout(context.Background(), guard.EndDeadline)
	defer cancel()
	calls := int64(s.cfg.InFlight)
	allEnded := s.room.Acquire(ctx, calls) == nil // no call is in progress
	if allEnded {
		defer s.room.Release(calls)
		allEnded = s.openQuestions.undecided.Acquire(ctx, maxQuestions) == nil
	}
	for _, st := range s.cfg.Registry.RootsOf(s.cfg.Subject) {
		if st.Grant.Subject != s.cfg.Subject {
			continue
		}
		if _, err := s.cfg.Registry.Revoke(context.Background(), st.Grant.Root); err != nil && !errors.Is(err, names.NotExist) {
			s.cfg.Log.Warn("a root that a client's session won did not end well", "root", st.Grant.Root, "error", err)
			allEnded = false
		}
	}
	if allEnded {
		s.cfg.Registry.Forget(s.cfg.Subject)
	}
}

// MCP returns the server of the SDK, which can be connected to any transport.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// Invalidate implements guard.View: it updates the offered tools and resources to the present
// roots. The SDK announces the change later by itself, so nobody waits for a client.
func (s *Server) Invalidate(context.Context, guard.Change) error {
	s.offer()
	return nil
}

var _ guard.View = (*Server)(nil)

// offers are the tools and resources that the SDK's server offers.
type offers struct {
	mu    sync.Mutex               // guards the fields below, and is held during Server.offer
	tools map[string]bool          // whether a tool is offered, by name
	roots map[string]*mcp.Resource // the roots in resources/list, by directory
}

// offer updates the offered tools and resources to the present roots.
func (s *Server) offer() {
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	tools, roots := map[string]bool{}, map[string]*mcp.Resource{}
	var rights guard.Rights
	if s.cfg.Ask != nil {
		rights = guard.ReadWrite // what a person may allow
	}
	for _, st := range s.visible() {
		rights |= st.Grant.Policy.Rights
		dir := st.Grant.Resolved
		if roots[dir] = s.offers.roots[dir]; roots[dir] == nil || roots[dir].Name != string(st.Grant.Root) {
			roots[dir] = rootResource(&st)
		}
	}
	all := catalog()
	for i := range all {
		t := &all[i]
		tools[t.def.Name] = t.rights == 0 || t.rights&rights != 0
		switch was := s.offers.tools[t.def.Name]; {
		case tools[t.def.Name] && !was:
			s.mcp.AddTool(&t.def, s.handler(t))
		case !tools[t.def.Name] && was:
			s.mcp.RemoveTools(t.def.Name)
		}
	}
	for dir, was := range s.offers.roots {
		if roots[dir] == nil {
			s.mcp.RemoveResources(was.URI)
		}
	}
	for dir, r := range roots {
		if r != s.offers.roots[dir] {
			s.mcp.AddResource(r, s.readResource)
		}
	}
	s.offers.tools, s.offers.roots = tools, roots
}

// isTool reports whether there is a tool of this name, offered or not.
func isTool(name string) bool {
	return slices.ContainsFunc(catalog(), func(t tool) bool { return t.def.Name == name })
}

// offered returns the tool of that name if it is offered now, else nil.
func (s *Server) offered(name string) *tool {
	i := slices.IndexFunc(catalog(), func(t tool) bool { return t.def.Name == name })
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	if i < 0 || !s.offers.tools[name] {
		return nil
	}
	return &catalog()[i]
}

// visible returns the live roots that the tools show to the subject, sorted by name.
func (s *Server) visible() []guard.Status {
	return s.cfg.Registry.ShownRoots(s.cfg.Subject)
}
