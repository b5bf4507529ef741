package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// checkpoint is a machine's signed statement about an audit file that it has sent: up to the record
// Seq, whose hash is Hash, the file is as the machine read it. The hash covers the earlier records of
// the file, too.
type checkpoint struct {
	Machine string `json:"machine"`
	Session string `json:"session"`
	File    string `json:"file"`
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"`
	// Follows is the number of the last record that the machine sent before the first record of the
	// file, or could not send because a keeper refused it or because it is too long. If there are
	// numbers between these two, the machine's log had deleted those records.
	Follows uint64    `json:"follows"`
	At      time.Time `json:"at"`

	signed []byte
}

const kindCheckpoint = "checkpoint"

// openCheckpoint opens a checkpoint of an audit file. The machine must have signed it with key.
func openCheckpoint(data []byte, n Names, machine, key string) (*checkpoint, error) {
	c := &checkpoint{signed: data}
	if _, err := openSigned(data, n.ID, kindCheckpoint, func(by string) bool { return by == key }, c); err != nil {
		return nil, err
	}
	if session := sessionOfFile(c.File); session == "" || session != c.Session || c.Machine != machine || c.Seq == 0 || len(c.Hash) != 64 {
		return nil, errors.New("it is not about a file of this machine")
	}
	return c, nil
}

// sessionOfFile returns the session of an audit file that is not compressed. It returns "" for any
// other name, and for a name with a directory in it.
func sessionOfFile(name string) string {
	session, ok := audit.SessionOf(name)
	if !ok || filepath.Base(name) != name || filepath.Ext(name) != ".jsonl" {
		return ""
	}
	return session
}

// chain follows the records of a session.
type chain struct {
	seq  uint64 // of the last record; 0: there was none
	hash string
}

// add checks a record against the one before it. Even after an error the record counts as the last
// one, if line is a record at all, so that one change is reported as one problem.
func (c *chain) add(line []byte) (audit.Entry, error) {
	e, err := audit.ParseLine(line)
	if err != nil {
		return e, fmt.Errorf("after record %d is something that is no record", c.seq)
	}
	last := *c
	c.seq, c.hash = e.Seq, e.Hash
	switch {
	case !audit.IsIntact(line):
		err = fmt.Errorf("record %d was changed", e.Seq)
	case last.seq > 0 && e.Seq > last.seq+1:
		err = fmt.Errorf("records %d to %d are missing", last.seq+1, e.Seq-1)
	case last.seq > 0 && e.Seq != last.seq+1:
		err = fmt.Errorf("record %d comes after record %d", e.Seq, last.seq)
	case last.seq > 0 && e.Prev != last.hash:
		err = fmt.Errorf("record %d does not continue record %d: one of them was replaced", e.Seq, last.seq)
	}
	return e, err
}

// isHeader reports whether a record is the first one of the audit file with the name file.
func isHeader(e *audit.Entry, file string) bool { return e.Op == "session" && e.File == file }

// splitLines returns the lines of whole records. It refuses a torn or empty line, and one that is
// too long.
func splitLines(data []byte) ([][]byte, error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) > 0 {
		return nil, errors.New("the last record is torn")
	}
	lines = lines[:len(lines)-1]
	for i, line := range lines {
		if lines[i] = bytes.TrimSuffix(line, []byte("\n")); len(lines[i]) == 0 || len(lines[i]) > maxRecordLine {
			return nil, fmt.Errorf("a record has 0 bytes or more than %d", maxRecordLine)
		}
	}
	return lines, nil
}

// The bounds of the records that a machine sends.
const (
	maxRecordLine  = 64 << 10 // longer than any record of this version
	batchBytes     = 48 << 10 // when the collected records of all sessions have so many bytes, they are sent
	maxRecordBatch = batchBytes + maxRecordLine
	maxRecordFile  = 8 << 20 // of an audit file; a log begins a new file long before its file has this size
)

// recordBatch has consecutive records of one audit file, for the keeper.
type recordBatch struct {
	Session string `json:"session"`
	// After is the number of the last record of the session that the keeper has, as far as the
	// machine knows.
	After      uint64 `json:"after"`
	Lines      []byte `json:"lines,omitempty"`
	Checkpoint []byte `json:"checkpoint,omitempty"` // up to the last of the records
}

// recordsAnswer is the keeper's answer: the newest checkpoint of the session that is on the keeper's
// disk together with its records; nil: there is none.
type recordsAnswer struct {
	Checkpoint []byte `json:"checkpoint,omitempty"`
	Wait       string `json:"wait,omitempty"` // why the keeper takes no records now
}

const kindRecords = "records"

// foreign returns an error's text, a part of which a machine or the keeper may have chosen.
func foreign(err error) names.Foreign { return names.Foreign(err.Error()) }
