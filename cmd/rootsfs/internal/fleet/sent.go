package fleet

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ledger says how far the machine has sent its audit records, to each keeper and to any keeper. It is on
// disk, so that the machine can sign which records it could not send because its log had deleted them
// before.
type ledger struct {
	m     *Member
	log   *slog.Logger
	dir   string
	files string // the directory of the audit files

	status   atomic.Pointer[[]SentSession] // for the machine's status
	mu       sync.Mutex                    // guards sessions
	sessions map[string]*sentSession
}

// sentSession says how far the records of one session are sent. The exported fields are on disk.
type sentSession struct {
	Checkpoint []byte `json:"checkpoint"` // the newest that a keeper has confirmed
	Skipped    []span `json:"skipped,omitempty"`
	// Passed is the number of the last record that the log had and the machine did not send: a keeper
	// has refused the record's file, or the file cannot be sent. The machine does not sign that its log
	// had deleted such a record.
	Passed uint64 `json:"passed,omitempty"`
	// Keepers has the newest checkpoint that each keeper has confirmed, by keyID.
	Keepers map[string][]byte `json:"keepers,omitempty"`

	confirmed *checkpoint // Checkpoint, opened; nil: no keeper has confirmed a record
}

// span is a range of records.
type span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// The bounds of a ledger.
const (
	maxSkipped = 256
	maxSent    = 64 // sessions in the machine's status
)

// openLedger reads the ledger of a machine.
func openLedger(m *Member, state, files string, log *slog.Logger) (*ledger, error) {
	l := &ledger{m: m, log: log, dir: filepath.Join(state, "sent", recordDirName(m.Machine, m.key.Public())), files: files, sessions: map[string]*sentSession{}}
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if err := l.load(e.Name()); err != nil {
			return nil, err
		}
	}
	l.show()
	return l, nil
}

// load reads the entry of a session. It removes the entry if the session has no audit files any more.
func (l *ledger) load(session string) error {
	if !audit.WellNamed(session, maxSessionName) {
		return nil
	}
	if files, err := audit.Files(l.files, session); err == nil && len(files) == 0 {
		return os.Remove(filepath.Join(l.dir, session))
	}
	x := &sentSession{}
	err := readJSON(filepath.Join(l.dir, session), x)
	if err == nil && (x.Checkpoint != nil || x.Passed == 0) {
		x.confirmed, err = l.open(session, x.Checkpoint)
	}
	if err != nil {
		l.log.Warn("how far a session's records are sent is unknown: the keepers are asked", "session", session, "error", err)
		return nil
	}
	for id := range x.Keepers {
		if !slices.ContainsFunc(l.m.Charter.Keepers, func(key string) bool { return keyID(key) == id }) {
			delete(x.Keepers, id)
		}
	}
	l.sessions[session] = x
	return nil
}

// open opens a checkpoint that this machine has signed.
func (l *ledger) open(session string, data []byte) (*checkpoint, error) {
	c, err := openCheckpoint(data, Names{l.m.ID}, l.m.Machine, l.m.key.Public())
	if err == nil && c.Session != session {
		err = errors.New("it is about another session")
	}
	return c, err
}

// confirmedSessions returns the sessions of which a keeper has confirmed records.
func (l *ledger) confirmedSessions() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, x := range l.sessions {
		if x.confirmed != nil {
			list = append(list, name)
		}
	}
	return list
}

// confirmedBy returns the newest checkpoint of a session that a keeper has confirmed; nil: it is unknown.
func (l *ledger) confirmedBy(keeper, session string) *checkpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x := l.sessions[session]; x != nil && x.Keepers[keyID(keeper)] != nil {
		c, _ := l.open(session, x.Keepers[keyID(keeper)]) // after an error the keeper is asked
		return c
	}
	return nil
}

// session returns the entry of a session. The caller holds mu.
func (l *ledger) session(name string) *sentSession {
	x := l.sessions[name]
	if x == nil {
		x = &sentSession{}
		l.sessions[name] = x
	}
	return x
}

// lastBefore returns checkpoint.Follows for the audit file that begins with the record number first.
// last is the number of the last record that was collected before. The result is first-1, unless the log
// has deleted records directly before first that the machine had not sent. The deleted records are those
// after the newest record that was collected, confirmed by a keeper or passed (see pass). lastBefore
// notes them as skipped, and returns the number of the record before them.
func (l *ledger) lastBefore(session string, last, first uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.session(session)
	next := max(last, x.Passed) + 1
	if x.confirmed != nil {
		next = max(next, x.confirmed.Seq+1)
	}
	if gap := (span{next, first - 1}); first > next && !slices.Contains(x.Skipped, gap) {
		x.Skipped = append(x.Skipped, gap)
		x.Skipped = x.Skipped[max(0, len(x.Skipped)-maxSkipped):]
	}
	follows := first - 1
	for _, gap := range x.Skipped {
		if gap.To == first-1 {
			follows = gap.From - 1
		}
	}
	return follows
}

// pass notes that a record is in the log and will not be sent. save writes this note to the disk.
func (l *ledger) pass(session string, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.session(session)
	x.Passed = max(x.Passed, seq)
}

func (l *ledger) save(session string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return writeJSON(filepath.Join(l.dir, session), l.session(session))
}

// confirm notes the newest checkpoint of a session that a keeper has; nil: the keeper has none.
func (l *ledger) confirm(keeper, session string, head *checkpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	x, id := l.session(session), keyID(keeper)
	if head == nil {
		delete(x.Keepers, id)
		return nil
	}
	isNew := x.confirmed == nil || head.Seq > x.confirmed.Seq
	if !isNew && bytes.Equal(x.Keepers[id], head.signed) {
		return nil
	}
	if isNew {
		x.confirmed, x.Checkpoint = head, head.signed
	}
	if x.Keepers == nil {
		x.Keepers = map[string][]byte{}
	}
	x.Keepers[id] = head.signed
	if err := writeJSON(filepath.Join(l.dir, session), x); err != nil {
		return err
	}
	l.show()
	return nil
}

// show updates the status. The caller holds mu, or no other goroutine has the ledger yet.
func (l *ledger) show() {
	type one struct {
		name string
		*checkpoint
	}
	var all []one
	for name, x := range l.sessions {
		if x.confirmed != nil {
			all = append(all, one{name, x.confirmed})
		}
	}
	slices.SortFunc(all, func(a, b one) int { return b.At.Compare(a.At) })
	list := []SentSession{}
	for _, x := range all[:min(len(all), maxSent)] {
		list = append(list, SentSession{names.Foreign(x.name), x.Seq})
	}
	l.status.Store(&list)
}
