package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// shipper sends the machine's audit records to the keeper, each at least once. The audit files are
// its queue: it reads no further while the keeper does not answer. What was confirmed is on its
// disk, so that it can sign which records it never had to send: those that the log had deleted.
type shipper struct {
	m     *Member
	log   *slog.Logger
	files string // the directory of the audit files
	dir   string // its own
	ask   func(context.Context, recordBatch) (recordsAnswer, error)
	// shares reports whether the machine's user lets the fleet have the records.
	shares func() bool
	limit  *rate.Limiter
	every  time.Duration // how long a record waits for others
	wait   time.Duration // after the keeper did not answer

	sessions map[string]*sending
	size     int    // of the lines of all sessions
	told     string // the last problem that was logged

	shown atomic.Pointer[[]SentSession]
	waits atomic.Value // string: told
}

// sending is how far a session is sent. The exported fields are on disk.
type sending struct {
	Checkpoint []byte `json:"checkpoint"` // the newest that the keeper has confirmed
	Skipped    []span `json:"skipped,omitempty"`
	// Passed is the last record that was there and is not sent any more, because the keeper has refused it.
	// The machine does not sign that its log had deleted such a record.
	Passed uint64 `json:"passed,omitempty"`

	name      string
	confirmed *checkpoint // of Checkpoint; nil: nothing is
	at        *checkpoint // what the keeper has: older, if it was restored from a copy

	// The records that are collected.
	file    string // the audit file that they are in; "": unknown, they are passed over
	follows uint64
	last    chain
	lines   []byte
}

// span is a range of records.
type span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// The bounds of sending.
const (
	shipRate   = 512 << 10 // bytes of records in a second
	shipEvery  = time.Second
	shipRetry  = 5 * time.Second
	maxSkipped = 256
	maxSent    = 64 // sessions in the machine's status
)

// newShipper reads how far the machine has sent its records.
func newShipper(m *Member, buses []*Bus, state, files string, shares func() bool, log *slog.Logger) (*shipper, error) {
	s := &shipper{
		m: m, log: log, files: files, shares: shares, dir: filepath.Join(state, "sent", recordDirName(m.Machine, m.key.Public())), every: shipEvery, wait: shipRetry,
		limit: rate.NewLimiter(shipRate, 2*maxRecordBatch), sessions: map[string]*sending{},
	}
	s.ask = func(ctx context.Context, q recordBatch) (recordsAnswer, error) {
		return askRecordKeeper[recordBatch, recordsAnswer](ctx, m.key, m.Charter, buses, Names{m.ID}.Records(m.Machine), kindRecords, q)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if err := s.load(e.Name()); err != nil {
			return nil, err
		}
	}
	s.show()
	return s, nil
}

// status returns how far the keeper has confirmed the newest sessions, and why records wait.
func (s *shipper) status() ([]SentSession, names.Foreign) {
	problem, _ := s.waits.Load().(string)
	return *s.shown.Load(), names.Foreign(problem)
}

// show makes the machine's status say what is confirmed.
func (s *shipper) show() {
	all := slices.DeleteFunc(slices.Collect(maps.Values(s.sessions)), func(x *sending) bool { return x.confirmed == nil })
	slices.SortFunc(all, func(a, b *sending) int { return b.confirmed.At.Compare(a.confirmed.At) })
	list := []SentSession{}
	for _, x := range all[:min(len(all), maxSent)] {
		list = append(list, SentSession{names.Foreign(x.name), x.confirmed.Seq})
	}
	s.shown.Store(&list)
}

// load reads how far a session is sent, and forgets a session that has no files any more.
func (s *shipper) load(session string) error {
	if !audit.WellNamed(session, maxSessionName) {
		return nil
	}
	if files, err := audit.Files(s.files, session); err == nil && len(files) == 0 {
		return os.Remove(filepath.Join(s.dir, session))
	}
	x := &sending{name: session}
	err := readJSON(filepath.Join(s.dir, session), x)
	if err == nil && (x.Checkpoint != nil || x.Passed == 0) {
		x.confirmed, err = openCheckpoint(x.Checkpoint, Names{s.m.ID}, s.m.Machine, s.m.key.Public())
	}
	if err != nil {
		s.log.Warn("how far a session's records are sent is unknown: the keeper is asked", "session", session, "error", err)
		return nil
	}
	x.at = x.confirmed
	s.sessions[session] = x
	return nil
}

// save makes durable how far a session is sent.
func (s *shipper) save(x *sending) error { return writeJSON(filepath.Join(s.dir, x.name), x) }

// start sends records until ctx ends, or stop is called.
func (s *shipper) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	sending.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		sending.Wait()
	}
}

