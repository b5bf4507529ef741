package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"
)

// Damage is a place in a file that could not be read as a record.
type Damage struct {
	File string // path
	Line int    // counted from 1
	// Torn says that the line is the last one and lacks its end: it is being
	// written at this moment, or a crash cut it.
	Torn bool
}

// DamageError is the error of a Read that has delivered all readable records, but has found
// unreadable lines.
type DamageError struct {
	List []Damage // the first hundred
	More int      // how many there are beyond those
}

const maxDamage = 100

// Error names the first damaged place.
func (e *DamageError) Error() string {
	d := e.List[0]
	what := "not a record"
	if d.Torn {
		what = "torn"
	}
	s := fmt.Sprintf("audit: %s line %d is %s", filepath.Base(d.File), d.Line, what)
	if n := len(e.List) - 1 + e.More; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

func (e *DamageError) add(d Damage) {
	if len(e.List) >= maxDamage {
		e.More++
		return
	}
	e.List = append(e.List, d)
}

// orNil returns e, or nil if there is no damage.
func (e *DamageError) orNil() error {
	if len(e.List) == 0 {
		return nil
	}
	return e
}

// Read reads files, and calls fn for each record that the filter selects, the oldest record first.
// Within a session the order is that of its lines, whatever the clock did. A line that is no
// record, such as a torn last line, does not stop Read: Read delivers all other records, then
// returns a *DamageError. Files deleted since they were listed are skipped. An error of fn
// ends Read and is returned. Entry.Line is valid until fn returns.
//
// Read does not verify anything. It holds one file of each session open, and one line of
// each in memory. It skips a file that has a successor in the session if f.Session or f.After
// excludes every record of the file, or if the successor was begun more than a minute before
// f.Since (Filter.skips).
func Read(files []string, f Filter, fn func(Entry) error) error {
	if err := f.check(); err != nil {
		return err
	}
	damage := &DamageError{}
	sources := bySession(files)
	for _, s := range sources {
		next, stop := iter.Pull2(entriesIn(s.files, &f, damage))
		defer stop()
		s.next = next
		s.advance()
	}
	for first := oldest(sources); first != nil; first = oldest(sources) {
		if err := fn(first.entry); err != nil {
			return err
		}
		first.advance()
	}
	for _, s := range sources {
		if s.err != nil {
			return s.err
		}
	}
	return damage.orNil()
}

// entriesIn reads files of one session, yields the records that the filter selects, and adds
// unreadable places to damage. It yields nothing after an error.
func entriesIn(files []string, f *Filter, damage *DamageError) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i, path := range files {
			if i+1 < len(files) && f.skips(path, files[i+1]) {
				continue
			}
			if !readFile(path, f, damage, yield) {
				return
			}
		}
	}
}

// skips reports whether the filter can select nothing in a file, judged by the file's name
// and the first line of its successor.
func (f *Filter) skips(path, next string) bool {
	n, ok := nameOf(path)
	if !ok {
		return false
	}
	if f.Session != "" && n.session != f.Session {
		return true
	}
	m, ok := nameOf(next)
	if f.Since.IsZero() && f.After[n.session] == 0 || !ok || m.session != n.session {
		return false
	}
	line, err := firstLine(next)
	if err != nil {
		return false
	}
	e, err := decode(line)
	if err != nil {
		return false
	}
	// The records of a file have lower numbers than the header of the next. None is younger than
	// that header, unless the clock was set back in between. The minute allows for that.
	after := f.After[n.session]
	return after > 0 && e.Seq <= after+1 || e.Time.Add(time.Minute).Before(f.Since)
}

// readFile yields the records in one file that the filter selects. It reports whether the next file
// is to be read.
func readFile(path string, f *Filter, damage *DamageError, yield func(Entry, error) bool) bool {
	n, format := 0, 0
	for line, err := range lines(path) {
		if n++; f.Stop != nil && n%stopEvery == 1 {
			if err := f.Stop(); err != nil {
				yield(Entry{}, err)
				return false
			}
		}
		if n == 1 && err == nil {
			header, _ := decode(line) // the zero Entry if the line is no record
			format = header.Format
		}
		switch {
		case gone(err):
			return true
		case err != nil && !unreadable(err):
			yield(Entry{}, err)
			return false
		case err == nil && f.Denied && !bytes.Contains(line, deniedMark):
			continue
		}
		var e Entry
		torn := errors.Is(err, errTorn)
		if err == nil {
			e, err = decode(line)
		}
		e.FileFormat = format
		if err != nil {
			damage.add(Damage{File: path, Line: n, Torn: torn})
		} else if f.match(&e) && !yield(e, nil) {
			return false
		}
	}
	return true
}

// deniedMark is in every refused record. It cannot be in a string of another record, because
// there its quotation marks would be escaped.
var deniedMark = []byte(`"verdict":"refused"`)

// source reads the records of one session, one at a time.
type source struct {
	files    []string
	next     func() (Entry, error, bool)
	entry    Entry     // the next to be delivered, if hasEntry
	hasEntry bool      // false after the last entry or an error
	err      error     // the error that ended the reading
	time     time.Time // the latest time of an entry so far, by which oldest compares sources
}

