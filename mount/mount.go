package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Mount is one mount of a registry's roots. It is a guard.View.
type Mount struct {
	opt  Options
	reg  *guard.Registry
	tree *vfs.Tree
	log  *slog.Logger
	raw  *fileSystem
	// kernel takes the notifications of names, attributes and pages to drop.
	kernel  kernel
	nodes   nodeTable
	ownView *view // of the mount's own files
	top     *node // the mount's directory
	// transport is how the mount is served, and fallback is why it is not served by
	// io_uring. Neither changes once New has returned.
	transport Transport
	fallback  error
	notifier  notifier
	at        mountpoint.Info // set by serve; does not change once New has returned
	inos      atomic.Uint64   // see ownIno
	layout    layoutIndex     // used if opt.Layout.ByPath
	// spares are the roots that the spare directories show.
	spares     []atomic.Pointer[guard.RootName]
	start      time.Time
	user       rules.User // the daemon's
	fileCache  fileCache
	retries    retries
	watcher    *watch.SourceWatcher // nil at level Strict: the kernel caches nothing
	delivery   *delivery            // of the events that watcher reports
	noWatches  sync.Once            // for one log line
	lostEvents sync.Once            // for one log line
	refs       atomic.Int64         // see maxRefs
	served     chan struct{}        // closed when the kernel's connection has ended

	mu sync.Mutex // guards the fields below
	// views has one view for each lifetime of a root, the latest last. The view of an ended
	// lifetime is removed when the next view of the root is created.
	views map[guard.RootName][]*view
	devs  []uint64 // see devIndex
}

// New mounts the registry's roots at opt.Point and serves them until Close, or until
// another process unmounts. When New returns, the mount answers.
func New(reg *guard.Registry, opt Options) (*Mount, error) {
	if opt.Level == 0 {
		opt.Level = Audit
	}
	if opt.Locks == 0 {
		opt.Locks = LocksLocal
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	for _, st := range reg.Roots() {
		if err := checkPolicy(opt, nil, st.Grant.Policy); err != nil {
			return nil, err
		}
	}
	if opt.Level == Max && opt.Locks == LocksHost {
		return nil, &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: errors.New(
			"--cache max cannot forward locks (the kernel sends no unlock there): use --cache audit with --locks host")}
	}
	m := &Mount{
		opt: opt, reg: reg, tree: opt.Tree, log: opt.Log, start: time.Now(),
		user:   rules.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())},
		served: make(chan struct{}), views: map[guard.RootName][]*view{},
	}
	if m.tree == nil {
		m.tree = vfs.New(reg)
	}
	m.tree.AwaitCloses(releaseDelay)
	if opt.AllowOther && opt.Owner == nil {
		m.tree.ShareAmongUsers()
	}
	// Descriptors that level Max keeps leave room for those that programs ask for.
	m.fileCache.max = max(1, min(maxOpen, vfs.MaxOpen()/2))
	m.delivery = newDelivery(tellChanged, tellAll, m.warnStuck)
	if opt.Level != Strict {
		m.watcher = m.tree.NewSourceWatcher(m.sourceChanged, m.sourceLost)
	}
	if err := m.serve(); err != nil {
		if m.watcher != nil {
			m.watcher.Close()
		}
		return nil, err
	}
	return m, nil
}

func (m *Mount) serve() error {
	m.layout.m = m
	m.spares = make([]atomic.Pointer[guard.RootName], m.opt.Layout.Spare)
	m.raw = newFileSystem(m, &m.notifier)
	m.notifier.ready = make(chan struct{})
	m.reg.AddView(m) // requests are answered before connect returns
	conn, err := m.connect()
	close(m.notifier.ready)
	if err != nil {
		m.reg.RemoveView(m)
		return err
	}
	m.at, err = mountpoint.Find(m.opt.Point)
	go func() {
		conn.Serve()
		m.reg.RemoveView(m)
		if m.watcher != nil {
			m.watcher.Close()
		}
		close(m.served)
	}()
	if err != nil {
		_ = mountpoint.Detach(m.opt.Point, true)
		return err
	}
	if !m.opt.OpenNothing {
		if err := m.answerPoll(conn); err != nil {
			_ = m.Close()
			return err
		}
	}
	if err := mountpoint.WidenReadAhead(m.at.Dev); err != nil {
		m.log.Debug("sequential reads are slower than they could be: the read-ahead window stays as it is", "error", err)
	}
	return nil
}

