package guard

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Request describes one operation to the gate.
type Request struct {
	Caller Caller
	Op     Op
	Path   Path
	Path2  Path   // the second path of rename and link; same root, or EXDEV
	Need   Rights // further rights that the arguments require
	// Epoch is the lifetime of the root that the operation is meant for: paths and files
	// of one lifetime mean nothing in the next. 0: the present one.
	Epoch uint64
	// Held is the hold of the open file or directory of the operation; nil for operations by
	// path.
	Held *Hold
	// HeldTarget is the hold of the second open file, for operations on two.
	HeldTarget *Hold
	// Dry, unless nil, makes the operation a dry run: see DryRun.
	Dry *DryRun
	// Quotas are reserved for these. Bytes is the most that will be written or read, Size the
	// later size of the file (0 if it does not grow), and Names the number of names to be made.
	Bytes, Size int64
	Names       int64
	// AttributesOnly says that the operation only needs attributes, although Op is one that
	// reads.
	AttributesOnly bool
	// Quiet suppresses the record of success, for operations that are one
	// step of another.
	Quiet bool
	// OpensForWriting says that the operation opens a file for writing. The bytes written
	// are recorded when the file is closed, so room for that record is promised, too.
	OpensForWriting bool

	room ledger.Room // placed here to use padding
}

// Hold is the part of a lease that a file keeps from the operation that opened it. It has the root
// and lifetime that the file belongs to, the nested roots it lies in, and the verdict of the patterns.
// A hold does not keep the root alive: a file of an ended root stays dead, even if the same
// directory is granted again.
type Hold struct {
	root       *root
	nestingGen uint64
	crossed    []*root // outermost first
	verdict    pattern.Verdict
	// contentPath is the path below the root, if the verdict depends on the file's contents and
	// each operation has to judge these anew (Judge.held); else it is "".
	contentPath string
}

// Stale reports whether nested roots or patterns changed since the hold was
// taken, so that the file's place has to be judged again.
func (h *Hold) Stale() bool { return h.nestingGen != h.root.nesting.Load().gen }

// Domain is the epoch of the innermost nested root the file lies in, 0 for none;
// see Lease.EnterIfNested.
func (h *Hold) Domain() uint64 {
	if len(h.crossed) == 0 {
		return 0
	}
	return h.crossed[len(h.crossed)-1].epoch
}

// Root returns the name and epoch the hold belongs to.
func (h *Hold) Root() (RootName, uint64) { return h.root.name, h.root.epoch }

// Dead returns a channel that is closed when the root's gate shuts.
func (h *Hold) Dead() <-chan struct{} { return h.root.dead }

// ErrJudgeAgain is the error of Admit for a held file if, since the file was opened, roots
// were nested or revoked inside its root, or the root's patterns changed. The caller has to
// judge the file's place again, by walking to it anew, as package vfs does.
var ErrJudgeAgain = errors.New("nested roots or patterns changed; the file's place must be judged again")

// Lease is the permission to run one operation. It is the only way to a root's
// descriptor. Done must be called exactly once, when the operation has ended.
type Lease struct {
	reg     *Registry
	root    *root
	policy  *Policy
	req     Request
	start   time.Time
	crossed []crossing
	nesting *nesting // as at admission; resolution is judged by it
	bytes   int64    // acquired from the budget of bytes in flight
	written int64    // charged to the quotas of bytes
	created int64    // charged to the quotas of names
	notes   *notes
	subject *ledger.Account // nil: the subject has no quota

	gen      *generation
	detached *detached // nil: the operation has no detached part
	// The small fields are together: for a lease of more than 352 bytes Go allocates 384.
	pinned    bool // the lease of a detached part: pins keep its sources open
	reserved  bool // quotas have been charged
	abandoned bool // the operation was answered early; its detached part goes on, and settles
	patterned bool // names have to be judged
}

type crossing struct {
	root          *root
	gen           *generation
	sameDirectory bool // root has the same directory as the lease's root
}

// Admit is the gate. It does, in this order:
//  1. checks that the request names a caller
//  2. checks that the root is live and granted to the caller, counts the operation in the
//     root's generation, and checks that neither the registry is paused nor the caller suspended
//  3. checks the rights that the operation takes, and that a second path is in the same root
//  4. judges an open file by the patterns (a path is judged as it is resolved, see Lease.Judge)
//  5. waits for the speed limit, until ctx or the root ends; after a wait it repeats 2 to 4
//  6. reserves room for the record
//  7. waits for the limit of bytes in flight
//  8. charges the quotas
//
// The caller then runs the operation and calls Lease.Done, which settles the quota, wraps the
// error once, audits and releases. Admit itself audits a refusal. A dry run (Request.Dry) passes
// the same checks in the same order except 6 and 7, waits for nothing, and charges and records
// nothing.
func (g *Registry) Admit(ctx context.Context, req Request) (*Lease, error) {
	l := &Lease{reg: g, req: req, start: time.Now()}
	decided := false
	defer func() {
		if !decided {
			l.release() // admit panicked, and a later revocation must not wait for this operation
		}
	}()
	err := l.admit(ctx)
	decided = true
	if err == ErrJudgeAgain { //nolint:errorlint // our own sentinel, never wrapped here
		return nil, err
	}
	if err != nil {
		return nil, l.Done(0, err)
	}
	return l, nil
}

