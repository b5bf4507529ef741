// Package session starts and runs a session of rootsfs. It joins the audit log, the registry
// with its rules, the mount, the owner's socket and the watch on the roots' directories, and
// orders their beginning and end.
//
// # Promises
//
//   - If Start fails before the session serves, it leaves no files behind, not even an audit
//     file.
//   - A session that ends for any reason (a signal, the owner's unmount, another program's
//     umount) first revokes every root and only then unmounts. It does not wait for programs
//     that still hold the detached mount. It stays only if not everything could be taken back.
//     Then it refuses every request.
//   - A root whose directory vanishes, is replaced or becomes unreadable ends by itself, and is
//     shown as unavailable until it is approved again.
//
// # Not promised
//
// A replaced directory is noticed within about a second, see package hostwatch. Until then
// operations go to the approved directory, never to the new one. kill -9 of the process revokes
// nothing by itself: the kernel then fails every request, but answers from its caches until the
// mount is detached. The command's supervisor (mount --daemon) detaches the mount at once.
// Files that programs have open or mapped may stay readable to them from cached pages.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/availability"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Options are the options of a session.
type Options struct {
	Name string // "": made from NameSource's base name
	// NameSource is a path or name from which the session's name is made; "": the mountpoint.
	NameSource string
	// HasProgramName is set if the session is named after its program. A project may have
	// chosen the program. So blocks of the configuration that are for a name do not apply to
	// the session, and nothing is saved for the session's name.
	HasProgramName bool
	// NumberName adds a number to Name if a live session has that name, as to a name made from
	// NameSource.
	NumberName bool
	Version    string
	Flags      []string      // for people who read session.json
	Mount      mount.Options // Point as written; Log is filled in
	// Unmounted makes a session without a mount: its roots are reached only through its other
	// front ends. Mount is then ignored.
	Unmounted bool
	Roots     []guard.Grant // with an Origin each
	PosixFull bool          // Policy.PosixFull of roots that the owner or the configuration adds later; the grants in Roots have their own
	// Abuse has the bounds at which servers are reported or suspended. With AbuseFixed, a
	// reload of the configuration does not change them.
	Abuse      ledger.Abuse
	AbuseFixed bool
	Bound      Bound // of roots that the configuration or an answer grants later; the grants in Roots are within it already. Bound.Stage holds for every root
	// Config is the configuration whose roots are in Roots. Its file is watched; nil: there is
	// none.
	Config     *config.Config
	Profile    string // the profile of these roots
	Rules      rules.RootRules
	Keep       []rules.ReservedPath // further places that no root may touch
	AuditPaths audit.PathMode
	// FlatAt: see broker.Config.
	FlatAt string
	// Observe, unless nil, gets every event of the registry. It is called in the middle of
	// operations and must not wait.
	Observe func(guard.Event)
	// OnRecheck, unless nil, is called with each live root whose path was checked again,
	// because the path may have changed. It may be called concurrently.
	OnRecheck func(guard.RootName)
	// SkipHolderSearch turns off the search for programs that still hold the detached mount:
	// the caller knows that all programs that could hold it have ended.
	SkipHolderSearch bool
	// StopReason is the reason in the record when Run's stop is closed; "": a signal.
	StopReason string
	// AnchorLater lets Start return before the audit log is anchored for the first time. The
	// log already has the records. If anchoring fails, the session ends, and Run returns the
	// error.
	AnchorLater bool
	// Sockets are the host's sockets that the session's command may connect to; nil: none.
	Sockets *sandbox.Sockets
	// Network is the command's network of approved hosts; nil: it has none.
	Network Network
	// Ceiling is the ceiling that these options keep to; nil: Start reads it.
	Ceiling *config.Ceiling
	// Within, unless nil, returns an error if a ceiling does not allow the session's confinement
	// or network. Then the session does not begin, or it ends.
	Within func(*config.Ceiling) error
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
	mnt      *mount.Mount // nil: the session has no mount
	tree     *vfs.Tree
	srv      *control.Server
	hub      events.Hub
	broker   *broker.Broker
	consent  *consent.Questions
	shared   atomic.Int64                     // MCP clients served over the control socket
	clients  atomic.Uint64                    // the last number that a client got, see guard.Subject.InSession
	watching *watch.Hub                       // of all servers and MCP clients
	server   atomic.Pointer[control.Confined] // nil: the session runs none
	paths    *hostwatch.Watcher               // of the roots, the ceiling and the configuration
	avail    *availability.Monitor            // nil until the session is open
	watches  sync.WaitGroup                   // of the roots, the ceiling, the configuration and the lease
	started  time.Time
	unlisted <-chan struct{} // closed when the mount is not in the table of mounts any more; nil: there is no mount, or it is not watched yet
	ctx      context.Context // ends with the session
	cancel   context.CancelFunc

	ending      context.Context // ends when the ending begins
	beginEnding context.CancelFunc
	endOnce     sync.Once
	endDone     chan struct{} // closed when everything is revoked and unmounted
	outcome     outcome
	journal     *journal

	pausing  pausing
	lease    *machineLease // nil: the machine belongs to no fleet
	refusals refusals
	conf     confState
	ceiling  ceilingState
}

