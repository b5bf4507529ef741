package guard

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Verdict is the outcome of an operation.
type Verdict uint8

// The verdicts. Refused is a decision (see Kind.Refusal), or the answer to a malformed request. Failed
// is any other error. Allowed is everything else.
const (
	Allowed Verdict = iota + 1
	Refused
	Failed
)

func (v Verdict) String() string { return rules.WordOf(v, "none", "allowed", "refused", "failed") }

// Facts has the parts of a record that programs read and that few records have. Detail has the
// same facts, and more, for people; no program reads Detail.
type Facts struct {
	Dir    string // directory or file on the host, of a root
	Origin string // who granted the root; of the orders of a fleet, the key of their owner

	Effect   string // effect of the rule that refused: hide, deny or protect
	Rule     string // the pattern of that rule
	RuleFrom string // pattern.Rule.Source of that rule
	RuleLine int    // its line, if RuleFrom is a file

	Point string // mountpoint on the host
	Level string // how the command is confined

	Host       string // name or address that was connected to, or rules of --net and secrets
	Port       uint16
	ServerName string // server name in TLS, if it is not Host
	NoRule     bool   // refused because no rule of --net permits the host
	Program    string // path of the program that connected

	Secret     string // name of the secret that a request uses
	Method     string // of that request; "": the program has refused the TLS handshake
	URLPath    string // of that request
	Status     int    // of the answer; 0: none
	SecretRule string // the rule that the owner can add to the secret, to allow the refused request

	Cause  string // of a pause and its end: a PauseCause
	Reason string // of a pause: the owner's words, or which fleet the lease is from
}

// Record is one audit record: the caller, the operation, the path and the outcome. It never
// holds contents. Host paths are only in Facts, Detail and Target, which only the owner reads.
type Record struct {
	Time     time.Time
	Subject  Subject
	Via      Via
	UID      uint32
	PID      int32
	Op       Op
	Path     Path
	Path2    Path   // the second path of rename and link
	Rights   Rights // that the operation needed; of a root's grant, change or end: of the root
	Verdict  Verdict
	Kind     Kind          // the reason, if it was not allowed
	Errno    syscall.Errno // the answer to the kernel
	Read     int64         // bytes; of OpClose, the sum since the open; of a root's end, the sum of its life
	Written  int64
	Duration time.Duration
	Facts
	Detail string // for people
	// Target is the text of a refused link. It may be a host path, so it is not logged; only
	// the owner sees it, while the session lives.
	Target string
	// Room is the room that Reserver.Reserve has promised for the record; 0: none.
	Room int64
}

// Auditor takes records. An error means that the record was not taken, and the operation fails.
// Record is called concurrently. Of the locks of this package, only those that the package comment
// lists may be held during the call.
type Auditor interface {
	Record(Record) error
}

// Reserver is an Auditor that can promise room for the record of an operation before the
// operation begins. So no operation takes place whose record is then refused.
type Reserver interface {
	Auditor
	// Pace returns how long the operation has to wait before it begins, so that its subject
	// causes no more records than its share. If Pace returns more than limit, the operation
	// must not begin.
	Pace(r *Record, limit time.Duration) time.Duration
	// Reserve promises room for the record of an operation. r has the fields known so far.
	// Reserve waits at the longest until ctx ends or stop is closed; stop may be nil. The room is
	// used up by Record, with the record whose Room it is, or given back by Release.
	Reserve(ctx context.Context, stop <-chan struct{}, r *Record) (room int64, err error)
	Release(room int64)
}

// isRecorded has the operations that leave a record when they succeed. Look-ups and
// attributes (lookup, getattr, statfs, getxattr) do not: the kernel answers most of them
// from its caches, so records would show only cache misses. Reads and writes are summed up
// in the record of the close. Room for that record is promised when a file is opened for
// writing, so writes to open files go on while the audit disk is full.
var isRecorded = [names.Ops]bool{
	names.OpOpendir: true, names.OpOpen: true, names.OpCreate: true, names.OpTmpfile: true,
	names.OpMkdir: true, names.OpMknod: true, names.OpSymlink: true, names.OpLink: true,
	names.OpUnlink: true, names.OpRmdir: true, names.OpRename: true, names.OpSetattr: true,
	names.OpTruncate: true, names.OpSetxattr: true, names.OpRemovexattr: true,
	names.OpRestore: true, names.OpEmpty: true, names.OpApply: true, names.OpDiscard: true, names.OpUndo: true,
	names.OpCopyFileRange: true, names.OpReplace: true, names.OpWatch: true, names.OpClose: true,
}

// isOrdinary reports whether an error is an ordinary answer, and not a failure. Examples are a
// name that does not exist, an attribute that is not set, a lock that another program holds, and
// the end of a sparse file.
func isOrdinary(op Op, e *Error) bool {
	switch op {
	case names.OpLookup, names.OpGetattr:
		return e.Kind == names.NotExist || e.Kind == names.Conflict
	case names.OpGetxattr, names.OpListxattr:
		switch e.Errno() {
		case syscall.ENODATA, syscall.ERANGE, syscall.EOPNOTSUPP:
			return true
		}
	case names.OpGetlk, names.OpSetlk:
		return e.Kind == names.Locked || e.Errno() == syscall.EINTR
	case names.OpLseek:
		return e.Errno() == syscall.ENXIO
	}
	return false
}

