package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// shipper sends the machine's audit records to one keeper. It sends each record at least once, except in
// these cases:
//
//   - The machine's log deletes the record first.
//   - The record, or the name of its file or session, is malformed.
//   - The keeper refuses the record's file, or a record in the file is too long.
//
// The audit files are the shipper's queue: the shipper reads no further while the keeper does not
// answer. Each keeper has a shipper of its own, so that no keeper waits for another.
type shipper struct {
	m      *Member
	log    *slog.Logger
	files  string // the directory of the audit files
	keeper string // the keeper's signing key
	sent   *ledger
	ask    func(context.Context, recordBatch) (recordsAnswer, error)
	// shares reports whether the machine's user lets the fleet have the records.
	shares func() bool
	limit  *rate.Limiter
	every  time.Duration // how long a record waits for further records
	wait   time.Duration // before the next attempt, after the keeper did not take records

	sessions    map[string]*shipment
	isStale     bool   // the keeper's checkpoints differ from the ledger: locate asks the keeper
	size        int    // bytes of the lines of all sessions
	lastProblem string // the last problem that was logged

	problem atomic.Value // string: lastProblem, for other goroutines
}

// shipment is the sending of one session's records to the keeper.
type shipment struct {
	name string
	at   *checkpoint // the newest that the keeper has; nil: it has none

	// The records that are collected.
	file    string // the audit file of the records; "": no record is sent until the next file begins
	follows uint64 // see checkpoint.Follows
	last    chain
	lines   []byte
}

// The bounds of sending.
const (
	shipRate  = 512 << 10 // bytes of records in a second
	shipEvery = time.Second
	shipRetry = 5 * time.Second
)

// shippers are the shippers of one machine, one for each keeper.
type shippers []*shipper

// newShippers reads how far the machine has sent its records. It makes a shipper for each keeper.
func newShippers(m *Member, buses []*Bus, state, files string, shares func() bool, log *slog.Logger) (list shippers, err error) {
	sent, err := openLedger(m, state, files, log)
	if err != nil {
		return nil, err
	}
	for _, keeper := range m.Charter.Keepers {
		s := &shipper{
			m: m, log: log, files: files, keeper: keeper, sent: sent, shares: shares, every: shipEvery, wait: shipRetry,
			limit: rate.NewLimiter(shipRate, 2*maxRecordBatch), sessions: map[string]*shipment{},
		}
		if len(m.Charter.Keepers) > 1 {
			s.log = log.With("keeper", keyName(keeper))
		}
		s.ask = func(ctx context.Context, q recordBatch) (recordsAnswer, error) {
			return askOneKeeper[recordBatch, recordsAnswer](ctx, m.key, m.Charter, buses, keeper, Names{m.ID}.records(m.Machine, keeper), kindRecords, q)
		}
		list = append(list, s)
	}
	return list, nil
}

// status returns how far keepers have confirmed the newest sessions, and why no keeper gets records;
// "": one does.
func (all shippers) status() (sent []SentSession, problem names.Foreign) {
	for _, s := range all {
		text, _ := s.problem.Load().(string)
		if problem = names.Foreign(text); text == "" {
			break
		}
	}
	return *all[0].sent.status.Load(), problem
}

// start sends records until ctx ends, or stop is called.
func (all shippers) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	for _, s := range all {
		sending.Go(func() { s.run(ctx) })
	}
	return func() {
		cancel()
		sending.Wait()
	}
}

// run sends records until ctx ends.
func (s *shipper) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !s.shares() {
			s.setProblem(errNotShared.Error())
			sleep(ctx, s.wait)
			continue
		}
		if s.lastProblem == errNotShared.Error() {
			s.setProblem("")
		}
		err := s.follow(ctx)
		if errors.Is(err, errMoved) { // the keeper may have lost records of all sessions
			s.isStale = true
			clear(s.sessions)
		} else if err != nil && ctx.Err() == nil {
			s.setProblem(err.Error())
		}
		sleep(ctx, s.every)
	}
}

// sleep waits until the time is over or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// setProblem notes why records wait, and logs a problem that differs from the last one; "": the records
// do not wait.
func (s *shipper) setProblem(problem string) {
	if problem != s.lastProblem && problem != "" {
		s.log.Warn("audit records wait on this machine", "error", problem)
	}
	s.lastProblem = problem
	s.problem.Store(problem)
}

// errMoved says that the keeper has less or more than the machine thought.
var errMoved = errors.New("the keeper is elsewhere in the records")

// locate finds out how far the keeper has each session of the ledger. It asks the keeper about
// a session if the ledger lacks the keeper's checkpoint of the session, or if isStale is set.
func (s *shipper) locate(ctx context.Context) error {
	for _, name := range s.sent.confirmedSessions() {
		if s.sessions[name] != nil {
			continue
		}
		at := s.sent.confirmedBy(s.keeper, name)
		if at == nil || s.isStale {
			a, err := s.ask(ctx, recordBatch{Session: name})
			if err == nil && a.Wait != "" {
				err = errors.New(names.EscapeQuoted(a.Wait))
			}
			if err != nil {
				return err
			}
			if at, err = s.confirm(name, a); err != nil {
				return err
			}
		}
		s.sessions[name] = &shipment{name: name, at: at}
	}
	s.isStale = false
	s.setProblem("")
	return nil
}

// errNotShared says that the machine's user keeps the records on the machine.
var errNotShared = errors.New("fleet.share_records is false in the configuration, or that cannot be read")