// outcome describes the end of a session. After endDone is closed, only isStuck changes, and only
// Run uses isStuck.
type outcome struct {
	ended     []control.Ended
	err       error    // revokeErr joined with the error of the unmount
	revokeErr error    // describes what could not be taken back
	isHeld    bool     // a program held the mount when it was detached
	holders   []string // these programs
	isStuck   bool     // the unmount failed
}

// Start begins a session. When it returns, the session's mount, if it has one, answers, and
// commands find the session.
func Start(ctx context.Context, opt Options) (_ *Session, err error) {
	if err := checkFileLimit(); err != nil {
		return nil, err
	}
	// Other processes of the user must not get the descriptors of this process (those of the
	// roots, the control socket).
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("harden the process: %w", err)
	}
	if !opt.Unmounted {
		collectLate()
		// Short runs do without further threads.
		time.AfterFunc(shortRun, raiseMaxProcs)
	}
	s := &Session{
		opt: opt, started: time.Now(), endDone: make(chan struct{}),
		conf: confState{changing: make(chan struct{}, 1), current: opt.Config, profile: opt.Profile},
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
	if err := s.startJournal(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if opt.AnchorLater {
		go s.endUnlessAnchored()
	} else if err := s.anchorErr(); err != nil {
		return nil, err
	}
	s.log.Info("begun", "session", s.dir.Name(), "mountpoint", s.Point(), "roots", len(opt.Roots))
	return s, nil
}

// prepare checks the mount options, and creates the session's directory and its program log.
// Then it checks the machine's lease and whether an audit log can be created. Start creates
// the audit log after the mount.
func (s *Session) prepare() (err error) {
	if !s.opt.Unmounted {
		if err := s.opt.checkMount(); err != nil {
			return err
		}
	}
	if s.opt.Name != "" {
		s.dir, err = control.Create(s.opt.Name)
		if errors.Is(err, control.ErrTaken) && s.opt.NumberName {
			s.dir, err = control.CreateFor(s.opt.Name)
		}
	} else {
		s.dir, err = control.CreateFor(cmp.Or(s.opt.NameSource, s.opt.Mount.Point))
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
	if s.lease, err = leaseOfMachine(); err != nil {
		return err
	}
	if err := checkAudit(); err != nil {
		return err
	}
	s.audit = &records{open: s.openAudit}
	return nil
}

// grantFirst makes the registry with its rules, and grants the first roots.
func (s *Session) grantFirst(ctx context.Context) error {
	keeps, err := RootReservedPaths(s.opt.point(), s.opt.Keep)
	if err != nil {
		return err
	}
	dirs, err := writabledirs.Open()
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
	s.reg.ReservePaths(keeps...)
	s.lease.apply(s.reg)
	if err := s.loadCeiling(ctx); err != nil {
		return err
	}
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
	return explainAbsent(s.opt.Roots, explainSameDir(s.opt.Roots, err))
}

// open publishes a session, so that commands find it, and begins to answer them.
func (s *Session) open(ctx context.Context) (err error) {
	s.paths = hostwatch.New(ctx)
	if err := s.watchMount(ctx); err != nil {
		return err
	}
	s.avail = availability.New(availability.Config{Registry: s.reg, Paths: s.paths, Log: s.log, Events: &s.hub, OnRecheck: s.opt.OnRecheck})
	s.watches.Go(func() { s.watch(ctx) })
	if s.srv, err = s.dir.Serve(s.log, s, s.handlers()...); err != nil {
		return err
	}
	go s.pruneTrashes(ctx)
	if err := s.publish(false); err != nil || s.lease == nil {
		return err
	}
	// From here on the fleet's agent finds the session. The fleet may have given an order
	// after prepare read the lease. The agent could not pass that order to this session.
	if err := s.lease.checkUnchanged(); err != nil {
		return err
	}
	s.watches.Go(func() { s.followLease(ctx) })
	return nil
}

// shortRun is the age at which a session no longer counts as a short run. Work that only longer
// sessions need begins then.
const shortRun = 250 * time.Millisecond

// watch waits for shortRun, and then watches the paths of the roots, the ceiling and the
// configuration until ctx ends. In a session that ends earlier, it watches nothing.
func (s *Session) watch(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(shortRun):
	}
	s.watches.Go(func() { s.followCeiling(ctx) })
	if s.opt.Config != nil {
		s.watches.Go(func() { s.followConfig(ctx) })
	}
	s.avail.Run(ctx)
}

// publish writes session.json.
func (s *Session) publish(detached bool) error {
	return s.dir.Publish(control.Info{
		Started: s.started, Point: s.Point(), Version: s.opt.Version, Options: s.opt.Flags,
		Detached: detached, Signal: true,
	})
}

// Name returns the session's name.
func (s *Session) Name() string { return s.dir.Name() }

// Point returns the resolved mountpoint; "": the session has none.
func (s *Session) Point() string {
	if s.mnt == nil {
		return ""
	}
	return s.mnt.Point()
}

// Ended returns a channel that is closed when everything is revoked and unmounted. Programs may
// still hold the mount then, see Run.
func (s *Session) Ended() <-chan struct{} { return s.endDone }

// Log returns the session's log.
func (s *Session) Log() *slog.Logger { return s.log }

// Consent has the questions of the session's servers and command.
func (s *Session) Consent() *consent.Questions { return s.consent }

// Registry returns the session's registry.
func (s *Session) Registry() *guard.Registry { return s.reg }

var _ control.Service = (*Session)(nil)

// handlers returns the handlers of the owner's commands.
func (s *Session) handlers() []control.Handler {
	return []control.Handler{
		control.GetStatus.Handle(s.status),
		control.GetRefusal.Handle(s.refusal),
		control.AddRoots.Handle(s.addRoots),
		control.SetMode.Handle(s.setMode),
		control.RenewRoot.Handle(s.renewRoot),
		control.SwitchProfile.Handle(s.switchProfile),
		control.Revoke.Handle(s.revoke),
		control.Pause.Handle(s.pause),
		control.Resume.Handle(s.resume),
		control.ReadLeaseNow.Handle(s.readLease),
		control.ReadCeilingNow.Handle(s.readCeiling),
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
		control.ApplyStage.Handle(onStage(s, ApplyStage)),
		control.DiscardStage.Handle(onStage(s, DiscardStage)),
		control.ListCheckpoints.Handle(onTree(s, listCheckpoints)),
		control.MakeCheckpoint.Handle(onTree(s, MakeCheckpoint)),
		control.UndoStage.Handle(onStage(s, UndoStage)),
		control.ListNet.Handle(s.listNet),
		control.AddNet.Handle(s.addNet),
		control.RemoveNet.Handle(s.removeNet),
	}
}

// SetServer sets the confined program that `rootsfs status` shows.
func (s *Session) SetServer(c control.Confined) { s.server.Store(&c) }

// Mount is the session's mount; nil: it has none.
func (s *Session) Mount() *mount.Mount { return s.mnt }

// minFiles is how many descriptors a session and its mount need, with a few to spare. A
// session that runs out of them during its start cannot even clean up.
const minFiles = 64

// checkFileLimit refuses a limit of descriptors that is too low for serving. The Go runtime has
// raised the limit to the hard one.
func checkFileLimit() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= minFiles {
		return nil
	}
	return &control.Error{Text: fmt.Sprintf("only %d files may be open at a time (ulimit -n), and rootsfs needs %d: raise that limit", limit.Cur, minFiles), Class: control.System}
}

// LogFile returns the log file of a session that runs as a daemon.
func LogFile(session string) (string, error) { return config.StateDir(session + ".log") }
