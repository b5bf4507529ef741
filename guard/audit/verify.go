package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Report is the outcome of Verify.
type Report struct {
	Session string        `json:"session"`
	Files   int           `json:"files"`
	Records uint64        `json:"records"` // lines that were checked, headers included
	From    uint64        `json:"from"`    // the first line's number; over 1 after pruning
	To      uint64        `json:"to"`      // the last line's number
	OK      bool          `json:"ok"`
	Problem names.Foreign `json:"problem,omitempty"` // the first one found
	At      uint64        `json:"at,omitempty"`      // the line with the problem, or the line after the problem
	// Anchored says that the report is OK, and that the anchor names a line of this chain or a
	// pruned one. If Anchored is false, lines may be missing at the end, or all may be forged.
	Anchored   bool   `json:"anchored"`
	AnchoredAt uint64 `json:"anchored_at,omitempty"` // number of the anchored line; later lines are not protected by the anchor
	Torn       int    `json:"torn,omitempty"`        // files whose last line is incomplete, or that have no line and are not the last
	Lost       uint64 `json:"lost,omitempty"`        // records the log says it could not take
	// Pruned is how many of the oldest records were deleted on the owner's behalf, as the
	// headers and the anchor say.
	Pruned uint64 `json:"pruned,omitempty"`
}

// Verify checks the chain of a session in dir, from its first file to its end, and against the
// anchor. With anchorPath "" it checks the chain alone. It can be used on a live session. The
// report says what is wrong with the records. An error means that the records or the anchor could
// not be read. If the session has neither records nor an intact anchor of its own, the error is
// fs.ErrNotExist. If it has only the anchor, the report says which records are missing or pruned.
// The package comment says what an OK proves.
func Verify(dir, session, anchorPath string) (r Report, err error) {
	// A file may be pruned after verifyOnce has listed it and before verifyOnce opens it. That is
	// rare, so a second attempt is nearly always enough.
	for range 5 {
		r, err = verifyOnce(dir, session, anchorPath)
		if !errors.Is(err, errPruned) {
			break
		}
	}
	return r, err
}

// errPruned means that a listed file was gone when it was to be read.
var errPruned = errors.New("audit: the files change too fast to be verified")

func verifyOnce(dir, session, anchorPath string) (Report, error) {
	v := &verifier{report: Report{Session: session}, expect: map[uint64]string{}}
	// The anchor is read first, so that the line it names is in the files already.
	var a *anchor
	if anchorPath != "" {
		var err error
		a, err = readAnchor(anchorPath)
		switch {
		case errors.Is(err, errBadAnchor):
			v.fail(0, "the anchor file is damaged")
		case err != nil:
			return v.report, err
		case a == nil:
			v.fail(0, "the anchor file is missing")
		case a.Session != session:
			v.fail(0, "the anchor is that of session %s", names.Quote(a.Session))
			a = nil
		default:
			v.expectLine(a.Count, a.Hash)
			v.keptFrom = a.KeptFrom
		}
	}
	files, err := Files(dir, session)
	if err != nil {
		return v.report, err
	}
	if len(files) == 0 && a == nil {
		return v.report, fmt.Errorf("audit: no records of session %s: %w", names.Quote(session), fs.ErrNotExist)
	}
	if err := v.readHeaders(files); err != nil {
		return v.report, err
	}
	for i, path := range files {
		if err := v.checkFile(path, i == len(files)-1); err != nil {
			return v.report, err
		}
	}
	v.finish(a)
	return v.report, nil
}

// verifier is the state of one Verify.
type verifier struct {
	report   Report
	last     mark              // the last line that was checked
	started  bool              // a line was checked
	keptFrom uint64            // the first line that was not pruned; 0: nothing says so
	expect   map[uint64]string // hashes of lines, by number, as anchors name them
}

// fail records a problem unless there is one already: later problems mostly follow from the
// first.
func (v *verifier) fail(at uint64, format string, args ...any) {
	if v.report.Problem == "" {
		v.report.Problem = names.Foreign(fmt.Sprintf(format, args...))
		v.report.At = at
	}
}