// RequestedPath returns the detail of a record that is about the path resolved, because the links
// of the path requested led there. It is "" if the two are the same.
func RequestedPath(requested, resolved Path) string {
	if requested == resolved {
		return ""
	}
	return "asked for " + names.Escape(requested.String())
}

// recorder reserves room for the record of an operation, and writes the record.
type recorder struct{ l *Lease }

func (l *Lease) recorder() recorder { return recorder{l} }

// record returns the operation's record as far as it is known before the end of the operation.
func (w recorder) record() Record {
	req := &w.l.req
	rec := recordOf(&req.Caller, w.l.start)
	rec.Op, rec.Path, rec.Path2 = req.Op, req.Path, req.Path2
	return rec
}

// recordOf returns a record with the caller, but without an operation.
func recordOf(c *Caller, at time.Time) Record {
	return Record{Time: at, Subject: c.Subject, Via: c.Via, UID: c.UID, PID: c.PID, Verdict: Allowed}
}

// expected returns the auditor and the operation's record, with the fields known so far. It
// returns nil if the operation leaves no record when it succeeds, or the auditor cannot promise
// room.
func (w recorder) expected() (Reserver, *Record) {
	// An append to a path, not to an open file, has a record of its own: vfs.Tree.WriteRange
	// writes it by Closed.
	appendsToPath := w.l.req.Op == names.OpWrite && w.l.req.Held == nil
	if w.l.req.Quiet || w.l.req.Dry != nil || !isRecorded[w.l.req.Op] && !appendsToPath {
		return nil, nil
	}
	r, _ := w.l.reg.cfg.Auditor.(Reserver)
	if r == nil {
		return nil, nil
	}
	rec := w.record()
	return r, &rec
}

var errNoRoom = errors.New("the audit log cannot take the record, so the operation was not begun; make room on the disk of the audit files")

