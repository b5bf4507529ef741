package control

import (
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The bodies of requests and of their answers. Field names appear in the output of --json, so fields
// may be added, but never renamed or removed.

// CeilingAnswer lists the roots that the ceiling has ended.
type CeilingAnswer struct {
	Ended []Ended `json:"ended"`
}

// LeaseAnswer has the machine's lease from its fleet, and the pauses of the session.
type LeaseAnswer struct {
	Lease  LeaseStatus `json:"lease"`
	Paused []Paused    `json:"paused"`
}

// PauseRequest pauses the session.
type PauseRequest struct {
	Reason string `json:"reason,omitempty"`
}

// PauseAnswer is the pause. It can come with an error that says what could not be taken back.
type PauseAnswer struct {
	Paused Paused  `json:"paused"`
	TookMS float64 `json:"took_ms"`
}

// ResumeRequest resumes the named server. With All it ends the owner's pause of the session, or, if
// there is none, resumes every suspended server.
type ResumeRequest struct {
	Subject string `json:"subject,omitempty"`
	All     bool   `json:"all,omitempty"`
}

// ResumeAnswer names the resumed servers, and the pause that has ended.
type ResumeAnswer struct {
	Resumed   []names.Foreign `json:"resumed"`
	Pause     *Paused         `json:"pause,omitempty"`
	Suspended []Suspended     `json:"suspended,omitempty"` // servers that are still suspended
}

// AddRequest adds roots, all of them or none.
type AddRequest struct {
	Roots []guard.Grant `json:"roots"`
}

// AddAnswer lists the granted roots.
type AddAnswer struct {
	Roots []Root `json:"roots"`
}

// RevokeRequest has exactly one field set. It revokes the roots and sockets with the names, or
// everything, or the roots that only one server may use, or the command's network.
type RevokeRequest struct {
	Names   []string `json:"names,omitempty"`
	All     bool     `json:"all,omitempty"`
	Subject string   `json:"subject,omitempty"`
	Net     bool     `json:"net,omitempty"` // every host of the command's network
}

// Ended reports the end of one root, socket or network. Error is empty if all access has ended and
// the end is on record; otherwise it says what failed.
type Ended struct {
	Root   names.Foreign `json:"root"`
	State  string        `json:"state"`
	TookMS float64       `json:"took_ms"`
	Error  names.Text    `json:"error,omitempty"`
}

// RevokeAnswer has the results of a revocation.
type RevokeAnswer struct {
	Ended []Ended `json:"ended"`
}

// NetRequest names hosts in the form of `run --net`. For removing, it can also name secrets in
// the form of NetState.
type NetRequest struct {
	Hosts []string `json:"hosts"`
}

// NetAdded lists the added hosts, without those that were there before.
type NetAdded struct {
	Added []string `json:"added"`
}

// NetRemoved lists the revoked hosts, and counts the connections that this ended.
type NetRemoved struct {
	Removed     []string `json:"removed"`
	Connections int      `json:"connections"`
}

// SetRequest changes a root's mode.
type SetRequest struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
}

// RenewRequest gives a root another end: a time, a number of milliseconds from now, or the end
// of the session. Without any of these, the root lasts again for the duration of its grant.
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

