package audit

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Entry is one decoded line. Fields the line does not have are zero.
type Entry struct {
	Seq     uint64        `json:"seq"`               // number of the record
	Time    time.Time     `json:"time"`              // time of the operation
	Session names.Foreign `json:"session"`           // name of the session
	Subject names.Foreign `json:"subject,omitempty"` // server, if it has a name
	Via     names.Foreign `json:"via,omitempty"`     // front: fuse, files, tools, control or net
	UID     *uint32       `json:"uid,omitempty"`     // user id; left out: unknown
	PID     int32         `json:"pid,omitempty"`     // process id
	Op      names.Foreign `json:"op"`                // operation; also `session` (first line), `lost` and `summed`

	Root        names.Foreign `json:"root,omitempty"`         // name of the root
	Path        names.Foreign `json:"path,omitempty"`         // path in the root; empty: the root itself
	RawPath     []byte        `json:"raw_path,omitempty"`     // the path in base64, if it is not UTF-8
	PathHash    names.Foreign `json:"path_hash,omitempty"`    // hash of the path, with `audit_paths = "hash"`
	PathSHA256  string        `json:"path_sha256,omitempty"`  // SHA-256 of the whole path, where `path` was cut
	Root2       names.Foreign `json:"root2,omitempty"`        // root of the second path; left out: the same
	Path2       names.Foreign `json:"path2,omitempty"`        // second path, of renames and links
	RawPath2    []byte        `json:"raw_path2,omitempty"`    // the second path in base64
	Path2Hash   names.Foreign `json:"path2_hash,omitempty"`   // hash of the second path
	Path2SHA256 string        `json:"path2_sha256,omitempty"` // SHA-256 of the whole second path

	Rights      names.Foreign `json:"rights,omitempty"`       // rights that the operation needs
	Verdict     names.Foreign `json:"verdict,omitempty"`      // `allowed`, `refused` or `failed`
	Kind        names.Foreign `json:"kind,omitempty"`         // kind of refusal
	Errno       names.Foreign `json:"errno,omitempty"`        // error by name, as `EROFS`
	ErrnoNumber int           `json:"errno_number,omitempty"` // error by number, on the platform that wrote it
	Read        int64         `json:"read,omitempty"`         // bytes read
	Written     int64         `json:"written,omitempty"`      // bytes written
	DurationUS  int64         `json:"duration_us,omitempty"`  // duration in microseconds
	Detail      names.Foreign `json:"detail,omitempty"`       // for people: the rule that refused, where a link leads, and the like
	DetailHash  string        `json:"detail_hash,omitempty"`  // hash of the detail

	Dir        names.Foreign `json:"dir,omitempty"`         // of grants, changes and ends of a root: its directory or file on the host
	Origin     names.Foreign `json:"origin,omitempty"`      // who granted the root: `command line`, `configuration`, `consent` and the like; of the orders of a fleet, the key of their owner
	Effect     names.Foreign `json:"effect,omitempty"`      // of a refusal by a rule: `hide`, `deny` or `protect`
	Rule       names.Foreign `json:"rule,omitempty"`        // the pattern of that rule
	RuleFrom   names.Foreign `json:"rule_from,omitempty"`   // where that rule comes from: `built in`, `command line` or a file
	RuleLine   int           `json:"rule_line,omitempty"`   // its line in that file
	Point      names.Foreign `json:"point,omitempty"`       // of `mount` and `unmount`: the mountpoint; left out: none
	Level      names.Foreign `json:"level,omitempty"`       // of `run`: how the command is confined
	Host       names.Foreign `json:"host,omitempty"`        // of a connection or a request: the name or address; of a grant or its end: the rules of `--net` and the secrets
	Port       int           `json:"port,omitempty"`        // the port; left out: a name was looked up, or `host` holds rules
	ServerName names.Foreign `json:"server_name,omitempty"` // what TLS asked for, if that was not the host
	NoRule     bool          `json:"no_rule,omitempty"`     // refused because no rule of `--net` permits the host
	Program    names.Foreign `json:"program,omitempty"`     // path of the program that connected
	Secret     names.Foreign `json:"secret,omitempty"`      // of a request: the name of the secret that it uses
	Method     names.Foreign `json:"method,omitempty"`      // of a request; left out: the program has refused the TLS handshake
	URLPath    names.Foreign `json:"url_path,omitempty"`    // of a request, without its query; cut off if it is long
	Status     int           `json:"status,omitempty"`      // of the answer to a request; left out: there was none
	SecretRule names.Foreign `json:"secret_rule,omitempty"` // the rule of the secret that would allow a request that none allows
	Cause      names.Foreign `json:"cause,omitempty"`       // of `pause` and of its `resume`: `owner` or `lease`
	Reason     names.Foreign `json:"reason,omitempty"`      // of `pause`: why

	Count  int64            `json:"count,omitempty"`  // how many equal records this one stands for; left out: one
	Last   time.Time        `json:"last,omitzero"`    // time of the last of them
	Closed int64            `json:"closed,omitempty"` // how many of its opens are closed already
	Kinds  map[string]int64 `json:"kinds,omitempty"`  // of `summed`: how many refusals of each kind
	Ops    map[string]int64 `json:"ops,omitempty"`    // of `summed`: how many of each operation

	Format        int    `json:"format,omitempty"`         // first line: version of the format
	File          string `json:"file,omitempty"`           // first line: name of the file
	Paths         string `json:"paths,omitempty"`          // first line: how paths are written
	KeptFrom      uint64 `json:"kept_from,omitempty"`      // first line: number of the oldest record that is kept
	AnchorSeq     uint64 `json:"anchor_seq,omitempty"`     // first line: number of the record before
	AnchorHash    string `json:"anchor_hash,omitempty"`    // first line: hash of the record before
	AnchorSession string `json:"anchor_session,omitempty"` // first line: session of the record before

	Lost      uint64 `json:"lost,omitempty"`      // of `lost`: how many records could not be written
	Truncated bool   `json:"truncated,omitempty"` // the record was shortened
	Prev      string `json:"prev"`                // hash of the record before
	Hash      string `json:"hash"`                // hash of this record

	// FileFormat is the format of the file in which Read found the line: Format of the file's
	// header. Follow does not set it.
	FileFormat int `json:"-"`

	// Line is the line as it was written, without the newline. It is valid
	// only until the function it was passed to returns.
	Line []byte `json:"-"`
}