func (m *Mount) mountOptions() *fuse.MountOptions {
	o := &fuse.MountOptions{
		FsName: "rootsfs", Name: "rootsfs",
		Options:       []string{"default_permissions"},
		AllowOther:    m.opt.AllowOther,
		MaxBackground: 64,
		MaxWrite:      cmp.Or(m.opt.maxWrite, 512<<10), // 1 MiB is no faster (measured)
		EnableAcl:     true,
		EnableLocks:   m.opt.Locks == LocksHost,
		Debug:         m.opt.Debug,
		// The kernel sends modes without applying the umask, and the umask beside them:
		// a default ACL of the directory replaces the umask, and only the source knows
		// that ACL.
		ExtraCapabilities: fuse.CAP_DONT_MASK |
			// The mount clears set-id bits when the kernel marks a request, so the kernel
			// need not ask for security.capability before every write.
			fuse.CAP_HANDLE_KILLPRIV_V2,
		// No descriptor is passed through: the mount could not revoke it (measured).
		DisabledCapabilities: fuse.CAP_PASSTHROUGH,
		PanicHandler:         m.handlePanic,
		Logger:               slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
	}
	if m.opt.Level != Max {
		o.DisabledCapabilities |= fuse.CAP_NO_OPEN_SUPPORT
	}
	if m.opt.ReadOnly {
		o.Options = append(o.Options, "ro")
	}
	return o
}

// handlePanic turns a bug in a handler into EIO for its caller and a record for
// the owner; the mount lives on.
func (m *Mount) handlePanic(p any) fuse.Status {
	m.log.Error("panic in a file-system request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	_ = m.reg.Note(names.OpPanic, "", guard.Failed, fmt.Sprint(p))
	return fuse.EIO
}

// Point returns the mountpoint, and Info the mount's line of mountinfo.
func (m *Mount) Point() string         { return m.at.Point }
func (m *Mount) Info() mountpoint.Info { return m.at } //nolint:revive // see Point

// Tree returns the guarded tree that the mount serves, for the session's other fronts.
func (m *Mount) Tree() *vfs.Tree { return m.tree }

// Options returns the options that New was called with. Unset Level, Locks and Log have their
// defaults.
func (m *Mount) Options() Options { return m.opt }

// Served returns a channel that is closed when the kernel's connection has ended: no
// process holds the mount any more, or the connection was aborted.
func (m *Mount) Served() <-chan struct{} { return m.served }

// IsAttached reports whether the mount is in the table of mounts, alive or dead. If the
// table cannot be read, it returns false and the error.
func (m *Mount) IsAttached() (bool, error) {
	all, err := mountpoint.Mounts()
	return slices.ContainsFunc(all, func(in mountpoint.Info) bool {
		return in.ID == m.at.ID && in.Dev == m.at.Dev
	}), err
}

// Close unmounts, also if the connection was aborted. If the mount is already unmounted,
// Close does nothing: another mount may be at the same point now. The caller must have
// revoked the roots before, because a process that holds the mount keeps its access after the
// unmount. A busy mount is detached: its connection refuses every request and lives until
// the last holder is gone (see Served).
func (m *Mount) Close() error {
	if attached, err := m.IsAttached(); !attached {
		return err
	}
	err := mountpoint.Detach(m.Point(), true)
	if errors.Is(err, mountpoint.ErrNotMounted) {
		return nil // somebody else detached it meanwhile
	}
	return err
}

// view returns the view of a root in its present lifetime. The first look-up of the root
// creates the view. view returns nil if there is no such root. It also returns nil if the root
// was granted again after this call had asked the registry. A view of the later lifetime is in
// use then, and a view of an earlier lifetime must not displace it.
func (m *Mount) view(name guard.RootName) *view {
	st, ok := m.reg.Lookup(name)
	if !ok {
		return nil
	}
	m.reportStep(viewLookup, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.views[name]
	if len(all) > 0 {
		switch last := all[len(all)-1]; {
		case last.epoch == st.Epoch:
			return last
		case last.epoch > st.Epoch:
			return nil
		}
	}
	v := &view{m: m, name: name, epoch: st.Epoch, fileRoot: st.FileRoot, remote: st.Remote, staged: st.Grant.Policy.Rights.Staged()}
	v.noteRights(&st)
	hasEnded := func(v *view) bool { return v.ended.Load() }
	m.views[name] = append(slices.DeleteFunc(all, hasEnded), v)
	return v
}

// noteRights notes whether the root may be read.
func (v *view) noteRights(st *guard.Status) {
	v.unreadable.Store(st.Grant.Policy.Rights&guard.Read == 0)
}

// viewOf returns the view of the root and lifetime that c changes. It returns nil if the
// root was not looked up in that lifetime, or if the view has been removed from m.views.
func (m *Mount) viewOf(c guard.Change) *view {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.views[c.Root]
	if i := slices.IndexFunc(all, func(v *view) bool { return v.epoch == c.Epoch }); i >= 0 {
		return all[i]
	}
	return nil
}

// devIndex returns the number of a device that roots lie on. Numbers begin at 0.
func (m *Mount) devIndex(dev uint64) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range m.devs {
		if d == dev {
			return uint32(i)
		}
	}
	m.devs = append(m.devs, dev)
	return uint32(len(m.devs) - 1)
}

// device returns the device for which devIndex returned i.
func (m *Mount) device(i uint32) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.devs[i]
}

