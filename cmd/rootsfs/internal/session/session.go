// Package session puts a session of rootsfs together and runs it: the audit
// log, the registry with its rules, the mount, the owner's socket, the watch on
// the roots' directories, and the order in which they begin and end.
//
// # Promises
//
//   - Start leaves nothing behind when it fails, no audit file either.
//   - A session that ends, for whatever reason (a signal, the owner's unmount,
//     somebody else's umount), first revokes every root and only then unmounts.
//     It waits for nobody who still holds something in the detached mount, but where
//     not everything could be taken back: there it stays and refuses everything.
//   - A root whose directory vanishes, is replaced or cannot be read any more ends
//     by itself and is shown as unavailable until it is approved again.
//
// # Not promised
//
// A replaced directory is noticed within a second or so, see package hostwatch; until then operations go to the directory that was approved, never to the new one.
// kill -9 of the process revokes nothing by itself: the kernel then fails every
// request, but answers from its caches until the mount is detached. The command's
// supervisor detaches the mount of a session that it watches (mount --daemon), at once;
// what programs hold open or have mapped may stay readable to them from cached pages.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Options say what session to start.
type Options struct {
	Name string // "": made of NameFor's base name
	// NameFor is a path or name to call the session after; "": the mountpoint.
	NameFor string
	// NameUngiven is set if the session is called after a program, which may be a project's:
	// what the configuration has for a name is not for this session, nor is anything saved
	// for its name.
	NameUngiven bool
	// NumberName adds a number to Name if a live session has it, as to a name made of NameFor.
	NumberName bool
	Version    string
	Flags      []string      // for people who look at session.json
	Mount      mount.Options // Point as it was written; Log is filled in
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
	// Leave lets nobody look who still holds the mount when it is out of the tree: the
	// caller knows that all who could have ended.
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
	Sockets *sandbox.Sockets
	// Network is the network of approved hosts that the session's command has; nil: it has
	// none.
	Network Network
	// Logger makes the session's log, once its name is known.
	Logger func(session string) (*slog.Logger, error)
}

