package control

import (
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The bodies of requests and answers. Field names are what --json shows, so
// they are only ever added to.

// Root is what the owner sees of a root.
type Root struct {
	Name      string     `json:"name"`
	Path      string     `json:"path"`          // as it was asked for
	Resolved  string     `json:"resolved"`      // what that led to
	Mode      string     `json:"mode"`          // ro, rw or a comma list of rights
	State     string     `json:"state"`         // live, unavailable, ...
	Why       string     `json:"why,omitempty"` // it is unavailable, and what to do
	File      bool       `json:"file,omitempty"`
	FSType    string     `json:"fs_type"`
	Remote    bool       `json:"remote,omitempty"` // changes there are not reported: one-second timeouts
	Perm      string     `json:"permissions,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	LastUse   *time.Time `json:"last_use,omitempty"`
	Origin    string     `json:"approved_by"`
	Epoch     uint64     `json:"epoch"`
	InFlight  int64      `json:"in_flight"`
	Ops       int64      `json:"ops"`
	Refused   int64      `json:"refused"`
	BytesRead int64      `json:"bytes_read"`
	Written   int64      `json:"bytes_written"`
	Created   int64      `json:"names_created"`
	// Subject is the one server the root is for, "" for every one; Limits are
	// what Written and Created, among others, are bounded by.
	// SharedBy is who else has the root than one client of Subject: it was allowed to
	// a request without a session (MCP 2026-07-28).
	Subject  string       `json:"subject,omitempty"`
	SharedBy string       `json:"shared_by,omitempty"`
	Limits   guard.Limits `json:"limits"`
	Nested   []string     `json:"nested,omitempty"` // directories inside judged apart: other roots, or revoked ones
	// Repos are directories of repositories created by the root's users, ""
	// for the root itself: their hooks and configuration are untrusted. That of
	// a bare one is itself listed, as are .git/modules/NAME and
	// .git/worktrees/NAME in a repository that somebody else made.
	Repos []names.Foreign `json:"created_repositories,omitempty"`
	// Lifted says what of the built-in protections is not in force.
	Lifted string `json:"lifted_protections,omitempty"`
	// Once says of a root for one use of a file whether that is "unused" or
	// "in use"; left out of any other root.
	Once string `json:"once,omitempty"`
	// Trash says how much of what is removed is kept; left out if nothing is.
	Trash *guard.Trash `json:"trash,omitempty"`
	// Free is what the owner may still write to the root's file system, in
	// bytes; left out if it is not known.
	Free *int64 `json:"free_bytes,omitempty"`
}

// Status is the whole session.
type Status struct {
	Session  string    `json:"session"`
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Point    string    `json:"mountpoint"`
	Cache    string    `json:"cache"`
	Locks    string    `json:"locks"`
	Posix    string    `json:"posix"`
	ReadOnly bool      `json:"read_only"`
	Profile  string    `json:"profile,omitempty"`
	// Config is the configuration file that is watched; ConfigError says why
	// its present state is not in force.
	Config      string `json:"config,omitempty"`
	ConfigError string `json:"config_error,omitempty"`
	// Mounted is false once the mount has left the tree; the daemon then
	// stays until the last holder of something in it is gone.
	Mounted bool `json:"mounted"`
	// Stale: this is no session, but what a dead daemon left mounted at Point. No
	// session says that of itself; rootsfs status adds them.
	Stale   bool   `json:"stale,omitempty"`
	Audit   string `json:"audit_file,omitempty"`
	AuditOK bool   `json:"audit_ok"`
	Roots   []Root `json:"roots"`
	// Unwatched names roots (or directories in them) whose changes on the
	// host nobody reports, so that the kernel keeps what it knows for one
	// second only.
	Unwatched []string `json:"unwatched,omitempty"`
	// Watches counts directories whose changes are reported, in all mounts of the
	// session, WatchesRefused the times a watch could not be had
	// (fs.inotify.max_user_watches); those directories have one-second timeouts too.
	Watches        int64 `json:"watched_directories"`
	WatchesRefused int64 `json:"watches_refused"`
	// Stuck counts the directories that a program keeps the kernel from taking
	// changes of, at this moment: it has begun to read them and does not end.
	Stuck int `json:"stuck_directories,omitempty"`
	// Mounts are the further mounts, each for one server.
	Mounts []SubjectMount `json:"mounts,omitempty"`
	// Files are the servers that are served over files/*, Questions how many
	// of their questions wait for `rootsfs consent`.
	Files     []broker.Stats `json:"files"`
	Questions int            `json:"questions"`
	// Denials is how many denials are remembered: rootsfs consent denials.
	Denials int `json:"denials"`
	// Subjects are the servers that have a quota of their own, and what they
	// have used of it.
	Subjects []Quota `json:"subjects,omitempty"`
	// Suspended are the servers that were refused too often; everything they
	// ask for is refused until rootsfs resume.
	Suspended []Suspended `json:"suspended,omitempty"`
	Process   Process     `json:"process"`
	// Server is what `rootsfs run` started; left out in other sessions.
	Server *Confined `json:"server,omitempty"`
	// Sockets are those of the host's that it may connect to.
	Sockets []Socket `json:"sockets,omitempty"`
	// Recent are the last operations on record, the newest first.
	Recent []Operation `json:"recent"`
}

// Confined is the program that `rootsfs run` started in its session.
type Confined struct {
	Command []string  `json:"command"`
	PID     int       `json:"pid"` // as the host sees it
	Started time.Time `json:"started"`
	UID     uint32    `json:"uid"`
	// Confinement is the level reached: namespaces, bubblewrap, landlock or
	// none; Layers what it is made of, Holes what it does not stop.
	Confinement string   `json:"confinement"`
	Layers      []Layer  `json:"layers"`
	Holes       []string `json:"holes"`
	Map         string   `json:"map"` // same or flat
	Net         bool     `json:"net"`
	// Notes are limits of what it sees. A root that is granted later appears in
	// the directories of Follows, and does not in those of Closed otherwise; those
	// of Fixed it sees and cannot write to, before it is started anew.
	Notes   []string `json:"notes,omitempty"`
	Follows []string `json:"follows,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	Fixed   []string `json:"fixed,omitempty"`
	// PrivateBytes is what its private HOME, /tmp and the like hold in memory; 0: they
	// are on disk.
	PrivateBytes int64 `json:"private_bytes,omitempty"`
	// Interpreters are the roots that were granted so that the command runs.
	Interpreters []string `json:"interpreters,omitempty"`
}

// Socket is a socket of the host's that the command of `rootsfs run` may connect to.
type Socket struct {
	Name   string `json:"name"` // as `rootsfs revoke` takes it
	Path   string `json:"path"`
	Inside string `json:"inside"` // where the command finds it
}

// Layer is one layer of a server's confinement.
type Layer struct {
	Name   string `json:"name"`
	State  string `json:"state"` // on, off or not available
	Detail string `json:"detail,omitempty"`
}

// Operation is one record of the audit log, in short.
type Operation struct {
	Time    time.Time `json:"time"`
	Op      string    `json:"op"`
	Path    string    `json:"path"`
	Via     string    `json:"via"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Detail  string    `json:"detail,omitempty"` // of a link that was refused: where it leads
	PID     int32     `json:"pid,omitempty"`
}

// Quota is what a server has used of its quota, in all its roots together, while
// the session lives. A limit of 0 is none.
type Quota struct {
	Subject    string `json:"subject"`
	Written    int64  `json:"bytes_written"`
	MaxWritten int64  `json:"max_written"`
	Created    int64  `json:"names_created"`
	MaxCreated int64  `json:"max_created"`
	MaxFile    int64  `json:"max_file"`
}

// Suspended is one server that is suspended; "" is whoever has no name.
type Suspended struct {
	Subject string    `json:"subject"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why"`
}

// ResumeRequest lets suspended servers go on: the named one, or all.
type ResumeRequest struct {
	Subject string `json:"subject,omitempty"`
	All     bool   `json:"all,omitempty"`
}

// ResumeAnswer tells who goes on.
type ResumeAnswer struct {
	Resumed []string `json:"resumed"`
}

// Process are the daemon's own figures, zero where the system does not tell.
type Process struct {
	CPU      float64 `json:"cpu_seconds"`
	FDs      int     `json:"open_descriptors"`
	FDLimit  uint64  `json:"descriptor_limit"`
	Resident int64   `json:"resident_bytes"`
	// Sums over the roots there are now.
	InFlight int64 `json:"in_flight"`
	Ops      int64 `json:"ops"`
	Refused  int64 `json:"refused"`
	Read     int64 `json:"bytes_read"`
	Written  int64 `json:"bytes_written"`
}

// Ask is one root to be added.
type Ask struct {
	Name    string       `json:"name"`
	Path    string       `json:"path"` // absolute
	Mode    string       `json:"mode"`
	Expires *time.Time   `json:"expires,omitempty"`
	Limits  guard.Limits `json:"limits"`
	guard.Patterns
	Subject   string `json:"subject,omitempty"` // the one server it is for; "": every one
	OtherFS   bool   `json:"cross_file_systems,omitempty"`
	PosixFull bool   `json:"posix_full,omitempty"`
	Once      bool   `json:"once,omitempty"` // one use of a single file
	// Trash keeps what is removed.
	Trash guard.Trash `json:"trash,omitzero"`
	// AllowSystem lets a system directory be writable, AllowRootDir "/" be a root.
	AllowSystem  bool   `json:"allow_system,omitempty"`
	AllowRootDir bool   `json:"allow_root_dir,omitempty"`
	ApprovedBy   string `json:"approved_by,omitempty"`
}

// AddRequest adds roots, all of them or none.
type AddRequest struct {
	Roots []Ask `json:"roots"`
}

// AddAnswer tells what was granted.
type AddAnswer struct {
	Roots []Root `json:"roots"`
}

// RevokeRequest ends roots: the named ones, those that are for one server alone,
// or all.
type RevokeRequest struct {
	Names   []string `json:"names,omitempty"`
	All     bool     `json:"all,omitempty"`
	Subject string   `json:"subject,omitempty"`
}

// Ended reports one root's ending. Error is empty when everything that was
// handed out is dead, and otherwise says what could not be taken back.
type Ended struct {
	Root   string  `json:"root"`
	State  string  `json:"state"`
	TookMS float64 `json:"took_ms"`
	Error  string  `json:"error,omitempty"`
}

// RevokeAnswer tells how the endings went.
type RevokeAnswer struct {
	Ended []Ended `json:"ended"`
}

// SetRequest changes a root's mode.
type SetRequest struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
}