// expectLine notes that an anchor names the line seq with this hash.
func (v *verifier) expectLine(seq uint64, hash string) {
	if old, ok := v.expect[seq]; ok && old != hash {
		v.fail(seq, "two anchors disagree about line %d", seq)
	}
	v.expect[seq] = hash
}

// readHeaders reads the header of each file. A header has the number of the first line that was not
// pruned, and the header of the file that Open begins also has the anchor that Open found.
func (v *verifier) readHeaders(files []string) error {
	for _, path := range files {
		line, err := firstLine(path)
		if err != nil && !gone(err) {
			return err
		}
		e, err := decode(line)
		if err != nil {
			continue // checkFile handles this file
		}
		v.keptFrom = max(v.keptFrom, e.KeptFrom)
		if e.AnchorSession == v.report.Session && e.AnchorSeq > 0 {
			v.expectLine(e.AnchorSeq, e.AnchorHash)
		}
	}
	return nil
}

// checkFile checks all lines of a file. isLast says that the session has no later file.
func (v *verifier) checkFile(path string, isLast bool) error {
	v.report.Files++
	base := strings.TrimSuffix(filepath.Base(path), compressedSuffix)
	n := 0
	for line, err := range lines(path) {
		n++
		switch {
		case err == nil:
			v.checkLine(base, line, n == 1)
		case errors.Is(err, errTorn):
			v.report.Torn++
		case errors.Is(err, errDamaged):
			v.fail(v.last.seq+1, "%s: after line %d the compressed file is damaged", filepath.Base(path), v.last.seq)
		case errors.Is(err, errLong):
			v.fail(v.last.seq+1, "%s: after line %d is a line that no log wrote", base, v.last.seq)
		case gone(err):
			return errPruned
		default:
			return err
		}
	}
	if n == 0 && !isLast {
		// A crash came after the file was created and before its header was written. The numbers of
		// the lines tell whether any is missing.
		v.report.Torn++
	}
	return nil
}

// checkLine checks a line against the one before. It then takes the line as the last one, even
// if something is wrong with the line, so that one problem is reported once. It reports a line
// without a seal, and passes over the line.
func (v *verifier) checkLine(base string, line []byte, isFirst bool) {
	s, err := parseSeal(line)
	if err != nil {
		v.fail(v.last.seq+1, "%s: after line %d is something that is no record", base, v.last.seq)
		return
	}
	v.report.Records++
	if !v.started {
		v.started = true
		v.report.From = s.seq
		if s.seq > 1 {
			v.last = mark{seq: s.seq - 1, hash: s.prev} // the hash of a pruned line cannot be checked
		}
	}
	switch {
	case s.seq > v.last.seq+1:
		v.fail(s.seq, "%s: lines %d to %d are missing", base, v.last.seq+1, s.seq-1)
	case s.seq != v.last.seq+1:
		v.fail(s.seq, "%s: line %d follows line %d", base, s.seq, v.last.seq)
	case sealOf(line, s.prev) != s.hash:
		v.fail(s.seq, "%s: line %d was changed", base, s.seq)
	case s.prev != v.last.hash:
		v.fail(s.seq, "%s: line %d does not continue line %d: that one was replaced", base, s.seq, v.last.seq)
	}
	v.last = s.mark
	if want, ok := v.expect[s.seq]; ok {
		if want != hex.EncodeToString(s.hash[:]) {
			v.fail(s.seq, "%s: line %d is not the one that was anchored", base, s.seq)
		}
		delete(v.expect, s.seq)
	}
	if isFirst || bytes.Contains(line, lostMark) {
		v.checkSpecial(base, line, s.seq, isFirst)
	}
}

// lostMark is in the lines of op "lost" only; see deniedMark.
var lostMark = []byte(`,"op":"lost",`)

