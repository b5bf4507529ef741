package session

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/notify"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Options say what session to start.
type Options struct {
	Name string // "": made of NameFor's base name
	// NameFor is a path or name to call the session after; "": the mountpoint.
	NameFor string
	Version string
	Flags   []string      // for people who look at session.json
	Mount   mount.Options // Point as it was written; Log is filled in
	// Unmounted makes a session without a mount: its roots are reached through
	// its other fronts only. Mount is not looked at then.
	Unmounted bool
	Roots     []guard.Grant // with an Origin each
	PosixFull bool          // of every root, those added later included
	// Abuse is when servers are told of, or suspended; with AbuseFixed, whatever
	// the configuration comes to say.
	Abuse      guard.Abuse
	AbuseFixed bool
	Bound      Bound // of configured roots that are granted later; those among Roots are within it
	// Config is the configuration whose roots are among Roots. Its file is
	// watched; nil: there is none.
	Config     *config.Config
	Profile    string // whose roots of it they are
	Rules      guard.Rules
	Keep       []guard.Keep // further places that no root may touch
	AuditPaths audit.PathMode
	// AuditMaxAge and AuditMaxTotal bound the audit files of all sessions; 0 is no bound.
	AuditMaxAge   time.Duration
	AuditMaxTotal int64
	// FlatAt: see broker.Config.
	FlatAt string
	// Observe is told of everything that happens in the registry. It is called
	// in the middle of operations and must not wait; nil: nobody asks.
	Observe func(guard.Event)
	// Looked is told of each live root whose place was looked at again, because it
	// may have changed. It may be called concurrently; nil: nobody asks.
	Looked func(guard.RootName)
	// Leave makes Run return when the mount is out of the tree, whoever holds
	// something in it: the caller knows that all who could have ended, or ends
	// now itself, and the kernel ends the mount with it. The kernel lets go of
	// a mount that nobody holds some timer ticks later.
	Leave bool
	// Stopped is what goes on record as the reason when Run's stop is closed; "": a
	// signal.
	Stopped string
	// AnchorLater makes Start return while the audit log, which has the records, is
	// still being anchored for the first time. If it cannot be, the session ends,
	// and Run says why.
	AnchorLater bool
	// Sockets are those of the host's that the session's command may connect to; nil:
	// none.
	Sockets Sockets
	// Signal says that the caller has RevokeBySignal called at SIGUSR1.
	Signal bool
	// Logger makes the session's log, once its name is known.
	Logger func(session string) (*slog.Logger, error)
}

// Session is one running session.
type Session struct {
	opt     Options
	dir     *control.Dir
	log     *slog.Logger
	audit   *records
	reg     *guard.Registry
	history *history
	mnt     *mount.Mount // nil: there is none
	tree    *vfs.Tree
	srv     *control.Server
	hub     hub
	broker  *broker.Broker
	frame   int
	// questions are those that wait for `rootsfs consent`.
	questions broker.Queue
	denials   denials
	figures   figures
	notices   *notify.Notifier
	looks     chan struct{} // holds a token for each look at what a question asks for
	spaces    spaces
	shared    atomic.Int64                     // MCP clients served over the control socket
	sharings  atomic.Uint64                    // all there ever were
	watching  *watch.Hub                       // of all servers and MCP clients
	server    atomic.Pointer[control.Confined] // nil: the session runs none
	avail     *availability
	reload    <-chan struct{} // closed when the configuration is not watched any more; nil: it never is
	started   time.Time
	gone      atomic.Pointer[<-chan struct{}] // see left
	ctx       context.Context                 // ends with the session
	cancel    context.CancelFunc

	ending  chan struct{} // closed when the ending begins
	endOnce sync.Once
	endDone chan struct{} // closed when everything is revoked and unmounted
	ended   []control.Ended
	endErr  error
	stuck   bool // the unmount failed
	journal *journal

	mu    sync.Mutex // guards the fields below
	past  map[guard.RootName]granted
	last  *control.Refusal
	lacks guard.Rights // what last was refused for want of, when its remedy is "set"
	conf  confState
	perms map[uint64]string // by epoch
	again map[uint64]bool   // by epoch: something is at an unavailable root's place
	allow []preapproved
	// noAsking: what is not pre-approved is denied.
	noAsking bool
}

