package guard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Via is the front end an operation came through.
type Via uint8

// The front ends.
const (
	ViaFUSE Via = iota + 1
	ViaFiles
	ViaTools
	ViaControl
	// ViaNet is the gate of the network that a command of `rootsfs run` has: in audit
	// records only.
	ViaNet
)

func (v Via) String() string { return wordOf(v, "none", "fuse", "files", "tools", "control", "net") }

// Caller is who asks. UID, GID and PID are those of the requesting process
// where the front end knows them (the kernel tells; a JSON-RPC peer has none).
type Caller struct {
	Subject Subject
	Via     Via
	UID     uint32
	GID     uint32
	PID     int32
	// Umask is that of the requesting process, if the front end leaves it to package vfs to
	// apply: a directory with a default ACL ignores it.
	Umask uint32
	// Groups tells the caller's supplementary groups, which only some
	// operations ask for; nil: it has none.
	Groups func() []uint32
	// FileOwner is the owner of the files that the caller makes; nil: the caller.
	FileOwner *User
}

// User is a user and a group of the operating system.
type User struct{ UID, GID uint32 }

// InGroup reports whether the caller may act for the group: it is root, or a
// member.
func (c Caller) InGroup(gid uint32) bool {
	if c.UID == 0 || c.GID == gid {
		return true
	}
	return c.Groups != nil && slices.Contains(c.Groups(), gid)
}

// DefaultTimeout is how long an operation may take before it is answered with
// Timeout (R059).
const DefaultTimeout = 60 * time.Second

// Limits bound what a root's users may do. Zero means no limit, except for
// Timeout and MaxStage, where zero means DefaultTimeout and DefaultMaxStage.
type Limits struct {
	OpsPerSecond  float64       `json:"ops_per_second,omitempty" toml:"ops_per_second"` // sustained speed; more waits
	Burst         int           `json:"burst,omitempty" toml:"burst"`                   // operations that need not wait; default OpsPerSecond, at least 1
	BytesInFlight int64         `json:"bytes_in_flight,omitempty" toml:"bytes_in_flight"`
	MaxFile       int64         `json:"max_file,omitempty" toml:"max_file"`       // bytes; larger files cannot be made (EFBIG)
	MaxWritten    int64         `json:"max_written,omitempty" toml:"max_written"` // bytes over the grant's life (EDQUOT)
	MaxCreated    int64         `json:"max_created,omitempty" toml:"max_created"` // names over the grant's life (EDQUOT)
	MaxStage      int64         `json:"max_stage,omitempty" toml:"max_stage"`     // bytes that the store of a staged root takes (ENOSPC); 0: DefaultMaxStage
	Timeout       time.Duration `json:"timeout,omitempty" toml:"timeout"`
	Idle          time.Duration `json:"idle,omitempty" toml:"idle"`
}

// Policy is what a grant allows: rights, minus what the patterns take away,
// within the limits.
type Policy struct {
	Rights Rights `json:"mode"`
	Patterns
	Limits Limits `json:"limits"`
	// OtherFileSystems lets resolution cross mount points inside the root.
	OtherFileSystems bool `json:"cross_file_systems,omitempty"`
	// PosixFull lifts the hiding of special files and the stripping of
	// set-id bits and security attributes: a trusted user's choice.
	PosixFull bool `json:"posix_full,omitempty"`
	// Once grants one use of a single file; see once.go.
	Once bool `json:"once,omitempty"`
	// Trash keeps what is removed.
	Trash Trash `json:"trash,omitzero"`

	rules *ruleset // compiled from Patterns by the registry; nil: no name is judged
}

// timeout is how long one operation may take.
func (p *Policy) timeout() time.Duration {
	if p.Limits.Timeout > 0 {
		return p.Limits.Timeout
	}
	return DefaultTimeout
}

// Grant is an approval: a root, where it lies, what is allowed there, for how
// long and for whom. In JSON it is what the owner asks a session for.
type Grant struct {
	Root RootName `json:"name"`
	// Dir is the host path as it was asked for, absolute. After approval
	// Resolved tells what it led to.
	Dir      string    `json:"path"`
	Resolved string    `json:"-"`
	Policy   Policy    `json:"policy"`
	Expires  time.Time `json:"expires,omitzero"` // zero: with the session
	Subject  Subject   `json:"subject,omitempty"`
	Origin   string    `json:"approved_by,omitempty"` // "command line", "configuration", "control", ...
	// AllowSystem permits this root to be writable although it is a system directory.
	// AllowRootDir permits it to be "/". In Rules, the same fields are for all roots.
	AllowSystem  bool `json:"allow_system,omitempty"`
	AllowRootDir bool `json:"allow_root_dir,omitempty"`
	// Implicit marks a root that a command needs to run at all, such as its
	// interpreter: servers are not told of it, though they may read it.
	Implicit bool `json:"-"`
	// Store is the directory with the changes of a staged root. Where it is "", Opener.Stage
	// chooses one, and sets it.
	Store string `json:"-"`
}

