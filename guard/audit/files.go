package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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
	compressed bool
}

// base is the file's name as it is on disk.
func (e logEntry) base() string {
	if e.compressed {
		return e.String() + compressedSuffix
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

// nameOf is the parsed name of the file at path, compressed or not.
func nameOf(path string) (logName, bool) {
	return parseName(strings.TrimSuffix(filepath.Base(path), compressedSuffix))
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
	return paths(dir, list), nil
}

func paths(dir string, list []logEntry) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = filepath.Join(dir, e.base())
	}
	return out
}

// listNames lists files. Where a crash left one beside its compressed copy, the copy
// is listed: it is whole, because it got its name when it was synced.
func listNames(dir, session string) ([]logEntry, error) {
	list, err := listAll(dir, session)
	return slices.CompactFunc(list, func(a, b logEntry) bool { return a.logName == b.logName }), err
}

// listAll is listNames with the files that have compressed copies, after these.
func listAll(dir, session string) ([]logEntry, error) {
	entries, err := readDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var list []logEntry
	for _, e := range entries {
		if session != "" && !strings.HasPrefix(e.Name(), session+"-") {
			continue // quickly: there may be thousands of others
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

// gone reports whether err says that a file was removed.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
