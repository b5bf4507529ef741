package audit

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
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

// DamageError is what Read returns when it delivered everything readable and
// some lines were not.
type DamageError struct {
	List []Damage // the first hundred
	More int      // how many there are beyond those
}

const maxDamage = 100

// Error names the first place.
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

// Read calls fn for each record in files that the filter selects, in the order
// of files (see Files) and of lines. It holds one line in memory at a time. A
// line that is no record, such as a last one that is torn, does not stop it: all
// other records are delivered, then a *DamageError tells. Files deleted since
// they were listed are skipped. An error of fn ends Read and is returned.
//
// Read does not verify anything. With f.Since it passes over a file whose
// successor was begun more than a minute before.
func Read(files []string, f Filter, fn func(Entry) error) error {
	if err := f.check(); err != nil {
		return err
	}
	damage := &DamageError{}
	for i, path := range files {
		if i+1 < len(files) && f.skips(path, files[i+1]) {
			continue
		}
		err := readFile(path, &f, fn, damage)
		if err != nil && !gone(err) {
			return err
		}
	}
	if len(damage.List) > 0 {
		return damage
	}
	return nil
}

// skips reports whether nothing in a file can be selected, judged by its name
// and by the first line of its successor.
func (f *Filter) skips(path, next string) bool {
	n, ok := parseName(strings.TrimSuffix(filepath.Base(path), sealedSuffix))
	if !ok {
		return false
	}
	if f.Session != "" && n.session != f.Session {
		return true
	}
	m, ok := parseName(strings.TrimSuffix(filepath.Base(next), sealedSuffix))
	if f.Since.IsZero() || !ok || m.session != n.session {
		return false
	}
	line, err := firstLine(next)
	if err != nil {
		return false
	}
	e, err := decode(line)
	// No record is younger than a header written after it, unless the clock
	// was set back in between: a minute of that is allowed for.
	return err == nil && e.Time.Add(time.Minute).Before(f.Since)
}

func readFile(path string, f *Filter, fn func(Entry) error, damage *DamageError) error {
	n := 0
	for line, err := range lines(path) {
		if n++; f.Stop != nil && n%stopEvery == 1 {
			if err := f.Stop(); err != nil {
				return err
			}
		}
		if err != nil && !unreadable(err) {
			return err
		}
		if err == nil && f.Denied && !bytes.Contains(line, deniedMark) {
			continue
		}
		var e Entry
		torn := errors.Is(err, errTorn)
		if err == nil {
			e, err = decode(line)
		}
		if err != nil {
			damage.add(Damage{File: path, Line: n, Torn: torn})
			continue
		}
		if !f.match(&e) {
			continue
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// deniedMark is in every refused record and can be in no string of another
// one, where its quotation marks would be escaped.
var deniedMark = []byte(`"verdict":"refused"`)