// run sends records until ctx ends.
func (s *shipper) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !s.shares() {
			s.tell(errNotShared.Error())
			sleep(ctx, s.wait)
			continue
		}
		if s.told == errNotShared.Error() {
			s.tell("")
		}
		err := s.follow(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errMoved) {
			s.tell(err.Error())
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

// tell logs a problem once.
func (s *shipper) tell(problem string) {
	if problem != s.told && problem != "" {
		s.log.Warn("audit records wait on this machine", "error", problem)
	}
	s.told = problem
	s.waits.Store(problem)
}

// errMoved says that the keeper has less or more than the machine thought.
var errMoved = errors.New("the keeper is elsewhere in the records")

// errNotShared says that the machine's user keeps the records on the machine.
var errNotShared = errors.New("fleet.share_records is false in the configuration, or that cannot be read")

// follow sends the records that the keeper lacks, and goes on with those that are written, until ctx
// ends or the keeper is elsewhere.
func (s *shipper) follow(ctx context.Context) error {
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

// restart begins after the last record that the keeper has.
func (x *sending) restart() {
	x.lines, x.last, x.file, x.follows = nil, chain{}, "", 0
	if x.at != nil {
		x.last, x.file, x.follows = chain{x.at.Seq, x.at.Hash}, x.at.File, x.at.Follows
	}
}

// collect adds a record.
func (s *shipper) collect(ctx context.Context, r *audit.Entry) error {
	session := r.Session.Raw()
	if _, err := audit.ParseLine(r.Line); err != nil || !audit.WellNamed(session, maxSessionName) {
		return nil // what is no record is missing in its file: an owner sees that
	}
	x := s.sessions[session]
	if x == nil {
		x = &sending{name: session}
		s.sessions[session] = x
	}
	if r.Seq <= x.last.seq {
		return nil
	}
	if r.Op == "session" {
		if err := s.send(ctx, x); err != nil {
			return err
		}
		x.begin(r)
	}
	if len(r.Line) > maxRecordLine && x.file != "" {
		if err := s.send(ctx, x); err != nil {
			return err
		}
		s.log.Warn("an audit file is not sent: a record in it is too long", "session", session, "file", x.file)
		x.file = ""
	}
	if x.file == "" {
		x.Passed = max(x.Passed, r.Seq)
		return nil
	}
	x.lines = append(append(x.lines, r.Line...), '\n')
	x.last = chain{r.Seq, r.Hash}
	if s.size += len(r.Line) + 1; s.size >= batchBytes {
		return s.flush(ctx)
	}
	return nil
}

// begin begins an audit file with its header. The records between it and the last that the keeper
// has ever confirmed were never sent: there are none, or the log has deleted them.
func (x *sending) begin(header *audit.Entry) {
	x.file = ""
	if sessionOfFile(header.File) != x.name {
		return
	}
	next := max(x.last.seq, x.Passed) + 1
	if x.confirmed != nil {
		next = max(next, x.confirmed.Seq+1)
	}
	if gap := (span{next, header.Seq - 1}); header.Seq > next && !slices.Contains(x.Skipped, gap) {
		x.Skipped = append(x.Skipped, gap)
		x.Skipped = x.Skipped[max(0, len(x.Skipped)-maxSkipped):]
	}
	x.file, x.follows = header.File, header.Seq-1
	for _, gap := range x.Skipped {
		if gap.To == header.Seq-1 {
			x.follows = gap.From - 1
		}
	}
}

// flush sends what is collected.
func (s *shipper) flush(ctx context.Context) error {
	for _, x := range s.sessions {
		if err := s.send(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// send sends the collected records of a session until the keeper has confirmed or refused them.
func (s *shipper) send(ctx context.Context, x *sending) error {
	if len(x.lines) == 0 {
		return nil
	}
	c := &checkpoint{
		Machine: s.m.Machine, Session: x.name, File: x.file, Seq: x.last.seq, Hash: x.last.hash,
		Follows: x.follows, At: time.Now().UTC().Truncate(time.Millisecond),
	}
	var err error
	if c.signed, err = Seal(s.m.key, s.m.ID, kindCheckpoint, c); err != nil {
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
			x.file, x.Passed = "", max(x.Passed, c.Seq)
			return s.save(x)
		case err == nil && a.Wait == "":
			return s.confirm(x, c, a)
		case err == nil:
			err = fmt.Errorf("%s", names.EscapeQuoted(a.Wait))
		}
		s.tell(err.Error())
		sleep(ctx, s.wait)
	}
}

// confirm notes what the keeper has. Only a checkpoint that this machine has signed counts.
func (s *shipper) confirm(x *sending, c *checkpoint, a recordsAnswer) error {
	var head *checkpoint
	if a.Checkpoint != nil {
		var err error
		if head, err = openCheckpoint(a.Checkpoint, Names{s.m.ID}, s.m.Machine, s.m.key.Public()); err != nil || head.Session != x.name {
			return fmt.Errorf("the keeper's answer about session %s is not by a checkpoint of this machine: %w", x.name, errors.Join(err, errMoved))
		}
	}
	x.at = head
	if head != nil && (x.confirmed == nil || head.Seq > x.confirmed.Seq) {
		x.confirmed, x.Checkpoint = head, head.signed
		if err := s.save(x); err != nil {
			return err
		}
		s.show()
	}
	if head == nil || head.File != c.File || head.Seq != c.Seq || head.Hash != c.Hash {
		return errMoved
	}
	s.tell("")
	s.size -= len(x.lines)
	x.lines = nil
	return nil
}
