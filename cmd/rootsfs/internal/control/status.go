package control

import (
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// The types that a status consists of. Field names appear in the output of --json, so fields may be
// added, but never renamed or removed.

// Root is a root as the owner sees it.
type Root struct {
	Name      names.Foreign   `json:"name"`                           // the name it appears under
	Path      names.Foreign   `json:"path"`                           // as it was asked for
	Resolved  names.Foreign   `json:"resolved"`                       // the path that links lead to
	Mode      string          `json:"mode"`                           // `ro`, `rw`, `stage` or a comma list of rights
	State     string          `json:"state"`                          // `live` or `unavailable`
	Why       names.Text      `json:"why,omitempty"`                  // why it is unavailable, and what to do
	File      bool            `json:"file,omitempty"`                 // the root is a single file
	FSType    string          `json:"fs_type"`                        // type of the file system that holds it
	Remote    bool            `json:"remote,omitempty"`               // changes made elsewhere are not reported: one-second timeouts
	Perm      string          `json:"permissions,omitempty"`          // mode bits of the directory
	Expires   *time.Time      `json:"expires,omitempty"`              // when the grant ends
	LastUse   *time.Time      `json:"last_use,omitempty"`             // time of the last operation
	Origin    string          `json:"approved_by"`                    // who approved it: command line, configuration, control
	Epoch     uint64          `json:"epoch"`                          // number of the grant: a new grant has a new one
	InFlight  int64           `json:"in_flight"`                      // operations in progress
	Ops       int64           `json:"ops"`                            // operations that were admitted
	Refused   int64           `json:"refused"`                        // operations that were refused
	BytesRead int64           `json:"bytes_read"`                     // bytes read
	Written   int64           `json:"bytes_written"`                  // bytes written
	Created   int64           `json:"names_created"`                  // names created
	Subject   names.Foreign   `json:"subject,omitempty"`              // the one server that the root is for; left out: every server
	SharedBy  string          `json:"shared_by,omitempty"`            // who else has it: the consent was given to a request without a session
	Limits    guard.Limits    `json:"limits"`                         // limits of the grant
	Nested    []names.Foreign `json:"nested,omitempty"`               // directories inside that have rules of their own: other roots, and revoked ones
	Repos     []names.Foreign `json:"created_repositories,omitempty"` // directories of repositories that the root's users made: their hooks are untrusted
	Lifted    names.Text      `json:"lifted_protections,omitempty"`   // built-in protections that are not in force
	Once      string          `json:"once,omitempty"`                 // of a root for one use: `unused` or `in use`
	Trash     *rules.Trash    `json:"trash,omitempty"`                // how much of what is removed is kept
	Stage     *Stage          `json:"stage,omitempty"`                // of a staged root: what its programs changed
	Free      *int64          `json:"free_bytes,omitempty"`           // free space that the owner may use on its file system
}

// Stage describes the changes of programs in a staged root that the owner has not applied.
type Stage struct {
	Store       names.Foreign `json:"store"`               // directory that the changes lie in
	Changed     int           `json:"changed"`             // names that were changed, made or removed
	Bytes       int64         `json:"bytes"`               // bytes that the store takes on the disk
	Continued   bool          `json:"continued,omitempty"` // some were there when the session began
	Damaged     names.Foreign `json:"damaged,omitempty"`   // what was lost of the store, and why
	Checkpoints int           `json:"checkpoints"`         // that `rootsfs undo` can bring back
}

// Ceiling describes the ceiling that is in force in a session.
type Ceiling struct {
	Files   []names.Foreign `json:"files"`             // files that it was read from
	Read    time.Time       `json:"read"`              // when the files were last read without an error
	Problem names.Foreign   `json:"problem,omitempty"` // why the present contents of a file are not in force
}

// Status is the state of a session.
type Status struct {
	Session        string          `json:"session"`                     // name of the session
	PID            int             `json:"pid"`                         // process id of the daemon
	Version        string          `json:"version"`                     // version of the daemon
	Started        time.Time       `json:"started"`                     // when the session began
	Point          names.Foreign   `json:"mountpoint"`                  // where it is mounted; empty for `rootsfs serve`, and mostly for `rootsfs run` as root
	Cache          string          `json:"cache"`                       // cache level: `strict`, `audit` or `max`
	Locks          string          `json:"locks"`                       // where file locks are kept: `local` or `host`
	Posix          string          `json:"posix"`                       // `safe` or `full`
	Transport      string          `json:"transport,omitempty"`         // how the kernel's requests come: `plain` or `io_uring`
	NoRings        names.Text      `json:"no_io_uring,omitempty"`       // why `--transport auto` does not use io_uring
	ReadOnly       bool            `json:"read_only"`                   // the mount itself is read-only
	Profile        string          `json:"profile,omitempty"`           // profile of the configuration in force
	Config         string          `json:"config,omitempty"`            // configuration file that is watched
	ConfigError    names.Foreign   `json:"config_error,omitempty"`      // why the present state of that file is not in force
	Ceiling        *Ceiling        `json:"ceiling,omitempty"`           // what the administrator of this machine allows at most; absent where there is no such file
	Mounted        bool            `json:"mounted"`                     // the mount is there; false while the daemon waits for the last holder, because not everything could be taken back
	Stale          bool            `json:"stale,omitempty"`             // no session, but a mount that a dead daemon left at `mountpoint`; no other field counts
	Audit          string          `json:"audit_file,omitempty"`        // audit file that is written
	AuditOK        bool            `json:"audit_ok"`                    // the last record could be written
	Roots          []Root          `json:"roots"`                       // the roots, as in `roots list --json`
	Unwatched      []names.Foreign `json:"unwatched,omitempty"`         // directories whose changes nobody reports: one-second timeouts
	Watches        int64           `json:"watched_directories"`         // directories whose changes are reported
	WatchesRefused int64           `json:"watches_refused"`             // how often no watch could be had
	PathsPolled    names.Text      `json:"paths_polled,omitempty"`      // why paths of roots or of the configuration are looked at once a second, not watched
	Stuck          int             `json:"stuck_directories,omitempty"` // directories in which a program delays the news of changes
	Files          []broker.Stats  `json:"files"`                       // connected servers
	Questions      int             `json:"questions"`                   // questions that wait for an answer
	Denials        int             `json:"denials"`                     // denials that are remembered
	Subjects       []Quota         `json:"subjects,omitempty"`          // servers with a quota, and their use of it
	Suspended      []Suspended     `json:"suspended,omitempty"`         // servers that are suspended, since when and why
	Paused         []Paused        `json:"paused,omitempty"`            // the session is paused: by whom, since when and why
	Lease          *LeaseStatus    `json:"lease,omitempty"`             // lease of the machine, if it belongs to a fleet
	Process        Process         `json:"process"`                     // the daemon's own figures
	Server         *Confined       `json:"server,omitempty"`            // the program that `rootsfs run` started
	Network        *NetState       `json:"network,omitempty"`           // network of approved hosts that the program has
	Sockets        []Socket        `json:"sockets,omitempty"`           // sockets of the host that the program may connect to
	Recent         []Operation     `json:"recent"`                      // the last operations, the newest first
}

// Confined is the program that `rootsfs run` started in its session.
type Confined struct {
	Command      []names.Foreign `json:"command"`                 // command line
	PID          int             `json:"pid"`                     // process id, as the host sees it
	Started      time.Time       `json:"started"`                 // when it was started
	UID          uint32          `json:"uid"`                     // user id that it runs as
	Confinement  string          `json:"confinement"`             // level: `namespaces`, `bubblewrap`, `landlock` or `none`
	Layers       []Layer         `json:"layers"`                  // what the confinement consists of
	Holes        []names.Text    `json:"holes"`                   // what it does not stop
	Map          string          `json:"map"`                     // where roots appear: `same` or `flat`
	Net          bool            `json:"net"`                     // it has the host's network
	Hosts        []string        `json:"hosts,omitempty"`         // hosts that it may connect to, as `run --net` takes them
	Asks         bool            `json:"asks,omitempty"`          // its owner is asked about other hosts
	Secrets      []string        `json:"secrets,omitempty"`       // credentials that it uses and does not have, as `run --secret` takes them
	Notes        []names.Text    `json:"notes,omitempty"`         // limits of what it sees
	Follows      []names.Foreign `json:"follows,omitempty"`       // directories in which a root appears that is granted later
	Closed       []names.Foreign `json:"closed,omitempty"`        // directories in which no later root appears
	Fixed        []names.Foreign `json:"fixed,omitempty"`         // later roots that it can only read until it is started again
	PrivateBytes int64           `json:"private_bytes,omitempty"` // memory that its private HOME and /tmp take; 0: they are on disk
	Interpreters []names.Foreign `json:"interpreters,omitempty"`  // roots that were granted because the command needs them to run
}

// Socket is a socket of the host that the command of `rootsfs run` may connect to.
type Socket struct {
	Name   string `json:"name"` // as `rootsfs revoke` takes it
	Path   string `json:"path"`
	Inside string `json:"inside"` // where the command finds it
}

// Layer is one layer of a server's confinement.
type Layer struct {
	Name   string     `json:"name"`
	State  string     `json:"state"` // on, off or not available
	Detail names.Text `json:"detail,omitempty"`
}

// Operation is one record of the audit log, in short.
type Operation struct {
	Time    time.Time  `json:"time"`
	Op      string     `json:"op"`
	Path    names.Text `json:"path"`
	Via     string     `json:"via"`
	Verdict string     `json:"verdict"`
	Reason  string     `json:"reason,omitempty"`
	Detail  names.Text `json:"detail,omitempty"` // of a link that was refused: where it leads
	PID     int32      `json:"pid,omitempty"`
}

// Quota is a server's use of its quota since the session began, in all its roots together. A
// limit of 0 is no limit.
type Quota struct {
	Subject    names.Foreign `json:"subject"`
	Written    int64         `json:"bytes_written"`
	MaxWritten int64         `json:"max_written"`
	Created    int64         `json:"names_created"`
	MaxCreated int64         `json:"max_created"`
	MaxFile    int64         `json:"max_file"`
}

// Suspended is a suspended server; "" stands for servers without a name.
type Suspended struct {
	Subject names.Foreign `json:"subject"`
	Since   time.Time     `json:"since"`
	Why     names.Foreign `json:"why"`
}

// Paused is a pause of a session. A session can have several pauses, and goes on when all of them
// have ended.
type Paused struct {
	Cause  string        `json:"cause"` // `owner`: rootsfs pause; `lease`: the lease of the machine has run out
	Since  time.Time     `json:"since"`
	Reason names.Foreign `json:"reason,omitempty"`
}

// String describes the pause, and how it ends.
func (p *Paused) String() string {
	g := guard.Pause{Cause: guard.PauseCause(p.Cause), Since: p.Since, Reason: p.Reason.Raw()}
	return g.Text()
}

// LeaseStatus is the lease of a machine that belongs to a fleet. When it has run out, the session
// is paused.
type LeaseStatus struct {
	Fleet   names.Foreign `json:"fleet"`            // the fleet's name
	Machine names.Foreign `json:"machine"`          // the machine's name in the fleet
	LeftMS  int64         `json:"left_ms"`          // remaining time of the lease
	Locked  names.Foreign `json:"locked,omitempty"` // why the fleet has locked the machine
	Written time.Time     `json:"written"`          // when the fleet's agent wrote it
}

// Process has the daemon's own figures. A figure that the system does not report is zero.
type Process struct {
	CPU      float64 `json:"cpu_seconds"`      // processor time used
	FDs      int     `json:"open_descriptors"` // open descriptors
	FDLimit  uint64  `json:"descriptor_limit"` // most descriptors that it may open
	Resident int64   `json:"resident_bytes"`   // memory in use
	InFlight int64   `json:"in_flight"`        // sum over the roots
	Ops      int64   `json:"ops"`              // sum over the roots
	Refused  int64   `json:"refused"`          // sum over the roots
	Read     int64   `json:"bytes_read"`       // sum over the roots
	Written  int64   `json:"bytes_written"`    // sum over the roots
}

// NetState is the network of a command with approved hosts, or with none.
type NetState struct {
	Hosts       []string        `json:"hosts"`          // as `run --net` takes them
	Secrets     []string        `json:"secrets"`        // as `run --secret` takes them; never their values
	Asks        bool            `json:"asks,omitempty"` // the owner is asked about other hosts
	Reach       string          `json:"reach"`          // which connections the rules judge; the kernel refuses all others, which Refused does not count
	Connections []NetConnection `json:"connections"`    // open connections, the oldest first; in a Status only the 32 busiest, the busiest first
	Requests    []SecretUse     `json:"requests"`       // requests with secrets: those under way and the last 16 others, the oldest first
	Open        int             `json:"open"`           // how many connections are open
	Opened      int64           `json:"opened"`         // connections that were made so far
	Refused     int64           `json:"refused"`        // connections and look-ups of names that were refused
	Failed      int64           `json:"failed"`         // connections that the host did not accept
	Sent        int64           `json:"sent"`           // bytes from the command
	Received    int64           `json:"received"`       // bytes to the command
	Unapproved  []NetUnapproved `json:"unapproved"`     // hosts that the command tried to reach and that have no rule; at most 64, in the order of the first attempts
}

// IsUnused reports whether no host or secret is approved, the owner is not asked about hosts, and
// the command has tried no host.
func (n *NetState) IsUnused() bool {
	return len(n.Hosts)+len(n.Secrets) == 0 && !n.Asks && n.Opened+n.Refused+n.Failed == 0
}

// SecretUse is a request with a secret.
type SecretUse struct {
	Secret   string        `json:"secret"` // its name
	Host     names.Text    `json:"host"`   // HOST[:PORT]
	Method   names.Foreign `json:"method"`
	Path     names.Foreign `json:"path"`              // without the query
	Status   int           `json:"status"`            // status of the answer; 0: no answer
	Sent     int64         `json:"sent"`              // bytes of the body, when the request is over
	Received int64         `json:"received"`          // bytes of the answer's body, when the request is over
	Began    time.Time     `json:"began"`             // when the program sent it
	Open     bool          `json:"open,omitempty"`    // the request is under way
	Refused  bool          `json:"refused,omitempty"` // the request was not sent; the audit log says why
}

// NetUnapproved is a host without a rule.
type NetUnapproved struct {
	Host  names.Text `json:"host"`  // HOST:PORT; HOST alone if only its name was looked up
	Times int        `json:"times"` // how often it was refused
}

// NetConnection is an open connection.
type NetConnection struct {
	Host     names.Text `json:"host"` // name that the program asked for, or address
	Port     uint16     `json:"port"`
	Address  string     `json:"address"`  // address that the connection leads to
	Sent     int64      `json:"sent"`     // bytes from the command
	Received int64      `json:"received"` // bytes to the command
	Rate     int64      `json:"rate"`     // bytes a second, both ways, between the last two measurements
	Began    time.Time  `json:"began"`

	ServerNames []names.Text `json:"server_names"` // names that TLS asks for, other than the host; escaped
	PermittedBy []string     `json:"permitted_by"` // rules and secrets that permit the host, its address or a server name
}