// ProfileAnswer lists the changes of the switch.
type ProfileAnswer struct {
	Profile string   `json:"profile"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Changed []string `json:"changed"`
}

// UnmountAnswer reports how the session ended.
type UnmountAnswer struct {
	Ended []Ended `json:"ended"`
	// Held: a program still had a file or directory of the mount open, and gets errors from now
	// on. Held is also true if the session ended with an error.
	Held   bool         `json:"held"`
	HeldBy []names.Text `json:"held_by,omitempty"` // by whom, as far as the daemon may look: "sleep (pid 12, an open file)"
}

// Refusal is a refused operation, with the mode or the grant that would allow it.
type Refusal struct {
	Time   time.Time  `json:"time"`
	Op     string     `json:"op"`
	Path   names.Text `json:"path"`
	Reason string     `json:"reason"`
	UID    uint32     `json:"uid"`
	PID    int32      `json:"pid"`
	// Remedy is "set" (give the root Root the mode Mode) or "grant" (grant the root of the
	// directory Dir, which has ended, again).
	Remedy string        `json:"remedy,omitempty"`
	Root   names.Foreign `json:"root,omitempty"`
	Mode   string        `json:"mode,omitempty"`
	Dir    names.Foreign `json:"dir,omitempty"`
	// Grant is the root to add, if Remedy is "grant".
	Grant *guard.Grant `json:"grant,omitempty"`
	// ForMS is how long the root's ended grant was to last, in milliseconds, if Remedy is "grant"; 0:
	// as long as the session. If Grant.Expires is zero, the new grant gets this duration.
	ForMS int64 `json:"for_ms,omitempty"`
}

// RefusalAnswer has the last refusal that a wider mode or a grant would lift. Last is nil if there is
// none.
type RefusalAnswer struct {
	Last *Refusal `json:"last"`
}

// StateEvery is the interval of the states in a stream.
const StateEvery = time.Second

// StreamRequest begins a stream of updates.
type StreamRequest struct {
	// State asks for the state once in each StateEvery, and when roots change. Without State,
	// only the first update has the state.
	State bool `json:"state,omitempty"`
}

// Update is one line of the stream: the changes since the line before. The first line has the
// state and everything that waits for the owner. The stream has all later events, except those
// that Event.Lost counts.
type Update struct {
	Status  *Status  `json:"status,omitempty"`
	Waiting *Waiting `json:"waiting,omitempty"`
	Events  []Event  `json:"events,omitempty"` // the oldest first
}

// Waiting has everything that waits for the owner: all questions and all remembered denials.
type Waiting struct {
	QuestionsAnswer
	DenialsAnswer
}

// OfSession names the session of an item in a list about several sessions. The stream of one
// session leaves it out.
type OfSession struct {
	Session string `json:"session,omitempty"`
}

// Event is an event in a session.
type Event struct {
	OfSession
	Time   time.Time     `json:"time"`
	Kind   string        `json:"kind"`
	Root   names.Foreign `json:"root,omitempty"`
	Detail names.Foreign `json:"detail,omitempty"`
	Op     string        `json:"op,omitempty"`
	Path   names.Text    `json:"path,omitempty"`
	Reason string        `json:"reason,omitempty"`
	UID    uint32        `json:"uid,omitempty"`
	PID    int32         `json:"pid,omitempty"`
	// Lost is how many events before this one the reader has missed because it read too slowly.
	Lost int `json:"lost,omitempty"`
}

// TrashRequest asks for the contents of the trash of a root, or, without a name, of every root
// with a trash.
type TrashRequest struct {
	Root string `json:"root,omitempty"`
}

// TrashAnswer lists kept files, root by root, the oldest first.
type TrashAnswer struct {
	Files []vfs.Trashed `json:"files"`
}

// RestoreRequest restores a kept file to its old path, or to the path To below the root.
// Without a root, every trash is searched for the file.
type RestoreRequest struct {
	Root string `json:"root,omitempty"`
	ID   string `json:"id"`
	To   string `json:"to,omitempty"`
}

// RestoreAnswer has the path that the file was restored to.
type RestoreAnswer struct {
	Root names.Foreign `json:"root"`
	Path names.Text    `json:"path"` // below the root, escaped
}

// EmptyRequest removes kept files for good, in one root or in all: those with the ids, or all
// that are older than a number of milliseconds.
type EmptyRequest struct {
	Root        string   `json:"root,omitempty"`
	IDs         []string `json:"ids,omitempty"`
	OlderThanMS int64    `json:"older_than_ms,omitempty"`
}
