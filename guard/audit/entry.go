package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Entry is one decoded line. Fields the line does not have are zero.
type Entry struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Subject string    `json:"subject,omitempty"`
	Via     string    `json:"via,omitempty"`
	UID     *uint32   `json:"uid,omitempty"` // nil: unknown
	PID     int32     `json:"pid,omitempty"`
	// Op is the name of a guard.Op; "session" in the header of a file, "lost"
	// where records could not be taken, "summed" in a sum.
	Op string `json:"op"`

	Root     string `json:"root,omitempty"`
	Path     string `json:"path,omitempty"` // "" is the root itself, or not written
	RawPath  []byte `json:"raw_path,omitempty"`
	PathHash string `json:"path_hash,omitempty"`
	// PathSHA256 is the SHA-256 of the whole path where Path was cut.
	PathSHA256 string `json:"path_sha256,omitempty"`
	Root2      string `json:"root2,omitempty"` // "" is Root
	Path2      string `json:"path2,omitempty"`
	RawPath2   []byte `json:"raw_path2,omitempty"`
	Path2Hash  string `json:"path2_hash,omitempty"`
	// Path2SHA256 is that of the second path.
	Path2SHA256 string `json:"path2_sha256,omitempty"`

	Rights      string `json:"rights,omitempty"`
	Verdict     string `json:"verdict,omitempty"` // allowed, refused, failed
	Kind        string `json:"kind,omitempty"`
	Errno       string `json:"errno,omitempty"`        // a name, as in EROFS
	ErrnoNumber int    `json:"errno_number,omitempty"` // of the platform that wrote it
	Read        int64  `json:"read,omitempty"`         // bytes
	Written     int64  `json:"written,omitempty"`      // bytes
	DurationUS  int64  `json:"duration_us,omitempty"`  // microseconds
	Detail      string `json:"detail,omitempty"`
	DetailHash  string `json:"detail_hash,omitempty"`

	// Count is how many records of the same kind this one stands for, from Time to
	// Last; 0 is one. Read and DurationUS are those of all.
	Count int64     `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`
	// Closed is how many of the opens are closed already; Read and Written are what
	// passed through them.
	Closed int64 `json:"closed,omitempty"`
	// Kinds and Ops say of what a sum consists: Count refusals or failures of a
	// subject that had too many to be written one by one. All else is that of the
	// first of them, as a sample.
	Kinds map[string]int64 `json:"kinds,omitempty"`
	Ops   map[string]int64 `json:"ops,omitempty"`

	// Of headers.
	Format        int    `json:"format,omitempty"`
	File          string `json:"file,omitempty"`
	Paths         string `json:"paths,omitempty"`
	KeptFrom      uint64 `json:"kept_from,omitempty"`
	AnchorSeq     uint64 `json:"anchor_seq,omitempty"`
	AnchorHash    string `json:"anchor_hash,omitempty"`
	AnchorSession string `json:"anchor_session,omitempty"`

	Lost      uint64 `json:"lost,omitempty"` // of op "lost": how many records
	Truncated bool   `json:"truncated,omitempty"`
	Prev      string `json:"prev"`
	Hash      string `json:"hash"`

	// Line is the line as it was written, without the newline. It is valid
	// only until the function it was passed to returns.
	Line []byte `json:"-"`
}

// Name is the first path byte for byte; it may not be UTF-8.
func (e *Entry) Name() string { return exact(e.Path, e.RawPath) }

// Name2 is Name for the second path.
func (e *Entry) Name2() string { return exact(e.Path2, e.RawPath2) }

// root2 is the root of the second path.
func (e *Entry) root2() string {
	if e.Root2 == "" && (e.Path2 != "" || e.RawPath2 != nil) {
		return e.Root
	}
	return e.Root2
}

func exact(lossy string, raw []byte) string {
	if raw != nil {
		return string(raw)
	}
	return lossy
}

func decode(line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, err
	}
	if e.Seq == 0 || e.Op == "" {
		return Entry{}, errors.New("not an audit record")
	}
	e.Line = line
	return e, nil
}

// Filter selects entries: those that meet every condition that is set. The
// zero Filter selects all, headers included.
type Filter struct {
	Since   time.Time // at or after
	Until   time.Time // before
	Root    string    // either root
	Session string
	Subject string
	Op      string // also where a close is in the record of its open
	Denied  bool   // refused only
	// Path is a glob in which ** stands for any number of elements, judged on
	// either path, root-relative or with the root's name before it, or, if it
	// has no slash, on the path's last element or the name of a root itself. A
	// path that was not written in full is matched by its root's name alone.
	Path string
	// Stop, unless nil, is asked now and then, also where nothing is selected: an
	// error ends the reading and is returned.
	Stop func() error
}

// stopEvery is how many lines are read between two questions of Filter.Stop.
const stopEvery = 256

// check reports a pattern that cannot be judged.
func (f *Filter) check() error {
	if f.Path != "" && !doublestar.ValidatePattern(f.Path) {
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"audit: pattern %s is malformed", names.Quote(f.Path))}
	}
	if names.GlobForms(f.Path) > names.MaxGlobForms {
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"audit: the braces of pattern %s stand for more than %d patterns: search for fewer at a time", names.QuoteShort(f.Path), names.MaxGlobForms)}
	}
	return nil
}

func (f *Filter) match(e *Entry) bool {
	switch {
	case !f.Since.IsZero() && e.Time.Before(f.Since):
	case !f.Until.IsZero() && !e.Time.Before(f.Until):
	case f.Root != "" && e.Root != f.Root && e.Root2 != f.Root:
	case f.Session != "" && e.Session != f.Session:
	case !guard.Subject(e.Subject).Of(guard.Subject(f.Subject)):
	case f.Op != "" && !e.has(f.Op):
	case f.Denied && e.Verdict != "refused":
	case f.Path != "" && !globs(f.Path, e.Root, e.Name()) && !globs(f.Path, e.root2(), e.Name2()):
	default:
		return true
	}
	return false
}

// has reports whether an operation is among what the entry stands for.
func (e *Entry) has(op string) bool {
	return e.Op == op || op == closeOp && e.Closed > 0 || e.Ops[op] > 0
}

var closeOp = names.OpClose.String()

// Times is how many records the entry stands for, the closes in it not counted.
func (e *Entry) Times() int64 { return max(e.Count, 1) }

// globs judges a pattern on a path, with and without its root.
func globs(pattern, root, name string) bool {
	if name == "" {
		return root != "" && pattern == root
	}
	if !strings.Contains(pattern, "/") && pattern != "**" {
		return matches(pattern, path.Base(name))
	}
	return matches(pattern, name) || matches(pattern, root+"/"+name)
}

func matches(pattern, name string) bool {
	ok, err := doublestar.Match(pattern, name)
	return ok && err == nil
}