// Start begins a session. When it returns, the mount answers, if it has one, and
// commands find the session.
func Start(ctx context.Context, opt Options) (_ *Session, err error) {
	if err := enoughFiles(); err != nil {
		return nil, err
	}
	// What this process holds (descriptors of the roots, the control socket)
	// is not for other processes of the user to take.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("harden the process: %w", err)
	}
	if !opt.Unmounted {
		// What is more than a short run is worth the threads that it makes.
		time.AfterFunc(lasting, manyPs)
	}
	s := &Session{
		opt: opt, started: time.Now(), ending: make(chan struct{}), endDone: make(chan struct{}),
		past: map[guard.RootName]granted{}, perms: map[uint64]string{}, again: map[uint64]bool{}, looks: make(chan struct{}, insideLooks),
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.ctx = ctx
	defer func() {
		if err != nil {
			s.undo()
		}
	}()
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.grantFirst(ctx); err != nil {
		return nil, err
	}
	if err := s.mount(); err != nil {
		return nil, err
	}
	if err := s.audit.begin(); err != nil {
		return nil, err
	}
	if err := s.history.begin(); err != nil {
		return nil, err
	}
	s.serveFiles()
	if err := s.keepJournal(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if opt.AnchorLater {
		go s.anchored()
	} else if err := s.unanchored(); err != nil {
		return nil, err
	}
	s.log.Info("begun", "session", s.dir.Name(), "mountpoint", s.Point(), "roots", len(opt.Roots))
	return s, nil
}

// manyPs gives the Go scheduler more Ps than a small machine has processors. Its
// readers sleep in read(2) on the FUSE device, each keeping a P; with two Ps,
// sysmon takes one away for every request and wakes a thread to use it
// (measured on two processors: 46,000 futex calls for 40,000 requests, 4,000
// with eight).
func manyPs() {
	const enough = 8
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < enough {
		runtime.GOMAXPROCS(enough)
	}
}

// prepare checks what can be checked before anything is made, then makes the
// session's directory and log. The audit log follows when the session serves.
func (s *Session) prepare() (err error) {
	if !s.opt.Unmounted {
		if err := s.checkMount(); err != nil {
			return err
		}
	}
	if s.opt.Name != "" {
		s.dir, err = control.Create(s.opt.Name)
	} else {
		s.dir, err = control.CreateFor(cmp.Or(s.opt.NameFor, s.opt.Mount.Point))
	}
	if err != nil {
		return err
	}
	if s.log, err = s.opt.Logger(s.dir.Name()); err != nil {
		return err
	}
	if dir, why := control.RuntimePlace(); why != "" {
		s.log.Warn("sessions are kept elsewhere: "+why, "directory", dir, "remedy", "set XDG_RUNTIME_DIR to a directory of your own")
	}
	s.audit = &records{open: s.openAudit}
	s.notices = notify.New(func(err error) { s.log.Debug("the desktop could not be told", "error", err) })
	return nil
}

func (s *Session) grantFirst(ctx context.Context) error {
	keeps, err := Keeps(s.point(), s.opt.Keep)
	if err != nil {
		return err
	}
	dirs, err := written.Open()
	if err != nil {
		return err
	}
	s.history = &history{Dirs: dirs}
	s.reg = guard.NewRegistry(guard.Config{
		Opener: vfs.Opener(), Auditor: s.audit, Observe: s.observe, Rules: s.opt.Rules, History: s.history,
	})
	s.reg.Keep(keeps...)
	s.reg.SetAbuse(s.opt.Abuse)
	if len(s.opt.Roots) == 0 {
		return nil
	}
	_, err = s.grantAll(ctx, s.opt.Roots)
	return absent(s.opt.Roots, sameDir(s.opt.Roots, err))
}

// open makes a session known and lets it be commanded.
func (s *Session) open(ctx context.Context) (err error) {
	if err := s.watchMount(ctx); err != nil {
		return err
	}
	s.avail = watchRoots(ctx, s)
	s.reload = s.watchConfig(ctx)
	if s.srv, err = s.dir.Serve(s.log, s, s.handlers()...); err != nil {
		return err
	}
	go s.pruneTrashes(ctx)
	go s.figures.run(ctx, s.reg)
	return s.publish(false)
}

// publish writes session.json.
func (s *Session) publish(detached bool) error {
	return s.dir.Publish(control.Info{
		Started: s.started, Point: s.Point(), Version: s.opt.Version, Options: s.opt.Flags,
		Detached: detached, Signal: s.opt.Signal,
	})
}

// Name is the session's name; Point where it is mounted.
func (s *Session) Name() string { return s.dir.Name() }

// Dir is the session's directory, which its control socket is in.
func (s *Session) Dir() string { return s.dir.Path() }

// Point is where the session is mounted, resolved; "": nowhere.
func (s *Session) Point() string {
	if s.mnt == nil {
		return ""
	}
	return s.mnt.Point()
}

// Ended is closed when everything is revoked and unmounted; somebody may still
// hold the mount then, see Run.
func (s *Session) Ended() <-chan struct{} { return s.endDone }

// Log is the session's log.
func (s *Session) Log() *slog.Logger { return s.log }

// Registry is the session's registry.
func (s *Session) Registry() *guard.Registry { return s.reg }
