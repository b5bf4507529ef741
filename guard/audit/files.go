package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// startLayout is the time in file names: its text sorts as the time does.
const startLayout = "20060102T150405.000000000Z"

// startForm is the form of such a time: 0 stands for any digit.
const startForm = "00000000T000000.000000000Z"

// logName is a parsed file name, without the suffix of compressed files.
type logName struct {
	session, start string
	n              int // the file's number in the run; 0 for the one that Open began
}

// logEntry is a file in the directory.
type logEntry struct {
	logName
	compressed bool
}

// base returns the file's name as it is on disk.
func (e logEntry) base() string {
	if e.compressed {
		return e.String() + compressedSuffix
	}
	return e.String()
}

// parseName parses SESSION-START.jsonl and SESSION-START.N.jsonl. It uses no regular
// expression, because each start of a session parses the names of all files in the
// directory, and there may be thousands.
func parseName(base string) (logName, bool) {
	rest, ok := strings.CutSuffix(base, ".jsonl")
	n := 0
	if ok && !strings.HasSuffix(rest, "Z") {
		i := strings.LastIndexByte(rest, '.')
		if n, ok = fileNumber(rest[i+1:]); i >= 0 {
			rest = rest[:i]
		}
	}
	at := len(rest) - len(startForm)
	if !ok || at < 2 || rest[at-1] != '-' || !hasForm(rest[at:], startForm) || !WellNamed(rest[:at-1], maxName) {
		return logName{}, false
	}
	return logName{session: rest[:at-1], start: rest[at:], n: n}, true
}

// nameOf is the parsed name of the file at path, compressed or not.
func nameOf(path string) (logName, bool) {
	return parseName(strings.TrimSuffix(filepath.Base(path), compressedSuffix))
}

// fileNumber reads a number of one to nine digits, the first of which is not 0.
func fileNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && len(s) <= 9 && s[0] >= '1' && s[0] <= '9'
}

// hasForm reports whether an ASCII text matches a form: a 0 in the form stands for any digit,
// every other byte for itself.
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

// SessionOf returns the session of an audit file by the file's name, compressed or not. It reports
// false for other names.
func SessionOf(file string) (session string, ok bool) {
	n, ok := nameOf(file)
	return n.session, ok
}

// compareNames orders names by the time of the run, the session, and the number in the run.
func compareNames(a, b logName) int {
	if c := strings.Compare(a.start, b.start); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.session, b.session), cmp.Compare(a.n, b.n))
}

// Files returns the audit files of a session in dir, in the order in which they
// were written. With session "" it returns the files of all sessions, in the order in which the
// runs of the sessions began. Other files are ignored. It is no error if there are no audit files.
func Files(dir, session string) ([]string, error) {
	list, err := listNames(dir, session)
	if err != nil {
		return nil, err
	}
	return paths(dir, list), nil
}

func paths(dir string, list []logEntry) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = filepath.Join(dir, e.base())
	}
	return out
}

// listNames lists the files of a session, or of all if it is "". If a crash left a file
// beside its compressed copy, the copy is listed. It is complete, because it gets its name
// only after it was synced.
func listNames(dir, session string) ([]logEntry, error) {
	list, err := listAll(dir, session)
	return slices.CompactFunc(list, func(a, b logEntry) bool { return a.logName == b.logName }), err
}

// listAll lists the files that listNames lists, and also each file that has a compressed copy,
// right after the copy.
func listAll(dir, session string) ([]logEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1) // os.ReadDir would sort by names
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var list []logEntry
	for _, e := range entries {
		if session != "" && !strings.HasPrefix(e.Name(), session+"-") {
			continue // without parsing thousands of other names
		}
		n, ok := nameOf(e.Name())
		if ok && e.Type().IsRegular() && (session == "" || n.session == session) {
			list = append(list, logEntry{n, strings.HasSuffix(e.Name(), compressedSuffix)})
		}
	}
	slices.SortFunc(list, func(a, b logEntry) int {
		if c := compareNames(a.logName, b.logName); c != 0 || a.compressed == b.compressed {
			return c
		}
		if a.compressed {
			return -1
		}
		return 1
	})
	return list, nil
}

// nextStart returns the start time in the name of a new file: now or, if the clock was set
// back, just after that of the session's last file, so that names sort by age.
func nextStart(now time.Time, list []logEntry) string {
	start := now.UTC().Format(startLayout)
	if last := len(list) - 1; last >= 0 && list[last].start >= start {
		if t, err := time.Parse(startLayout, list[last].start); err == nil {
			start = t.Add(time.Nanosecond).Format(startLayout)
		}
	}
	return start
}