// LacksFacts reports whether Read found the entry in a file of an earlier version, which
// wrote guard.Facts only into Detail.
func (e *Entry) LacksFacts() bool { return e.FileFormat > 0 && e.FileFormat < factsFormat }

// Name returns the first path byte for byte, as far as it was written. It need not be UTF-8.
func (e *Entry) Name() names.Foreign { return exact(e.Path, e.RawPath) }

// Name2 is Name for the second path.
func (e *Entry) Name2() names.Foreign { return exact(e.Path2, e.RawPath2) }

// root2 returns the root of the second path.
func (e *Entry) root2() names.Foreign {
	if e.Root2 == "" && (e.Path2 != "" || e.RawPath2 != nil) {
		return e.Root
	}
	return e.Root2
}

func exact(lossy names.Foreign, raw []byte) names.Foreign {
	if raw != nil {
		return names.Foreign(raw)
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

// ParseLine decodes a line that comes from elsewhere. It refuses a line whose JSON fields seq, prev
// and hash differ from the text at the fixed places that Verify reads. Entry.Line is the line
// itself, not a copy.
func ParseLine(line []byte) (Entry, error) {
	e, err := decode(line)
	if err != nil {
		return Entry{}, err
	}
	s, err := parseSeal(line)
	if err == nil && (s.seq != e.Seq || hex.EncodeToString(s.prev[:]) != e.Prev || hex.EncodeToString(s.hash[:]) != e.Hash) {
		err = errors.New("audit: line with two numbers or hashes")
	}
	return e, err
}

// Filter selects the entries that meet all of its conditions. The zero Filter selects all
// entries, headers included.
type Filter struct {
	Since   time.Time // at or after
	Until   time.Time // before
	Root    string    // either root
	Session string
	Subject string
	Op      string // "close" also selects the record of an open that counts its close
	Denied  bool   // refused only
	// Path is a glob, in which ** stands for any number of elements. One of the entry's two
	// paths has to match, with or without the root's name before it. A glob without a slash
	// has to match the last element of a path, or be the name of a root, for the root itself.
	// If paths were not written in full, only the name of the root can match.
	Path string
	// After has numbers of records, by session. Records up to these are passed over, and files
	// that hold no others are not read.
	After map[string]uint64
	// Stop, unless nil, is called by Read now and then, even while no entry is selected. An
	// error that it returns ends Read, and Read returns it. Follow does not call Stop.
	Stop func() error
}

// stopEvery is how many lines are read between two calls of Filter.Stop.
const stopEvery = 256

// check returns an error if Path is no valid glob.
func (f *Filter) check() error {
	if err := pattern.Glob(f.Path).Check(); err != nil {
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf("audit: %s %w; the syntax is * ? [a-z] {a,b} **", names.QuoteShort(f.Path), err)}
	}
	return nil
}

func (f *Filter) match(e *Entry) bool {
	switch {
	case e.Seq <= f.After[e.Session.Raw()]:
	case !f.Since.IsZero() && e.Time.Before(f.Since):
	case !f.Until.IsZero() && !e.Time.Before(f.Until):
	case f.Root != "" && e.Root.Raw() != f.Root && e.Root2.Raw() != f.Root:
	case f.Session != "" && e.Session.Raw() != f.Session:
	case !guard.Subject(f.Subject).Covers(guard.Subject(e.Subject)):
	case f.Op != "" && !e.has(f.Op):
	case f.Denied && e.Verdict != "refused":
	case f.Path != "" && !globMatches(pattern.Glob(f.Path), e.Root.Raw(), e.Name().Raw()) && !globMatches(pattern.Glob(f.Path), e.root2().Raw(), e.Name2().Raw()):
	default:
		return true
	}
	return false
}

// has reports whether the entry stands for an operation of this name.
func (e *Entry) has(op string) bool {
	return e.Op.Raw() == op || op == closeOp && e.Closed > 0 || e.Ops[op] > 0
}

var closeOp = names.OpClose.String()

// Times returns how many records the entry stands for, the closes in it not counted.
func (e *Entry) Times() int64 { return max(e.Count, 1) }

// globMatches reports whether a glob matches a path, with or without its root's name.
func globMatches(glob pattern.Glob, root, name string) bool {
	if name == "" {
		return root != "" && string(glob) == root
	}
	if !strings.Contains(string(glob), "/") && glob != "**" {
		return glob.Match(path.Base(name))
	}
	return glob.Match(name) || glob.Match(root+"/"+name)
}