// Session is one running session.
type Session struct {
	opt      Options
	dir      *control.Dir
	log      *slog.Logger
	audit    *records
	reg      *guard.Registry
	mnt      *mount.Mount // nil: there is none
	tree     *vfs.Tree
	srv      *control.Server
	hub      events.Hub
	broker   *broker.Broker
	frame    int
	consent  *consent.Questions
	spaces   asides[uint64]                   // questions for free space, by epoch
	shared   atomic.Int64                     // MCP clients served over the control socket
	sharings atomic.Uint64                    // all there ever were
	watching *watch.Hub                       // of all servers and MCP clients
	server   atomic.Pointer[control.Confined] // nil: the session runs none
	paths    *hostwatch.Watcher               // of the roots and the configuration
	avail    *availability
	reload   <-chan struct{} // closed when the configuration is not watched any more; nil: it never is
	started  time.Time
	left     <-chan struct{} // closed when the mount has left the tree of mounts; nil: it is not in it
	ctx      context.Context // ends with the session
	cancel   context.CancelFunc

	ending      context.Context // ends when the ending begins
	beginEnding context.CancelFunc
	endOnce     sync.Once
	endDone     chan struct{} // closed when everything is revoked and unmounted
	ended       []control.Ended
	endErr      error    // with that of the unmount
	revokeErr   error    // what could not be taken back
	held        bool     // somebody held the mount when it was detached
	holders     []string // by whom
	stuck       bool     // the unmount failed
	journal     *journal

	mu          sync.Mutex                 // guards the fields below
	lastGrants  map[guard.RootName]granted // of each name, whether it has ended or not
	lastRefusal *control.Refusal
	refused     guard.Request // that of lastRefusal
	conf        confState
	places      map[uint64]*rootPlace // by epoch
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
		collectLate()
		// What is more than a short run is worth threads.
		time.AfterFunc(lasting, manyPs)
	}
	s := &Session{
		opt: opt, started: time.Now(), endDone: make(chan struct{}),
		lastGrants: map[guard.RootName]granted{}, places: map[uint64]*rootPlace{},
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.ctx = ctx
	s.ending, s.beginEnding = context.WithCancel(context.Background())
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
	if _, err := s.audit.begin(); err != nil {
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
		if errors.Is(err, control.ErrTaken) && s.opt.NumberName {
			s.dir, err = control.CreateFor(s.opt.Name)
		}
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
	if err := checkAudit(); err != nil {
		return err
	}
	s.audit = &records{open: s.openAudit}
	return nil
}

func (s *Session) grantFirst(ctx context.Context) error {
	keeps, err := RootKeeps(s.point(), s.opt.Keep)
	if err != nil {
		return err
	}
	dirs, err := written.Open()
	if err != nil {
		return err
	}
	stages, err := Stages()
	if err != nil {
		return err
	}
	s.reg = guard.NewRegistry(guard.Config{
		Opener: vfs.StagingOpener(stages, s.dir.Name()), Auditor: s.audit, Observe: s.observe, Rules: s.opt.Rules, History: dirs,
	})
	s.reg.Keep(keeps...)
	s.reg.SetAbuse(s.opt.Abuse)
	for at, target := range s.opt.Mount.Layout.Links {
		s.reg.NoteLink(at, target)
	}
	for _, dir := range []string{os.Getenv("HOME"), os.Getenv("PWD")} {
		if real, err := s.resolveNamed(dir); err == nil && real != dir {
			s.reg.NoteLink(dir, real)
		}
	}
	if len(s.opt.Roots) == 0 {
		return nil
	}
	_, err = s.grantAll(ctx, s.opt.Roots)
	return absent(s.opt.Roots, sameDir(s.opt.Roots, err))
}

// open makes a session known and lets it be commanded.
func (s *Session) open(ctx context.Context) (err error) {
	s.paths = hostwatch.New(ctx)
	if err := s.watchMount(ctx); err != nil {
		return err
	}
	s.avail = watchRoots(ctx, s)
	s.reload = s.watchConfig(ctx)
	if s.srv, err = s.dir.Serve(s.log, s, s.handlers()...); err != nil {
		return err
	}
	go s.pruneTrashes(ctx)
	return s.publish(false)
}

// publish writes session.json.
func (s *Session) publish(detached bool) error {
	return s.dir.Publish(control.Info{
		Started: s.started, Point: s.Point(), Version: s.opt.Version, Options: s.opt.Flags,
		Detached: detached, Signal: true,
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

// Consent has the questions of the session's servers and command.
func (s *Session) Consent() *consent.Questions { return s.consent }

// Registry is the session's registry.
func (s *Session) Registry() *guard.Registry { return s.reg }

var _ control.Service = (*Session)(nil)

// handlers serve the owner's commands.
func (s *Session) handlers() []control.Handler {
	return []control.Handler{
		control.GetStatus.Handle(s.status),
		control.GetRefusal.Handle(s.refusal),
		control.AddRoots.Handle(s.addRoots),
		control.SetMode.Handle(s.setMode),
		control.RenewRoot.Handle(s.renewRoot),
		control.SwitchProfile.Handle(s.switchProfile),
		control.Revoke.Handle(s.revoke),
		control.Resume.Handle(s.resume),
		control.Unmount.Handle(s.endByOwner),
		control.ListQuestions.Handle(s.consent.List),
		control.AnswerQuestion.Handle(s.consent.Answer),
		control.PreviewQuestion.Handle(s.consent.Preview),
		control.ListDenials.Handle(s.consent.ListDenials),
		control.ForgetDenial.Handle(s.consent.Forget),
		control.GetPolicy.Handle(s.policy),
		control.CheckPolicy.Handle(s.checkPolicy),
		control.Why.Handle(s.why),
		control.SetPatterns.Handle(s.setPatterns),
		control.ListTrash.Handle(onTree(s, ListTrash)),
		control.RestoreTrash.Handle(onTree(s, RestoreTrash)),
		control.EmptyTrash.Handle(onTree(s, EmptyTrash)),
		control.ListStage.Handle(onTree(s, ListStage)),
		control.StageContents.Handle(onTree(s, StageContents)),
		control.ApplyStage.Handle(onTree(s, ApplyStage)),
		control.DiscardStage.Handle(onTree(s, DiscardStage)),
		control.ListNet.Handle(s.listNet),
		control.AddNet.Handle(s.addNet),
		control.RemoveNet.Handle(s.removeNet),
	}
}

// SetServer tells `rootsfs status` what the session confines.
func (s *Session) SetServer(c control.Confined) { s.server.Store(&c) }

// Show has a spare directory of the session's mount show a root: see mount.Mount.
func (s *Session) Show(spare int, root guard.RootName) error { return s.mnt.Show(spare, root) }

// Refresh has the kernel ask again for what is at a root's place: see mount.Mount.
func (s *Session) Refresh(root guard.RootName) { s.mnt.Refresh(root) }

// leastFiles is how many descriptors a session and its mount need with a few to spare:
// one that runs out of them during its start cannot even end it.
const leastFiles = 64

// enoughFiles refuses a limit of descriptors with which nothing can be served. The Go
// runtime has raised it to the hard one.
func enoughFiles() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= leastFiles {
		return nil
	}
	return &control.Error{Text: fmt.Sprintf("only %d files may be open at a time (ulimit -n), and rootsfs needs %d: raise that limit", limit.Cur, leastFiles), Class: control.System}
}

// LogFile is where a session that runs as a daemon writes its log.
func LogFile(session string) (string, error) { return config.StateDir(session + ".log") }

// RootKeeps is Keeps and the place of the HOMEs that are kept for agents and servers: a root
// there would give one repository's agent the logins, and the past, of another's. A kept HOME
// itself, and a socket, may lie there.
func RootKeeps(point string, more []guard.Keep) ([]guard.Keep, error) {
	if homes, err := xdg.Data(); err == nil { // otherwise none is kept
		more = append(slices.Clone(more), guard.Keep{
			Path: homes, What: "the HOMEs that are kept for agents",
			Remedy: "choose another directory, or give a run that HOME with --home DIRECTORY",
		})
	}
	return Keeps(point, more)
}

// Keeps lists the places of the owner's plane that no root may touch. Those that
// do not exist yet count too: a root must not come to hold them later.
func Keeps(point string, more []guard.Keep) ([]guard.Keep, error) {
	state, err := config.StateDir()
	if err != nil {
		return nil, err
	}
	var all []guard.Keep
	if point != "" {
		all = append(all, guard.Keep{Path: point, What: "the mountpoint"})
	}
	all = append(all,
		guard.Keep{Path: control.RuntimeDir(), What: "the session directory"},
		guard.Keep{Path: state, What: "the directory of audit files and logs"},
	)
	if conf, err := config.DefaultPath(); err == nil {
		all = append(all, guard.Keep{Path: filepath.Dir(conf), What: "the configuration"})
	}
	all = append(all, more...)
	for i := range all {
		all[i].Path = Resolve(all[i].Path)
	}
	return all, nil
}

// resolveNamed returns where a path leads on the host by which somebody who is not the owner
// names a directory. It follows no link that programs or other users can change.
func (s *Session) resolveNamed(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("it is not an absolute path")
	}
	if err := s.reg.CheckLinks(path); err != nil {
		return "", err
	}
	return Resolve(path), nil
}

// Resolve follows the links of the part of path that exists.
func Resolve(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	end, err := names.WalkLinks(abs, func(s names.LinkStep) (string, error) {
		target, _ := os.Readlink(s.Path()) // "" if it is no link, or missing
		return target, nil
	}, nil)
	if err != nil {
		return abs // too many links
	}
	return end
}