// gone reports whether err says that a file does not exist.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Open begins a new file of the session and continues the session's chain, from the last
// line on disk. If the last line comes before the anchored line, or has the same number but is
// another line, the chain continues from the anchored line instead. Verify then reports the
// damage from then on. Damage never keeps a session from starting.
//
// Open returns when the new file has its header. It does not wait for the header's anchor:
// Anchored does.
func Open(o Options) (*Log, error) { return open(o, createFile) }

func open(o Options, create func(string) (sink, error)) (_ *Log, err error) {
	if err := o.normalize(); err != nil {
		return nil, err
	}
	if err := ensureDir(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Anchor), 0o700); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var key []byte
	if o.Paths == PathsHash {
		if key, err = loadKey(o.KeyFile); err != nil {
			return nil, err
		}
	}
	lock, err := lockSession(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	l := &Log{
		opts: o, lock: lock, limits: newLimits(&o), turn: newTurn(), room: infinite, timer: time.NewTimer(time.Hour),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	w := &writer{l: l, create: create, keeper: newKeeper(l)}
	l.writer = w
	last, err := w.resume()
	if err != nil {
		return nil, err
	}
	w.enc = newEncoder(o.Session, o.Paths, key, last)
	if err = w.begin(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err = w.drain(); err != nil {
		w.file.Close()
		return nil, fmt.Errorf("audit: %w", err)
	}
	w.extend()
	file, base, at := w.file, w.base, w.written
	w.lastAnchor, w.unanchored = time.Now(), false
	w.keeper.jobs <- func() { w.keeper.begin(file, base, at) }
	go w.keeper.run()
	go w.run()
	return l, nil
}

// lockSession excludes a second Log of the session, whose lines would fork the chain. The
// lock ends with the process.
func lockSession(o Options) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(o.Dir, "."+o.Session+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, &names.Error{Kind: names.Locked, Err: fmt.Errorf(
			"audit: session %s already has an open audit log: %w", o.Session, err)}
	}
	return f, nil
}

// resume finds the end of the session's chain, the first line that was not pruned, and
// the name of the next file.
func (w *writer) resume() (mark, error) {
	l := w.l
	a, err := readAnchor(l.opts.Anchor)
	if err != nil && !errors.Is(err, errBadAnchor) {
		return mark{}, err
	}
	w.previous = a
	if a != nil && a.Session == l.opts.Session {
		w.keptFrom = a.KeptFrom
	}
	list, err := listNames(l.opts.Dir, l.opts.Session)
	if err != nil {
		return mark{}, err
	}
	w.name = logName{session: l.opts.Session, start: nextStart(time.Now(), list)}
	// The newest readable header says which line is the first that is kept.
	for _, n := range slices.Backward(list) {
		line, err := firstLine(filepath.Join(l.opts.Dir, n.String()))
		if err != nil {
			return mark{}, err
		}
		if e, err := decode(line); err == nil {
			w.keptFrom = max(w.keptFrom, e.KeptFrom)
			break
		}
	}
	w.keptFrom = max(w.keptFrom, 1)
	last, err := endOf(paths(l.opts.Dir, list))
	if err != nil {
		return mark{}, err
	}
	if a != nil && a.Session == l.opts.Session {
		at, _ := a.mark()
		if at.seq > last.seq || at.seq == last.seq && at.hash != last.hash {
			return at, nil
		}
	}
	return last, nil
}

// endOf returns the mark of the last line in files, which are in the order of age, the oldest
// first. It is the zero mark if there is no line, or if the last one is no record. Only Verify
// checks the line's hash.
func endOf(paths []string) (mark, error) {
	for _, path := range slices.Backward(paths) {
		line, err := lastLine(path)
		if err != nil {
			return mark{}, err
		}
		if line == nil {
			continue // empty, or torn in its first line
		}
		s, err := parseSeal(line)
		if err != nil {
			return mark{}, nil
		}
		return s.mark, nil
	}
	return mark{}, nil
}

// ensureDir creates dir for the owner alone. It refuses a directory that others can write to,
// because they could replace the files.
func ensureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("audit: %w", err)
	case !info.IsDir():
		return errors.New("audit: " + names.Quote(dir) + " is not a directory")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		// Windows has no such bits; Go reports 0777 there.
		return errors.New("audit: directory " + names.Quote(dir) + " is writable by others")
	}
	return nil
}
