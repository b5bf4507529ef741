package draft

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The log has one JSON object a line. The value of the last key is the CRC-32C of that part of the
// line which precedes the key. The first line is a header.

const version = 1

// line is one line of the log. The fields form groups, with blank lines between them. A line sets
// fields of one group; the exception is Boot, which comes with Commit, too. Paths are bytes,
// because names need not be UTF-8.
type line struct {
	Stage int    `json:"stage,omitempty"` // the header, with Boot
	Boot  string `json:"boot,omitempty"`

	Path     *[]byte   `json:"p,omitempty"`
	Whiteout bool      `json:"w,omitempty"`
	Base     *baseLine `json:"b,omitempty"`

	Clear *[]byte `json:"clear,omitempty"`

	Placing *[]byte   `json:"placing,omitempty"`
	Temp    []byte    `json:"temp,omitempty"`
	Old     *baseLine `json:"old,omitempty"`
	New     *baseLine `json:"new,omitempty"`
	Making  bool      `json:"making,omitempty"`
	Placed  *[]byte   `json:"placed,omitempty"`

	// Commit is a time in nanoseconds since 1970. It comes with Boot and Upto. Files with an
	// older ctime are on the disk, and so are the records before the offset Upto.
	Commit int64 `json:"commit,omitempty"`
	Upto   int64 `json:"upto,omitempty"`

	// Undo is the number of the checkpoint to which an undo goes back. The undo begins with this
	// line, and ends with a line that sets Undone.
	Undo   *int `json:"undo,omitempty"`
	Undone bool `json:"undone,omitempty"`

	Unsure  *[]byte  `json:"unsure,omitempty"`
	Lost    []uint64 `json:"lost,omitempty"`
	Damaged string   `json:"damaged,omitempty"`
}

type baseLine struct {
	Kind  string `json:"k"`
	Ino   uint64 `json:"i"`
	Birth int64  `json:"t"`
	Size  int64  `json:"s"`
	Mtime int64  `json:"m"`
	Ctime int64  `json:"c"`
	Mode  uint32 `json:"o"`
	Hash  string `json:"h,omitempty"`
}

func pathOf(p string) *[]byte {
	b := []byte(p)
	return &b
}

func recordLine(r Record) line {
	return line{Path: pathOf(r.Path), Whiteout: r.Whiteout, Base: baseLineOf(r.Base)}
}

func stepLine(p Step) line {
	return line{Placing: pathOf(p.Path), Temp: []byte(p.Temp), Old: baseLineOf(p.Old), New: baseLineOf(p.New), Making: p.Making}
}

func baseLineOf(b Base) *baseLine {
	if b.Kind == Nothing {
		return nil
	}
	l := &baseLine{Kind: string(rune(b.Kind)), Ino: b.Ino, Birth: b.Birth, Size: b.Size, Mtime: b.Mtime, Ctime: b.Ctime, Mode: b.Mode}
	if b.Hash != [32]byte{} {
		l.Hash = hex.EncodeToString(b.Hash[:])
	}
	return l
}

func (l *baseLine) base() (Base, error) {
	if l == nil {
		return Base{}, nil
	}
	if len(l.Kind) != 1 || !bytes.Contains([]byte{File, Dir, Link, Other}, []byte(l.Kind)) {
		return Base{}, errors.New("unknown kind of file")
	}
	b := Base{Kind: l.Kind[0], Ino: l.Ino, Birth: l.Birth, Size: l.Size, Mtime: l.Mtime, Ctime: l.Ctime, Mode: l.Mode}
	if l.Hash == "" {
		return b, nil
	}
	if hex.DecodedLen(len(l.Hash)) != len(b.Hash) {
		return Base{}, errors.New("hash of another length")
	}
	_, err := hex.Decode(b.Hash[:], []byte(l.Hash))
	return b, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

const (
	checkKey = `,"x":"`
	checkLen = len(checkKey) + 8 + len("\"}")
)

// encode returns a line with its checksum and newline.
func (l *line) encode() ([]byte, error) { return seal(l) }

// errDamaged is the error for a line whose checksum does not match, and for a checkpoint with an
// invalid record.
var errDamaged = errors.New("damaged line")

// errNewer is the error for a line that a later version of rootsfs wrote.
var errNewer = errors.New("a newer rootsfs wrote the store: use that version")

// decode reads a line without its newline.
func decode(b []byte) (l line, err error) {
	err = unseal(b, &l)
	return l, err
}

// logFile appends lines to the log.
type logFile struct {
	file *os.File
	end  int64 // of the last whole line
	// broken is set if a line was written in part and could not be removed again. Lines after
	// it could not be read, so nothing is appended any more.
	broken bool

	syncing sync.Mutex
	dirty   atomic.Bool // something was appended since the last sync
	stale   atomic.Bool // something was written, to the log or the upper, since the last commit
}

// write appends whole lines in one write.
func (f *logFile) write(b []byte) error {
	if f.broken {
		return unix.EIO
	}
	n, err := f.file.WriteAt(b, f.end)
	if err != nil {
		if n > 0 && f.file.Truncate(f.end) != nil {
			f.broken = true
		}
		return err
	}
	f.end += int64(n)
	f.dirty.Store(true)
	return nil
}

func (f *logFile) sync() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if !f.dirty.Swap(false) {
		return nil
	}
	err := unix.Fdatasync(int(f.file.Fd()))
	if err != nil {
		f.dirty.Store(true)
	}
	return err
}