// bySession makes a source of each session's files, in the order of files.
func bySession(files []string) (sources []*source) {
	known := map[string]*source{}
	for _, path := range files {
		n, _ := nameOf(path)
		s := known[n.session]
		if s == nil {
			s = &source{}
			known[n.session] = s
			sources = append(sources, s)
		}
		s.files = append(s.files, path)
	}
	return sources
}

// advance reads the next entry.
func (s *source) advance() {
	s.entry, s.err, s.hasEntry = s.next()
	s.hasEntry = s.hasEntry && s.err == nil
	if s.hasEntry && s.entry.Time.After(s.time) {
		s.time = s.entry.Time
	}
}

// oldest returns the source with the least time, nil if there are no more entries.
func oldest(sources []*source) *source {
	var first *source
	for _, s := range sources {
		if s.hasEntry && (first == nil || s.time.Before(first.time)) {
			first = s
		}
	}
	return first
}

var (
	// errTorn means that the last line lacks its newline.
	errTorn = errors.New("the last line is torn")
	// errLong means that a line is longer than any that a Log writes.
	errLong = errors.New("line longer than 2 MiB")
)

// unreadable reports whether an error is about the contents of a file, and not about reading
// it.
func unreadable(err error) bool {
	return errors.Is(err, errLong) || errors.Is(err, errTorn) || errors.Is(err, errDamaged)
}

// lines yields the complete lines of a file, each valid until the next. In place of a line
// that is too long it yields errLong, and goes on. Any other error that it yields is the
// last: errTorn, errDamaged, or an error of the file system.
func lines(path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := openFile(path)
		if err != nil {
			yield(nil, fmt.Errorf("audit: %w", err))
			return
		}
		defer f.Close()
		f.lines(yield)
	}
}

// lineReader reads the lines of an audit file, compressed or not.
type lineReader struct {
	*bufio.Reader
	plain *os.File // nil: compressed
	close func() error

	line     []byte // the part of the present line that was read; cut if it is too long
	size     int    // length that line would have if it were not cut
	complete bool   // next has returned the present line
}

func newLineReader(r io.Reader, plain *os.File, closeFile func() error) *lineReader {
	return &lineReader{Reader: bufio.NewReaderSize(r, 64<<10), plain: plain, close: closeFile}
}

// Close closes the file.
func (r *lineReader) Close() error { return r.close() }

// lines yields the lines of the open file, as the function lines does. When it is called
// again after the file has grown, it goes on where it ended.
func (r *lineReader) lines(yield func([]byte, error) bool) {
	for {
		line, err := r.next()
		if err != nil && !unreadable(err) {
			if errors.Is(err, io.EOF) {
				return
			}
			err = fmt.Errorf("audit: %w", err)
		}
		if !yield(line, err) || err != nil && !errors.Is(err, errLong) {
			return
		}
	}
}

// next returns the next line without its newline, valid until the next call. It returns
// io.EOF at the end, errTorn if the end has no newline, and errLong for a line beyond
// maxLine, which it passes over.
func (r *lineReader) next() ([]byte, error) {
	if r.complete {
		r.line, r.size, r.complete = r.line[:0], 0, false
	}
	for {
		part, err := r.ReadSlice('\n')
		r.size += len(part)
		if r.size <= maxLine {
			r.line = append(r.line, part...)
		}
		switch {
		case err == nil && r.size > maxLine:
			r.complete = true
			return nil, errLong
		case err == nil:
			r.complete = true
			return r.line[:r.size-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && !unreadable(err) && r.size > 0:
			return nil, errTorn
		default:
			return nil, err
		}
	}
}

// firstLine returns the first line of a file; nil if there is none, or if the line is torn, too long
// or damaged.
func firstLine(path string) ([]byte, error) {
	for line, err := range lines(path) {
		if unreadable(err) {
			err = nil
		}
		return line, err
	}
	return nil, nil
}

// lastLine returns the last complete line of a file; nil if there is none that can be
// read.
func lastLine(path string) (last []byte, err error) {
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer f.Close()
	if f.plain != nil {
		return lastLineOf(f.plain)
	}
	for line, err := range f.lines {
		switch {
		case err == nil:
			last = append(last[:0], line...)
		case errors.Is(err, errLong):
			last = nil
		case !unreadable(err):
			return nil, err
		}
	}
	return last, nil
}

// lastLineOf is lastLine for a file that is not compressed, of which it reads only the end.
func lastLineOf(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	// The last complete line, and a torn line after it, may each have up to maxLine bytes.
	for window := int64(16 << 10); ; window *= 4 {
		from := max(0, info.Size()-window)
		b := make([]byte, info.Size()-from)
		if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("audit: %w", err)
		}
		if end := bytes.LastIndexByte(b, '\n'); end >= 0 {
			start := bytes.LastIndexByte(b[:end], '\n') + 1
			if start > 0 || from == 0 {
				return b[start:end], nil
			}
		}
		if from == 0 || window > 2*maxLine {
			return nil, nil
		}
	}
}
