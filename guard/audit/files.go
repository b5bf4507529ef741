package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// startLayout is the time in file names: its text sorts as the time does.
const startLayout = "20060102T150405.000000000Z"

var fileName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(.+)-(\d{8}T\d{6}\.\d{9}Z)(?:\.([1-9]\d{0,8}))?\.jsonl$`)
})

// logName is a parsed file name.
type logName struct {
	session, start string
	n              int // 0: the file that Open began
}

func parseName(base string) (logName, bool) {
	m := fileName().FindStringSubmatch(base)
	if m == nil || !sessionName().MatchString(m[1]) {
		return logName{}, false
	}
	n := 0
	if m[3] != "" {
		n, _ = strconv.Atoi(m[3]) // at most nine digits
	}
	return logName{session: m[1], start: m[2], n: n}, true
}

func (n logName) String() string {
	s := n.session + "-" + n.start
	if n.n > 0 {
		s += "." + strconv.Itoa(n.n)
	}
	return s + ".jsonl"
}

func compareNames(a, b logName) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.session, b.session), cmp.Compare(a.n, b.n))
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
		paths[i] = filepath.Join(dir, n.String())
	}
	return paths, nil
}

func listNames(dir, session string) ([]logName, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var list []logName
	for _, e := range entries {
		n, ok := parseName(e.Name())
		if ok && e.Type().IsRegular() && (session == "" || n.session == session) {
			list = append(list, n)
		}
	}
	sortNames(list)
	return list, nil
}

// nextStart is the start time for a new run: now, or just after the latest
// existing one where the clock was set back, so that names keep the order.
func nextStart(now time.Time, list []logName) string {
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
		case errors.Is(err, io.EOF) && size > 0:
			return nil, errTorn
		default:
			return nil, err
		}
	}
}

// firstLine returns the first complete line of a file; nil if there is none.
func firstLine(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := newLineReader(f).next()
	if errors.Is(err, io.EOF) || errors.Is(err, errTorn) || errors.Is(err, errLong) {
		return nil, nil
	}
	return line, err
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
