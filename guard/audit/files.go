package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startLayout is the time in file names: its text sorts as the time does.
const startLayout = "20060102T150405.000000000Z"

// startForm is how startLayout's digits lie: 0 stands for any.
const startForm = "00000000T000000.000000000Z"

// logName is a parsed file name, without the suffix of a compressed file.
type logName struct {
	session, start string
	n              int // 0: the file that Open began
}

// logEntry is a file in the directory.
type logEntry struct {
	logName
	sealed bool // compressed
}

// base is the file's name as it is on disk.
func (e logEntry) base() string {
	if e.sealed {
		return e.String() + sealedSuffix
	}
	return e.String()
}

// parseName reads SESSION-START.jsonl and SESSION-START.N.jsonl. It is by hand:
// it is asked of every file in the directory, of which there may be thousands,
// at every start of a session.
func parseName(base string) (logName, bool) {
	rest, ok := strings.CutSuffix(base, ".jsonl")
	n := 0
	if ok && !strings.HasSuffix(rest, "Z") {
		i := strings.LastIndexByte(rest, '.')
		if n, ok = number9(rest[i+1:]); i >= 0 {
			rest = rest[:i]
		}
	}
	at := len(rest) - len(startForm)
	if !ok || at < 2 || rest[at-1] != '-' || !hasForm(rest[at:], startForm) || !WellNamed(rest[:at-1], maxName) {
		return logName{}, false
	}
	return logName{session: rest[:at-1], start: rest[at:], n: n}, true
}

// number9 reads a number from 1 to nine digits without leading zeros.
func number9(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && len(s) <= 9 && s[0] >= '1' && s[0] <= '9'
}

// hasForm reports whether a text of ASCII has the bytes of a form, and digits
// where that has 0.
func hasForm(s, form string) bool {
	for i := range len(form) {
		if digit := s[i] >= '0' && s[i] <= '9'; form[i] == '0' && !digit || form[i] != '0' && s[i] != form[i] {
			return false
		}
	}
	return true
}

func (n logName) String() string {
	s := n.session + "-" + n.start
	if n.n > 0 {
		s += "." + strconv.Itoa(n.n)
	}
	return s + ".jsonl"
}

// compareNames compares no more than it must: most names differ in their times.
func compareNames(a, b logName) int {
	if c := strings.Compare(a.start, b.start); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.session, b.session), cmp.Compare(a.n, b.n))
}

// Files returns the audit files of a session in dir, in the order in which they
// were written; with session "" those of all sessions, in the order in which
// the sessions began. Other files are ignored. No file is no error.
func Files(dir, session string) ([]string, error) {
	list, err := listNames(dir, session)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(list))
	for i, n := range list {
		paths[i] = filepath.Join(dir, n.base())
	}
	return paths, nil
}