func (l *Lease) admit(ctx context.Context) error {
	req := &l.req
	if req.Caller.Via == 0 || req.Caller.Via > ViaControl {
		return &Error{Kind: names.Internal, Err: errors.New("the operation names no caller")}
	}
	if err := l.checkRequest(l.start); err != nil {
		return err
	}
	auditor, rec := l.recorder().expected()
	if waited, err := waitForSpeed(ctx, l, auditor, rec); err != nil {
		return err
	} else if waited {
		// The policy may have changed meanwhile.
		if err := l.checkRequest(time.Now()); err != nil {
			return err
		}
	}
	if err := l.recorder().reserve(ctx, auditor, rec); err != nil {
		return err
	}
	// Allocating moves no data.
	if l.root.bytes != nil && req.Bytes > 0 && req.Op != names.OpAllocate && l.root.flushing.Load() == 0 && req.Dry == nil {
		if err := acquireBytes(ctx, l.root, req.Bytes); err != nil {
			return err
		}
		l.bytes = req.Bytes
	}
	if req.Dry == nil {
		l.root.ops.Add(1)
		l.root.life.Use(l.start)
	}
	return l.Charges().reserve()
}

// checkRequest is the part of admission that does not wait: root, rights, patterns.
func (l *Lease) checkRequest(now time.Time) error {
	req := &l.req
	if err := l.findRoot(now); err != nil {
		return err
	}
	if lacks := rules.Lacked(req.Op, req.Need, l.policy.Rights); lacks != 0 {
		return l.denied(l.root, lacks, l.policy.Rights)
	}
	if req.Path2.Root != "" && req.Path2.Root != req.Path.Root {
		return &Error{Kind: names.Invalid, Err: syscall.EXDEV}
	}
	return l.Judge().held()
}

// findRoot finds the root, checks its subject, counts the operation in the root's generation, and
// enters the nested roots that the held files lie in.
func (l *Lease) findRoot(now time.Time) error {
	req := &l.req
	var r *root
	if req.Held != nil {
		r = req.Held.root
	} else {
		r = l.reg.snap.Load().byName[req.Path.Root]
	}
	if r == nil {
		if l.reg.WasRevoked(req.Path.Root, req.Caller.Subject) {
			return &Error{Kind: names.Revoked}
		}
		return &Error{Kind: names.NoConsent}
	}
	req.Dry.note(Step{Kind: StepRoot, Root: r.name})
	if !r.grant.Subject.Covers(req.Caller.Subject) {
		return &Error{Kind: names.NoConsent}
	}
	if req.Epoch != 0 && req.Epoch != r.epoch {
		return &Error{Kind: names.Revoked}
	}
	if l.reg.isOverdue(r, req.Dry != nil) {
		return r.endedError()
	}
	gen, ok := r.acquire()
	if !ok {
		if req.Dry == nil {
			r.refused.Add(1)
		}
		return r.endedError()
	}
	l.root, l.gen, l.policy, l.nesting = r, gen, r.policy.Load(), r.nesting.Load()
	if req.Caller.Via != ViaControl { // the owner's own operations go on
		// After acquire: Rejudge and Pause wait for operations that are counted.
		if err := l.reg.barred(req.Caller.Subject, now, req.Dry != nil); err != nil {
			return err
		}
	}
	l.patterned = l.Judge().anyRules(func(*rules.RuleSet) bool { return true })
	for _, h := range []*Hold{req.Held, req.HeldTarget} {
		if err := l.enterHeld(h); err != nil {
			return err
		}
	}
	if r.once != nil {
		if err := l.Charges().useOnce(r); err != nil {
			return err
		}
	}
	if len(l.nesting.sameDirectory) > 0 {
		return l.enterSameDirectory()
	}
	return nil
}