// RenewRequest gives a root another end: a time, or so many milliseconds from
// now, or that of the session. Without any of them it lasts once more for as long
// as it was granted for.
type RenewRequest struct {
	Name    string     `json:"name"`
	Expires *time.Time `json:"expires,omitempty"`
	ForMS   int64      `json:"for_ms,omitempty"`
	Session bool       `json:"session,omitempty"`
}

// SetAnswer is the root after the change.
type SetAnswer struct {
	Root Root `json:"root"`
}

// ProfileRequest switches to another set of roots of the configuration.
type ProfileRequest struct {
	Profile string `json:"profile"`
}

// ProfileAnswer tells what the switch changed.
type ProfileAnswer struct {
	Profile string   `json:"profile"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Changed []string `json:"changed"`
}

// Question is what a server asks consent for, as data and as text with every
// foreign character made visible.
type Question struct {
	broker.Question
	Heading string   `json:"heading"` // who asks, and why
	Lines   []string `json:"lines"`   // one for each item
}

// QuestionsAnswer lists the questions that wait, the oldest first.
type QuestionsAnswer struct {
	Questions []Question `json:"questions"`
}

// WaitingAnswer is a line of the stream of questions.
type WaitingAnswer struct {
	QuestionsAnswer
	DenialsAnswer
}

// AnswerRequest decides a question: the one with the id, or the only one whose
// id begins so. All denies every question that waits.
type AnswerRequest struct {
	ID      string `json:"id,omitempty"`
	All     bool   `json:"all,omitempty"`
	Approve bool   `json:"approve,omitempty"`
	// Only are the items to be allowed, counted from 1; none stands for all.
	Only []int `json:"only,omitempty"`
	// Path and Mode are narrower than asked. ForMS is how long, in
	// milliseconds; 0: as long as the session. IdleMS is for how long nothing
	// may use the root before it ends, likewise; 0: that does not end it.
	Path   string `json:"path,omitempty"`
	Mode   string `json:"mode,omitempty"`
	ForMS  int64  `json:"for_ms,omitempty"`
	IdleMS int64  `json:"idle_ms,omitempty"`
	// Remember denies what the same server asks for there, and below, without a
	// question, while the session lives (see Denial). It goes with the denial of
	// one question.
	Remember bool `json:"remember,omitempty"`
}

// Answered tells what was decided of a question; paths are escaped.
type Answered struct {
	ID      string   `json:"id"`
	Allowed []string `json:"allowed"`
	Denied  []string `json:"denied"`
}

// AnswerAnswer tells of each question that was answered.
type AnswerAnswer struct {
	Answered []Answered `json:"answered"`
}

// UnmountAnswer tells how the session ended.
type UnmountAnswer struct {
	Ended []Ended `json:"ended"`
	// Held: somebody still holds something in the mount. It refuses
	// everything; the daemon stays until the last holder is gone.
	Held bool `json:"held"`
}

// Refusal is something that was refused, and what would allow it.
type Refusal struct {
	Time   time.Time `json:"time"`
	Op     string    `json:"op"`
	Path   string    `json:"path"`
	Reason string    `json:"reason"`
	UID    uint32    `json:"uid"`
	PID    int32     `json:"pid"`
	// Remedy is "set" (give root Root the mode Mode), "grant" (approve the
	// directory Dir again) or "" (no root or right would help).
	Remedy string `json:"remedy,omitempty"`
	Root   string `json:"root,omitempty"`
	Mode   string `json:"mode,omitempty"`
	Dir    string `json:"dir,omitempty"`
	Ask    *Ask   `json:"ask,omitempty"` // what to add, when Remedy is "grant"
	// ForMS is how long the grant was to last, in milliseconds; 0: as long as
	// the session. Without an end of its own, Ask is to end after that time.
	ForMS int64 `json:"for_ms,omitempty"`
}

// RefusalAnswer carries the last refusal that a grant would have avoided.
type RefusalAnswer struct {
	Last *Refusal `json:"last"`
}

// Event is one line of the event stream.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Root   string    `json:"root,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Op     string    `json:"op,omitempty"`
	Path   string    `json:"path,omitempty"`
	Reason string    `json:"reason,omitempty"`
	UID    uint32    `json:"uid,omitempty"`
	PID    int32     `json:"pid,omitempty"`
	// Lost is how many events this reader missed before this one because it
	// read too slowly.
	Lost int `json:"lost,omitempty"`
}

// problem is the body of an answer that is an error.
type problem struct {
	Error string `json:"error"`
	Class Class  `json:"class"`
	Kind  string `json:"kind"`
	// Ended accompanies a revocation that did not go through whole.
	Ended []Ended `json:"ended,omitempty"`
}