// ino returns the inode number shown for a file.
func (m *Mount) ino(id rules.Identity) uint64 { return inoOf(id.Ino, m.devIndex(id.Dev)) }

// inoOf returns the inode number shown for a file on a device (see devIndex). Files of the
// first device keep their numbers. Numbers of further devices are moved apart, because
// programs take equal numbers within one mount for hard links.
func inoOf(ino uint64, dev uint32) uint64 {
	ino ^= uint64(dev) << 48
	if ino <= topIno || ino == ^uint64(0) {
		ino |= 1 << 62 // numbers that FUSE keeps for itself
	}
	return ino
}

// releaseDelay is how long after close(2) the kernel's RELEASE may come, also on a busy
// machine.
const releaseDelay = 500 * time.Millisecond

// topIno is the inode number of the mountpoint itself.
const topIno = 1

// Invalidate implements guard.View.
func (m *Mount) Invalidate(ctx context.Context, c guard.Change) error {
	switch c.Kind {
	case guard.ChangeAdded:
		m.Refresh(c.Root)
		return nil
	}
	v := m.viewOf(c)
	if v == nil {
		return nil
	}
	if st, ok := m.reg.Lookup(c.Root); ok && st.Epoch == c.Epoch {
		v.noteRights(&st)
	}
	if c.Kind == guard.ChangeWidened {
		return nil
	}
	return v.invalidate(ctx, c.Kind)
}

// Object implements guard.Objector.
func (m *Mount) Object(old *guard.Policy, next guard.Policy) error {
	return checkPolicy(m.opt, old, next)
}

// checkPolicy returns an error if a mount with these options cannot enforce the policy
// next. A read-only mount takes only read-only roots. At level Max the kernel does not ask
// before it opens a file. It would let a program open a read-only file for writing
// (measured), so the rights of a root cannot differ from those of the mount, or change.
func checkPolicy(opt Options, old *guard.Policy, next guard.Policy) error {
	refuse := func(text string) error {
		return &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: errors.New(text)}
	}
	switch {
	case opt.ReadOnly && next.Rights.Mutating():
		return refuse("a --read-only mount takes only read-only roots: leave --read-only out, or make the root :ro")
	case opt.Locks == LocksHost && next.Rights.Staged():
		return refuse("--locks host cannot lock the files of a staged root, which programs of the host do not see: use --locks local, or make the root :rw")
	case opt.Level != Max:
		return nil
	case next.Once:
		return refuse("--cache max cannot grant one use of a file (opens are not asked): use --cache audit")
	case next.Rights.Staged():
		return refuse("--cache max cannot keep changes apart (opens are not asked): use --cache audit, or make the root :rw")
	case old != nil && old.Rights != next.Rights:
		return refuse("with --cache max a root's mode cannot change while it is mounted: revoke it and mount again, or use --cache audit")
	case len(next.Deny) > 0:
		return refuse("--cache max cannot keep deny patterns (opens are not asked): use --cache audit")
	case !opt.ReadOnly && next.Rights&(guard.Read|guard.Write) != guard.Read|guard.Write:
		return refuse("--cache max takes read-only roots only with --read-only, which makes the whole mount read-only; add it, or use --cache audit")
	}
	return nil
}

// Flush implements guard.Flusher. Programs may have changed mapped pages: Flush sends these
// changes to the source while the root's rights still allow the writes.
func (m *Mount) Flush(ctx context.Context, c guard.Change) error {
	if v := m.viewOf(c); v != nil {
		return v.flush(ctx)
	}
	return nil
}