// with returns the rules for one grant: what the grant allows itself counts as allowed.
func (r Rules) with(g *Grant) Rules {
	r.AllowSystem = r.AllowSystem || g.AllowSystem
	r.AllowRootDir = r.AllowRootDir || g.AllowRootDir
	return r
}

// isWider reports whether got allows anything that ask did not: another root or
// subject, more rights, fewer patterns, higher limits, a later end.
func isWider(ask, got *Grant) bool {
	a, b := &ask.Policy, &got.Policy
	switch {
	case got.Root != ask.Root, got.Dir != ask.Dir, got.Resolved != ask.Resolved,
		got.Subject != ask.Subject && ask.Subject != "":
		return true
	case got.AllowSystem && !ask.AllowSystem, got.AllowRootDir && !ask.AllowRootDir:
		return true
	case b.Rights == 0, b.Rights.WiderThan(a.Rights),
		b.OtherFileSystems && !a.OtherFileSystems, b.PosixFull && !a.PosixFull,
		a.Once && !b.Once, a.Trash.On && !b.Trash.On:
		return true
	case a.Patterns.allowsLess(&b.Patterns):
		return true
	case !ask.Expires.IsZero() && (got.Expires.IsZero() || got.Expires.After(ask.Expires)):
		return true
	}
	return b.Limits.exceed(&a.Limits)
}

// exceed reports whether a limit is higher than the one that was asked for, or is lifted.
func (l *Limits) exceed(asked *Limits) bool {
	got, ask := reflect.ValueOf(l).Elem(), reflect.ValueOf(asked).Elem()
	for i := range got.NumField() {
		a, b := ask.Field(i), got.Field(i)
		if a.CanFloat() && isMore(a.Float(), b.Float()) || a.CanInt() && isMore(a.Int(), b.Int()) {
			return true
		}
	}
	return false
}

// isMore reports whether a limit is higher than what was asked for. 0 is no limit.
func isMore[T int64 | float64](asked, given T) bool {
	return asked > 0 && (given <= 0 || given > asked)
}

// Subject is the server a grant is for; "" is every caller of the session. A server with
// several sessions at a time has a subject for each of them (see InSession).
type Subject string

// MaxSubject bounds a subject's name (Named), in bytes, as that of a root is bounded.
const MaxSubject = 255

// Named reports whether a person can recognise the subject by this name, and take it for no
// other: it has 1 to 255 bytes of UTF-8, of which every character is visible (names.Shows),
// has no space at either end, and is not "*", which stands for all. A registry takes any
// text; a front end that lets strangers choose a name checks it.
func (s Subject) Named() bool {
	text := string(s)
	return text != "" && len(text) <= MaxSubject && text != "*" && names.Shows(text) && text == strings.TrimSpace(text)
}

// inSession stands between the name of a subject and the number of its session.
const inSession = "#"

// InSession is the subject's n-th session, a subject too. A grant to the subject is a grant
// to all its sessions; a grant to one session is for that session only. Quotas, the
// counting of refusals and suspension are the subject's, so that a new session does not
// reset them. A subject without a name has no sessions.
func (s Subject) InSession(n uint64) Subject {
	if s == "" {
		return s
	}
	return Subject(fmt.Sprintf("%s%s%d", s.WithoutSession(), inSession, n))
}

// WithoutSession is the subject whose session this is, or the subject itself.
func (s Subject) WithoutSession() Subject {
	if i := strings.LastIndex(string(s), inSession); i > 0 {
		return s[:i]
	}
	return s
}

// Covers reports whether what is granted to s is granted to who.
func (s Subject) Covers(who Subject) bool {
	return s == "" || s == who || len(who) > len(s) && who.WithoutSession() == s
}

// isNarrowerThan reports whether s is one of several subjects that other stands for.
func (s Subject) isNarrowerThan(other Subject) bool { return s != other && other.Covers(s) }