// follow sends the records that the keeper lacks, and then each record that is written, until ctx ends
// or an error occurs.
func (s *shipper) follow(ctx context.Context) error {
	if err := s.locate(ctx); err != nil {
		return err
	}
	after := map[string]uint64{}
	s.size = 0
	for name, x := range s.sessions {
		x.restart()
		after[name] = x.last.seq
	}
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	records := make(chan audit.Entry)
	var readErr error
	reading.Go(func() {
		defer close(records)
		readErr = audit.Follow(ctx, s.files, "", audit.Filter{After: after}, nil, func(r audit.Entry) error {
			r.Line = slices.Clone(r.Line)
			select {
			case records <- r:
			case <-ctx.Done():
			}
			return nil
		})
	})
	tick := time.NewTimer(s.every)
	defer tick.Stop()
	for {
		var err error
		select {
		case r, ok := <-records:
			if !ok {
				return readErr
			}
			err = s.collect(ctx, &r)
		case <-tick.C:
			begun := time.Now()
			err = s.flush(ctx)
			// A keeper that is slow has much to do: it gets fewer and larger batches.
			tick.Reset(max(s.every, 4*time.Since(begun)))
		}
		if err != nil {
			return err
		}
	}
}

// restart drops the collected records. Collecting begins again after the last record that the keeper has.
func (x *shipment) restart() {
	x.lines, x.last, x.file, x.follows = nil, chain{}, "", 0
	if x.at != nil {
		x.last, x.file, x.follows = chain{x.at.Seq, x.at.Hash}, x.at.File, x.at.Follows
	}
}

// collect adds a record to its session. It sends the collected records when they fill a batch.
func (s *shipper) collect(ctx context.Context, r *audit.Entry) error {
	session := r.Session.Raw()
	if _, err := audit.ParseLine(r.Line); err != nil || !audit.WellNamed(session, maxSessionName) {
		return nil // an owner sees that the record is missing in its file
	}
	x := s.sessions[session]
	if x == nil {
		x = &shipment{name: session}
		s.sessions[session] = x
	}
	if r.Seq <= x.last.seq {
		return nil
	}
	if r.Op == "session" {
		if err := s.send(ctx, x); err != nil {
			return err
		}
		s.begin(x, r)
	}
	if len(r.Line) > maxRecordLine && x.file != "" {
		if err := s.send(ctx, x); err != nil {
			return err
		}
		s.log.Warn("an audit file is not sent: a record in it is too long", "session", session, "file", x.file)
		x.file = ""
	}
	if x.file == "" {
		s.sent.pass(session, r.Seq)
		return nil
	}
	x.lines = append(append(x.lines, r.Line...), '\n')
	x.last = chain{r.Seq, r.Hash}
	if s.size += len(r.Line) + 1; s.size >= batchBytes {
		return s.flush(ctx)
	}
	return nil
}

// begin notes that header begins a new audit file, whose records are collected from now on. If the
// name of the file does not belong to the session, none of its records are collected.
func (s *shipper) begin(x *shipment, header *audit.Entry) {
	x.file = ""
	if sessionOfFile(header.File) == x.name {
		x.file, x.follows = header.File, s.sent.lastBefore(x.name, x.last.seq, header.Seq)
	}
}

// flush sends the collected records of all sessions.
func (s *shipper) flush(ctx context.Context) error {
	for _, x := range s.sessions {
		if err := s.send(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// send sends the collected records of a session until the keeper has confirmed or refused them.
func (s *shipper) send(ctx context.Context, x *shipment) error {
	if len(x.lines) == 0 {
		return nil
	}
	c := &checkpoint{
		Machine: s.m.Machine, Session: x.name, File: x.file, Seq: x.last.seq, Hash: x.last.hash,
		Follows: x.follows, At: time.Now().UTC().Truncate(time.Millisecond),
	}
	var err error
	if c.signed, err = seal(s.m.key, s.m.ID, kindCheckpoint, c); err != nil {
		return err
	}
	q := recordBatch{Session: x.name, Lines: x.lines, Checkpoint: c.signed}
	if x.at != nil {
		q.After = x.at.Seq
	}
	for {
		if !s.shares() {
			return errNotShared
		}
		if err := s.limit.WaitN(ctx, len(x.lines)); err != nil {
			return err
		}
		a, err := s.ask(ctx, q)
		var refusal *control.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refusal):
			s.log.Warn("the keeper refuses an audit file", "session", x.name, "file", x.file, "error", err)
			s.size -= len(x.lines)
			x.restart()
			x.file = ""
			s.sent.pass(x.name, c.Seq)
			return s.sent.save(x.name)
		case err == nil && a.Wait == "":
			return s.settle(x, c, a)
		case err == nil:
			err = fmt.Errorf("%s", names.EscapeQuoted(a.Wait))
		}
		s.setProblem(err.Error())
		sleep(ctx, s.wait)
	}
}

// confirm notes and returns the checkpoint of a session in the keeper's answer. Only a checkpoint that
// this machine has signed counts.
func (s *shipper) confirm(session string, a recordsAnswer) (head *checkpoint, err error) {
	if a.Checkpoint != nil {
		if head, err = s.sent.open(session, a.Checkpoint); err != nil {
			return nil, fmt.Errorf("the keeper's answer about session %s is not by a checkpoint of this machine: %w", session, err)
		}
	}
	return head, s.sent.confirm(s.keeper, session, head)
}

// settle ends the sending of the records up to the checkpoint c. It drops the collected records if the
// keeper's answer confirms c. It returns errMoved if the keeper has another checkpoint.
func (s *shipper) settle(x *shipment, c *checkpoint, a recordsAnswer) (err error) {
	if x.at, err = s.confirm(x.name, a); err != nil {
		return err
	}
	if x.at == nil || x.at.File != c.File || x.at.Seq != c.Seq || x.at.Hash != c.Hash {
		return errMoved
	}
	s.setProblem("")
	s.size -= len(x.lines)
	x.lines = nil
	return nil
}