// listNames lists files. Where a crash left one beside its compressed copy, the copy
// is listed: it is whole, because it got its name when it was synced.
func listNames(dir, session string) ([]logEntry, error) {
	entries, err := readDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var list []logEntry
	for _, e := range entries {
		if session != "" && !strings.HasPrefix(e.Name(), session+"-") {
			continue // quickly: there may be thousands of others
		}
		base, sealed := strings.CutSuffix(e.Name(), sealedSuffix)
		n, ok := parseName(base)
		if ok && e.Type().IsRegular() && (session == "" || n.session == session) {
			list = append(list, logEntry{n, sealed})
		}
	}
	slices.SortFunc(list, func(a, b logEntry) int {
		if c := compareNames(a.logName, b.logName); c != 0 || a.sealed == b.sealed {
			return c
		}
		if a.sealed {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(list, func(a, b logEntry) bool { return a.logName == b.logName }), nil
}

// readDir is os.ReadDir without its sorting, which would be for nothing.
func readDir(dir string) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// nextStart is the start time for a new run: now, or just after the latest
// existing one where the clock was set back, so that names keep the order.
func nextStart(now time.Time, list []logEntry) string {
	start := now.UTC().Format(startLayout)
	for _, n := range list {
		if n.start < start {
			continue
		}
		if t, err := time.Parse(startLayout, n.start); err == nil {
			start = t.Add(time.Nanosecond).Format(startLayout)
		}
	}
	return start
}

// lineReader reads complete lines and keeps count of where they end.
type lineReader struct {
	r   *bufio.Reader
	pos int64 // after the last complete line
	buf []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10)}
}

var (
	// errTorn is a last line without its newline.
	errTorn = errors.New("the last line is torn")
	// errLong is a line no Log has written.
	errLong = errors.New("line longer than 2 MiB")
)

// next returns the next line without its newline, valid until the call after;
// io.EOF at the end, errTorn if something without a newline is left there, and
// errLong for a line beyond maxLine, which is skipped.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	size := int64(0)
	for {
		part, err := l.r.ReadSlice('\n')
		size += int64(len(part))
		if len(l.buf)+len(part) <= maxLine {
			l.buf = append(l.buf, part...)
		}
		switch {
		case err == nil && size > maxLine:
			l.pos += size
			return nil, errLong
		case err == nil:
			l.pos += size
			return bytes.TrimSuffix(l.buf, []byte{'\n'}), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, errDamaged):
			return nil, err // its text may say EOF
		case errors.Is(err, io.EOF) && size > 0:
			return nil, errTorn
		default:
			return nil, err
		}
	}
}

// lines yields the complete lines of a file, each valid until the next. What cannot be
// read is an error in place of a line: errLong, after which it goes on, or at the end
// errTorn, errDamaged, or the file system's error.
func lines(path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := openFile(path)
		if err != nil {
			yield(nil, fmt.Errorf("audit: %w", err))
			return
		}
		defer f.Close()
		r := newLineReader(f)
		for {
			line, err := r.next()
			if err == nil || unreadable(err) {
				if !yield(line, err) || err != nil && !errors.Is(err, errLong) {
					return
				}
				continue
			}
			if !errors.Is(err, io.EOF) {
				yield(nil, fmt.Errorf("audit: %w", err))
			}
			return
		}
	}
}

// unreadable reports whether an error is about what a file holds, not about reading it.
func unreadable(err error) bool {
	return errors.Is(err, errLong) || errors.Is(err, errTorn) || errors.Is(err, errDamaged)
}

// firstLine returns the first complete line of a file; nil if there is none.
func firstLine(path string) ([]byte, error) {
	for line, err := range lines(path) {
		if unreadable(err) {
			err = nil
		}
		return line, err
	}
	return nil, nil
}

// lastLineOf returns the last complete line of a file; nil if there is none that can be
// read.
func lastLineOf(path string) (last []byte, err error) {
	if !strings.HasSuffix(path, sealedSuffix) {
		if f, err := os.Open(path); err == nil {
			defer f.Close()
			last, _, err = lastLine(f)
			if errors.Is(err, errLong) {
				err = nil
			}
			return last, err
		}
	}
	for line, err := range lines(path) {
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

// lastLine returns the last complete line of a file and the offset after it;
// nil and 0 if there is none, errLong if it is beyond maxLine.
func lastLine(f *os.File) (line []byte, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	// A torn line of up to maxLine may follow the one we look for.
	window := int64(16 << 10)
	for {
		from := max(0, info.Size()-window)
		b := make([]byte, info.Size()-from)
		if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			start := bytes.LastIndexByte(b[:i], '\n') + 1
			if start > 0 || from == 0 {
				return b[start:i], from + int64(i) + 1, nil
			}
		}
		if from == 0 {
			return nil, 0, nil
		}
		if window > 2*maxLine {
			return nil, 0, errLong
		}
		window *= 4
	}
}

// gone reports whether err says that a file was removed.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func sortNames(list []logName) { slices.SortFunc(list, compareNames) }