// append writes lines and applies them to s. The caller holds s.mu.
func (s *Store) append(lines []line) error {
	if len(lines) == 0 {
		return nil
	}
	var all []byte
	for i := range lines {
		b, err := lines[i].encode()
		if err != nil {
			return err
		}
		all = append(all, b...)
	}
	if err := s.log.write(all); err != nil {
		return err
	}
	s.log.stale.Store(true)
	s.untouched.Store(false)
	s.size.stale.Store(true)
	for i := range lines {
		if err := s.applyLine(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// applyLine applies one line to s.
func (s *Store) applyLine(l *line) error {
	base, err := l.Base.base()
	if err != nil {
		return err
	}
	switch {
	case l.Path != nil:
		s.mergeRecord(Record{Path: string(*l.Path), Whiteout: l.Whiteout, Base: base})
	case l.Clear != nil:
		p := string(*l.Clear)
		delete(s.records, p)
		delete(s.unsure, p)
		s.setHidden(p, false)
	case l.Placing != nil:
		p := Step{Path: string(*l.Placing), Temp: string(l.Temp), Making: l.Making}
		if p.Old, err = l.Old.base(); err != nil {
			return err
		}
		if p.New, err = l.New.base(); err != nil {
			return err
		}
		s.steps[p.Path] = p
	case l.Placed != nil:
		delete(s.steps, string(*l.Placed))
	case l.Undo != nil:
		s.points.undoing = l.Undo
	case l.Undone:
		s.points.undoing = nil
	case l.Unsure != nil:
		s.unsure[string(*l.Unsure)] = true
	case l.Damaged != "":
		s.damaged = l.Damaged
	}
	for _, ino := range l.Lost {
		s.lost[ino] = true
	}
	return nil
}

func (s *Store) mergeRecord(r Record) {
	if old, ok := s.records[r.Path]; ok {
		r.Base, r.Whiteout = old.Base, old.Whiteout || r.Whiteout
	}
	s.records[r.Path] = r
	if r.Whiteout {
		s.setHidden(r.Path, true)
	}
}

// logState has the facts about a log that replay found.
type logState struct {
	end      int64  // of the last whole line
	lines    int    // number of lines that were read
	boot     string // of the last header or commit
	commit   int64  // time of the last commit
	young    []youngRecord
	isBroken bool // a damaged line ended the log
}

// replay applies the lines of a log to s, up to the first damaged one. A last line without a
// newline is not applied: the process was killed while it wrote the line, before it made the
// change.
func (s *Store) replay(r io.Reader) (logState, error) {
	var got logState
	all, err := io.ReadAll(r)
	if err != nil {
		return got, err
	}
	for len(all) > 0 {
		at := bytes.IndexByte(all, '\n')
		if at < 0 {
			break
		}
		l, err := decode(all[:at])
		if err == nil && got.lines == 0 && l.Stage != version {
			err = errNewer
		}
		if errors.Is(err, errDamaged) {
			got.isBroken = true
			break
		}
		if err == nil {
			err = s.applyLine(&l)
		}
		if err != nil {
			return got, err
		}
		got.note(&l)
		got.end += int64(at) + 1
		all = all[at+1:]
	}
	return got, nil
}

// youngRecord is a record that was written after the last commit.
type youngRecord struct {
	path string
	at   int64 // its offset
}

func (got *logState) note(l *line) {
	got.lines++
	switch {
	case l.Commit != 0:
		got.boot, got.commit = l.Boot, l.Commit
		got.young = slices.DeleteFunc(got.young, func(y youngRecord) bool { return y.at < l.Upto })
	case l.Stage != 0:
		got.boot = l.Boot
	case l.Path != nil:
		got.young = append(got.young, youngRecord{string(*l.Path), got.end})
	}
}