// reserve makes r promise room for the record of the operation: an operation that
// cannot be recorded does not begin. r is nil if no promise is needed.
func (w recorder) reserve(ctx context.Context, r Reserver, rec *Record) error {
	if r == nil {
		return nil
	}
	room, err := r.Reserve(ctx, w.l.root.dead, rec)
	if err == nil {
		w.l.req.room.SetRecord(room)
		if !w.l.req.OpensForWriting {
			return nil
		}
		rec.Op = names.OpClose
		room, err = r.Reserve(ctx, w.l.root.dead, rec)
	}
	switch {
	case err == nil:
		w.l.req.room.SetClosing(room)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if State(w.l.root.state.Load()) != Live {
		return w.l.root.endedError()
	}
	return &Error{Kind: names.IO, Err: errNoRoom}
}

// release gives back room that no record took.
func (w recorder) release() {
	w.l.reg.GiveBack(w.l.req.room.Take() + w.l.TakeClosing())
}

// TakeClosing hands over the room that was promised for the record of the opened file's
// close (Request.OpensForWriting). The caller passes it to Closed, or to GiveBack.
func (l *Lease) TakeClosing() int64 { return l.req.room.TakeClosing() }

// GiveBack ends the promise of room for a record that is not to be written.
func (g *Registry) GiveBack(room int64) {
	if room != 0 {
		g.cfg.Auditor.(Reserver).Release(room)
	}
}

// write writes the record of the operation, if it has to leave one.
func (w recorder) write(n int64, e *Error) error {
	req := &w.l.req
	if e == nil && (req.Quiet || !isRecorded[req.Op]) || e != nil && isOrdinary(req.Op, e) {
		return nil
	}
	rec := w.record()
	rec.Duration = time.Since(w.l.start)
	if w.l.Notes().madeRepo() {
		rec.Detail = untrusted
	}
	if all, ok := rules.RequiredRights(req.Op); ok {
		rec.Rights = all | req.Need
	}
	if isWrite(req.Op) {
		rec.Written = n
	} else {
		rec.Read = n
	}
	if e != nil {
		rec.Verdict, rec.Kind, rec.Errno = Failed, e.Kind, e.Errno()
		if e.Kind.Refusal() {
			rec.Verdict = Refused
			if w.l.root != nil {
				w.l.root.refused.Add(1)
			}
		}
		rec.Detail = e.Text()
		var by interface{ Why() string } // a reason that only the owner may read
		if errors.As(e, &by) {
			rec.Detail = by.Why()
		}
		var rule *rules.Refusal
		if errors.As(e, &rule) {
			rec.Facts = factsOf(rule)
		}
	}
	w.l.notes.addTo(&rec)
	rec.Room = req.room.Take()
	return w.l.reg.record(rec)
}

// factsOf returns the facts of a record about a rule that refused.
func factsOf(r *rules.Refusal) Facts {
	return Facts{Effect: r.Effect.String(), Rule: r.Rule.Text, RuleFrom: r.Rule.Source(), RuleLine: r.Rule.Line}
}

// Closed records that an open file was closed, with the bytes that were read and written.
// detail can be "". If the record cannot be written, the close is not refused, because the kernel
// does not wait for it. So room for the record was promised when the file was opened for writing
// (Lease.TakeClosing). An event reports the first of several closes that could not be recorded.
func (g *Registry) Closed(h *Hold, c Caller, p Path, read, written int64, detail string, room int64) {
	rec := recordOf(&c, time.Now())
	rec.Op, rec.Path, rec.Read, rec.Written = names.OpClose, p, read, written
	rec.Detail, rec.Room = detail, room
	switch err := g.record(rec); {
	case err == nil:
		if g.closeLost.Load() {
			g.closeLost.Store(false)
		}
	case !g.closeLost.Swap(true):
		g.notify(Event{Kind: EventUnrecorded, Root: p.Root, Detail: "the bytes read through " + names.Escape(p.String()) + " are not on record: " + err.Error()})
	}
	g.countClose(h)
}

// record passes a record to the auditor. It shortens the detail, which may repeat what a peer sent.
func (g *Registry) record(rec Record) error {
	rec.Detail = names.Brief(rec.Detail)
	if rec.Verdict != Allowed {
		// Send the event even if the log cannot take the record. Use a copy, so that records of
		// allowed operations stay out of the heap.
		refused := rec
		g.notify(Event{Kind: EventRefusal, Root: rec.Path.Root, Record: &refused})
	}
	if rec.Verdict == Refused {
		g.countRefusal(&rec)
	}
	if g.cfg.Auditor == nil {
		return nil
	}
	return g.cfg.Auditor.Record(rec)
}

// ownerRecord returns the record of an action of the owner on a root, or of the root's end.
func ownerRecord(r *root, op Op) Record {
	return Record{
		Time: time.Now(), Subject: r.grant.Subject, Via: ViaControl, Op: op, Path: Path{Root: r.name}, Verdict: Allowed,
		Facts: Facts{Dir: r.grant.Resolved, Origin: r.grant.Origin},
	}
}

// recordOwner records an action of the owner on a root.
func (g *Registry) recordOwner(r *root, op Op, rights Rights, detail string) error {
	rec := ownerRecord(r, op)
	rec.Rights, rec.Detail = rights, detail
	return g.record(rec)
}

// recordSubject records an event of a subject.
func (g *Registry) recordSubject(s Subject, op Op, detail string) error {
	return g.record(Record{Time: time.Now(), Subject: s, Via: ViaControl, Op: op, Verdict: Allowed, Detail: detail})
}

// Note records an event of the session itself (a reload, a panic).
func (g *Registry) Note(op Op, root RootName, verdict Verdict, detail string) error {
	return g.record(Record{Time: time.Now(), Via: ViaControl, Op: op, Path: Path{Root: root}, Verdict: verdict, Detail: detail})
}

// NoteFacts is Note for an event without a root whose facts programs read later (a mount, a
// host that the command may connect to).
func (g *Registry) NoteFacts(op Op, verdict Verdict, f Facts, detail string) error {
	return g.record(Record{Time: time.Now(), Via: ViaControl, Op: op, Verdict: verdict, Facts: f, Detail: detail})
}

// ReserveConnection promises room for a later record of NoteConnection: a connection that
// cannot be recorded must not begin. r has the fields known so far. ReserveConnection waits at
// the longest until ctx ends. The caller passes the room to NoteConnection (Record.Room), or to
// GiveBack.
func (g *Registry) ReserveConnection(ctx context.Context, r Record) (room int64, err error) {
	auditor, ok := g.cfg.Auditor.(Reserver)
	if !ok {
		return 0, nil
	}
	r.Via = ViaNet
	if room, err = auditor.Reserve(ctx, nil, &r); err != nil && ctx.Err() == nil {
		err = errNoRoom // the auditor's own error names files of the owner
	}
	return room, err
}

// NoteConnection records a network connection of the session's command, its end, its refusal, or
// a request. It fills in Via.
func (g *Registry) NoteConnection(r Record) error {
	r.Via = ViaNet
	return g.record(r)
}

// NoteRefusal records a request that was refused before it reached the gate (malformed, or one
// too many), or that failed without the gate. detail is the front end's own text.
func (g *Registry) NoteRefusal(c Caller, kind Kind, detail string) error {
	rec := recordOf(&c, time.Now())
	rec.Verdict, rec.Kind, rec.Errno, rec.Detail = Failed, kind, (&Error{Kind: kind}).Errno(), detail
	if kind.Refusal() || kind.About() == names.AboutRequest {
		rec.Verdict = Refused // a malformed request is not tried at all
	}
	return g.record(rec)
}

// NoteConsent records a person's decision about a request for consent.
func (g *Registry) NoteConsent(c Caller, verdict Verdict, f Facts, detail string) error {
	rec := recordOf(&c, time.Now())
	rec.Op, rec.Verdict, rec.Facts, rec.Detail = names.OpGrant, verdict, f, detail
	return g.record(rec)
}