// enterHeld checks a hold, and enters the nested roots that its file lies in.
func (l *Lease) enterHeld(h *Hold) error {
	if h == nil {
		return nil
	}
	if h.root != l.root {
		return &Error{Kind: names.Revoked}
	}
	if h.nestingGen != l.nesting.gen {
		l.release()
		return ErrJudgeAgain
	}
	for _, c := range h.crossed {
		if err := l.enterRoot(c, false); err != nil {
			return err
		}
	}
	return nil
}

// Source returns the opened root. Its descriptor (FD), from which the package vfs/internal/beneath
// resolves paths, is valid until Done and must not be closed.
func (l *Lease) Source() Source { return l.root.src }

// PosixFull and OtherFileSystems are the policy's switches.
func (l *Lease) PosixFull() bool        { return l.policy.PosixFull }
func (l *Lease) OtherFileSystems() bool { return l.policy.OtherFileSystems }

// Timeout returns how long the operation may take.
func (l *Lease) Timeout() time.Duration { return l.policy.Timeout() }

// Began returns the time at which Admit was called.
func (l *Lease) Began() time.Time { return l.start }

// Caller returns the caller of the operation.
func (l *Lease) Caller() Caller { return l.req.Caller }

// Op returns the operation.
func (l *Lease) Op() Op { return l.req.Op }

// Epoch returns the number of the grant's lifetime.
func (l *Lease) Epoch() uint64 { return l.root.epoch }

// Hold returns the hold for a file that was opened at the operation's path: the root's
// lifetime, and the verdict of the patterns on the path.
func (l *Lease) Hold() *Hold { return l.HoldAt(l.req.Path) }

// HoldAt is Hold for a file at another path, such as the target of a link.
func (l *Lease) HoldAt(p Path) *Hold {
	h := l.HoldNameless()
	var byContents bool
	if h.verdict, byContents = l.Judge().openVerdict(p.Rel()); byContents {
		h.contentPath = p.Rel()
	}
	return h
}

// HoldNameless is Hold for a file that has no name.
func (l *Lease) HoldNameless() *Hold {
	h := &Hold{root: l.root, nestingGen: l.nesting.gen}
	for _, c := range l.crossed {
		if !c.sameDirectory { // every operation enters the roots at the same directory in any case
			h.crossed = append(h.crossed, c.root)
		}
	}
	return h
}

// Done ends the operation. n is how many bytes were read or written, err the error of the
// operation. Done settles the quota, wraps the error, audits, releases, and returns the error
// for the caller. A success that cannot be recorded becomes a failure.
func (l *Lease) Done(n int64, err error) error {
	defer l.release() // also when an auditor panics
	if l.req.Dry != nil {
		if wrapped := l.req.wrap(err); wrapped != nil {
			return wrapped
		}
		return nil
	}
	if l.notes != nil { // the detached part may have become an open
		if need := Rights(l.notes.openNeed.Load()); need != 0 {
			l.req.becomeOpen(need)
		}
	}
	if l.root != nil && !l.abandoned {
		l.Charges().Settle(n, err)
	}
	l.Charges().endUses(err == nil || n > 0 || l.abandoned)
	wrapped := l.req.wrap(err)
	if l.policy != nil && l.policy.Limits.Idle > 0 && l.root != nil && (wrapped == nil || !wrapped.Kind.Refusal()) {
		l.root.life.Use(time.Now()) // the end of an operation is a use, too
	}
	if wrapped == nil {
		l.Notes().notifyRepository()
	}
	if auditErr := l.recorder().write(n, wrapped); auditErr != nil && wrapped == nil {
		wrapped = &Error{Op: l.req.Op, Path: l.req.Path, Kind: names.IO,
			Err: errors.New("the audit log cannot take the record")}
	}
	if wrapped == nil {
		return nil
	}
	wrapped.Recorded = true
	return wrapped
}

func (l *Lease) release() {
	l.recorder().release()
	if l.root == nil {
		return
	}
	for _, c := range l.crossed {
		c.gen.release()
	}
	if l.detached != nil {
		l.detached.uncross()
	}
	if l.bytes > 0 {
		l.root.bytes.Release(l.bytes)
	}
	l.gen.release()
	l.crossed, l.root = nil, nil
}

// wrap makes the one *Error an operation returns.
func (r *Request) wrap(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		w := *e
		w.Op = r.Op
		if e.Path != r.Path2 || r.Path2.Root == "" {
			w.Path = r.Path // an error about the second path says so itself
		}
		return &w
	}
	w := &Error{Op: r.Op, Path: r.Path, Err: err}
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		w.Kind = names.Timeout
	case errors.Is(err, context.Canceled):
		w.Kind, w.Err = names.IO, syscall.EINTR
	case errors.As(err, &errno):
		w.Kind = names.KindOf(errno)
	default:
		w.Kind = names.IO
	}
	return w
}