// checkSpecial checks the fields of a file's first line, which must be a header. Of any other line it
// adds the lost records to the report.
func (v *verifier) checkSpecial(base string, line []byte, seq uint64, isFirst bool) {
	e, err := decode(line)
	switch {
	case err != nil:
		v.fail(seq, "%s: line %d is not readable", base, seq)
	case !isFirst:
		v.report.Lost += e.Lost
	case e.Op != opSession:
		v.fail(seq, "%s: the header is missing", base)
	case e.Format < 1 || e.Format > formatVersion:
		v.fail(seq, "%s: format %d is not known", base, e.Format)
	case e.Session.Raw() != v.report.Session || e.File != base:
		v.fail(seq, "%s: this file was %s of session %s", base, names.Quote(e.File), names.Quote(e.Session))
	}
}

// finish completes the report after all lines. a is the session's anchor, nil if there is none.
func (v *verifier) finish(a *anchor) {
	v.report.To = v.last.seq
	if !v.started && v.keptFrom > 1 {
		// No line is left, and all were pruned.
		v.report.Pruned = v.keptFrom - 1
	}
	if v.started && v.report.From > 1 {
		v.report.Pruned = min(v.report.From, max(v.keptFrom, 1)) - 1
	}
	if v.started && v.report.From > max(v.keptFrom, 1) {
		v.fail(v.keptFrom, "lines %d to %d are missing", max(v.keptFrom, 1), v.report.From-1)
	}
	for seq := range v.expect {
		// Earlier anchors may name lines that were pruned since.
		if seq > v.last.seq && seq >= v.keptFrom {
			v.fail(v.last.seq+1, "the lines after %d are missing: line %d was anchored", v.last.seq, seq)
		}
	}
	v.report.OK = v.report.Problem == ""
	if a == nil {
		return
	}
	_, unmet := v.expect[a.Count]
	v.report.Anchored = (!unmet || a.Count < v.keptFrom) && v.report.OK
	if v.report.Anchored {
		v.report.AnchoredAt = a.Count
	}
}

// seal has the parts of a line that chain it: its number, and the two hashes at its end.
type seal struct {
	mark
	prev [hashLen]byte
}

const (
	prevKey = `,"prev":"`
	hashKey = `","hash":"`
	lineEnd = `"}`
	// hashTail is how much of a line, from the comma before "hash", is not hashed.
	hashTail = len(hashKey) - 1 + 2*hashLen + len(lineEnd)
	sealTail = len(prevKey) + 2*hashLen + 1 + hashTail
)

var errNoSeal = errors.New("audit: line without prev and hash")

// parseSeal reads the seal from its fixed places in a line.
func parseSeal(line []byte) (seal, error) {
	var s seal
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok || len(line) < len(`{"seq":1`)+sealTail {
		return s, errNoSeal
	}
	digits, _, _ := bytes.Cut(rest, []byte{','})
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || seq == 0 {
		return s, errNoSeal
	}
	s.seq = seq
	end := line[len(line)-sealTail:]
	prev, end := end[len(prevKey):][:2*hashLen], end[len(prevKey)+2*hashLen:]
	hash := end[len(hashKey):][:2*hashLen]
	if !bytes.HasPrefix(line[len(line)-sealTail:], []byte(prevKey)) ||
		!bytes.HasPrefix(end, []byte(hashKey)) || !bytes.HasSuffix(line, []byte(lineEnd)) ||
		!parseHash(&s.prev, prev) || !parseHash(&s.hash, hash) {
		return s, errNoSeal
	}
	return s, nil
}

// sealOf computes the hash of a line that follows prev.
func sealOf(line []byte, prev [hashLen]byte) (sum [hashLen]byte) {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(line[:len(line)-hashTail])
	h.Sum(sum[:0])
	return sum
}

// IsIntact reports whether a line of a file is as a log wrote it: whether the hash in the line is
// the right one. It says nothing about the lines before and after.
func IsIntact(line []byte) bool {
	s, err := parseSeal(line)
	return err == nil && sealOf(line, s.prev) == s.hash
}
