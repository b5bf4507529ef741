package config

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// File is the configuration as written: it has a field for each key. The reader, the schema, the
// flags for limits, the comparison of two configurations, and Save read the properties of a key
// from the tags of its field:
//
//	toml        the name of the key
//	jsonschema  what the key means, in a line
//	kind        the kind of its value, if the type of the field does not tell (see kinds)
//	words       the words that it takes
//	min, max    its bounds
//	zero        why 0, or an empty list, is refused
//	need        what to write if the key is missing
//	each        what an entry means, in a table whose names the owner chooses
//
// The method config turns a File into a Config, and makes the checks that concern several keys.
type File struct {
	Mount    Mount              `toml:"mount" jsonschema:"defaults for the flags of rootsfs mount; they hold from the next mount on"`
	Run      Run                `toml:"run" jsonschema:"what every rootsfs run keeps to"`
	Agents   map[string]Agent   `toml:"agent" jsonschema:"what differs from the presets of agents (run --for NAME), by name" each:"what differs for one agent"`
	Net      []netBlock         `toml:"net" jsonschema:"hosts that commands of rootsfs run may connect to, as run --net takes them"`
	Secrets  []secretBlock      `toml:"secret" jsonschema:"credentials that commands of rootsfs run use and do not get, as run --secret names them"`
	Files    Files              `toml:"files" jsonschema:"what MCP servers get over files/*; from the next mount on, but for consent and allow"`
	Subjects []subjectBlock     `toml:"subject" jsonschema:"what one server may use in all its roots together, in force at once"`
	Abuse    abuse              `toml:"abuse" jsonschema:"when to report a server that is refused again and again, in force at once"`
	Limits   limits             `toml:"limits" jsonschema:"for every root that has no limits of its own"`
	Policy   patterns           `toml:"policy" jsonschema:"rules for names in every root, in force at once; patterns as in .gitignore"`
	Trash    trash              `toml:"trash" jsonschema:"keep what is removed from roots, in .rootsfs-trash of each"`
	Stage    stage              `toml:"stage" jsonschema:"what is kept apart in staged roots; in force at once"`
	Reload   reload             `toml:"reload" jsonschema:"how changes of this file are taken up"`
	Fleet    fleet              `toml:"fleet" jsonschema:"what the owners of the fleet that this machine joined may do here; in force at once"`
	Roots    []rootBlock        `toml:"root" jsonschema:"a directory or file that you approve"`
	Profiles map[string]profile `toml:"profile" jsonschema:"sets of roots, by name" each:"one set, for --profile NAME"`
}

// Mount holds defaults for the flags of `rootsfs mount`, as words that the flags take; "" and
// false if the file has no value. The words are those of mount.ParseLevel, mount.ParseLocks and
// audit.ParsePathMode; a test compares.
type Mount struct {
	Cache      string `toml:"cache" words:"strict,audit,max" jsonschema:"how much the kernel may keep, as --cache"`
	Locks      string `toml:"locks" words:"local,host" jsonschema:"whom file locks exclude: the mount's users, or the host's processes too"`
	Posix      string `toml:"posix" words:"safe,full" jsonschema:"full shows special files and keeps set-id bits"`
	AuditPaths string `toml:"audit_paths" words:"full,hash,none" jsonschema:"how paths are written in audit records"`
	ReadOnly   bool   `toml:"read_only" jsonschema:"make the mount itself read-only"`
	AllowOther bool   `toml:"allow_other" jsonschema:"let other users into the mount"`
	// AuditMaxSize and AuditMaxDays bound the audit files of all sessions; nil is the
	// default, 0 is no bound.
	AuditMaxSize *int64 `toml:"audit_max_size" kind:"size" jsonschema:"most that the audit files of all sessions take together (default \"2G\"); 0: no bound"`
	AuditMaxDays *int64 `toml:"audit_max_days" max:"36500" jsonschema:"age in days at which audit files are deleted (default 90); 0: never"`
}

// Flags returns the values of the file as texts of the flags of `rootsfs mount`, by the names
// of the flags.
func (m Mount) Flags() map[string]string {
	out := map[string]string{}
	for _, k := range tableKeys(reflect.TypeFor[Mount]()) {
		if v := reflect.ValueOf(m).FieldByIndex(k.field); !v.IsZero() && v.Kind() != reflect.Pointer {
			out[strings.ReplaceAll(k.name, "_", "-")] = plain(v)
		}
	}
	return out
}

// Run holds the settings of `rootsfs run`.
type Run struct {
	// Level is the least confinement of a run, as --level takes it (the words of
	// sandbox.ParseLevel); "": the strongest available.
	Level string `toml:"level" words:"namespaces,bubblewrap,landlock" jsonschema:"confine by this level or a stronger one, or start nothing; a weaker --level, and --unconfined, are refused"`
	// Links is a word of --links; "": visible.
	Links string `toml:"links" words:"visible,strict" jsonschema:"strict refuses every link that leaves its root; visible, the default, allows those to what the command sees anyway"`
	// Listen are the ports that runs with --net may listen on, as --listen takes them.
	Listen []int `toml:"listen" kind:"port" jsonschema:"TCP and UDP ports that commands with --net may listen on"`
	// Sockets are absolute paths of the host's sockets that runs may connect to, as --socket
	// takes them.
	Sockets []string `toml:"socket" kind:"path" jsonschema:"Unix sockets of the host that commands may connect to, by path"`
	// NetLimits limit the connections of one run to approved hosts, all together.
	NetLimits netLimits `toml:"net_limits" jsonschema:"what one run with approved hosts may move and open, together with run --net-limit"`
	// NetTimeout is how long a connection waits for the owner's answer; 0: the default.
	NetTimeout time.Duration `toml:"net_timeout" min:"1s" max:"24h" jsonschema:"how long a connection waits for your answer about its host, until it is refused (default \"60s\")"`
}

// Agent overrides the preset of an agent (`run --for NAME`). A field or list that is nil keeps
// the preset's value.
type Agent struct {
	Mode      string   `toml:"mode" kind:"mode" jsonschema:"mode of the project's root"` // "": the preset's
	Stage     bool     `toml:"stage" jsonschema:"stage its writable roots, as --stage"`
	HomeDir   string   `toml:"home" kind:"path" jsonschema:"directory that its HOME is kept in, one for all repositories; absolute, or beginning with ~/"` // "": one for each
	HomeFiles []string `toml:"home_files" kind:"below home" jsonschema:"files of your HOME that are copied into its HOME where they are missing, as paths below HOME"`
	Env       []string `toml:"env" kind:"item" jsonschema:"variables that it gets, as --env takes them"`
	Hosts     []string `toml:"hosts" kind:"host" jsonschema:"hosts that it may connect to, as run --net takes them"`
	Net       *bool    `toml:"net" jsonschema:"true: the whole network in place of hosts; false: none"` // nil: Hosts
	Hide      []string `toml:"hide" kind:"pattern" jsonschema:"patterns of names that are hidden from it"`
	Protect   []string `toml:"protect" kind:"pattern" jsonschema:"patterns of names that it cannot change"`
}

// netBlock is a [[net]] block.
type netBlock struct {
	place
	Net
}

// Net are hosts that commands of `rootsfs run` may connect to.
type Net struct {
	Hosts   []network.Rule `toml:"hosts" jsonschema:"names, *.domains, addresses and prefixes, each with :port or without"`
	Ask     bool           `toml:"ask" jsonschema:"ask you about each other host, while the connection waits (run.net_timeout); for and expires end that, too"`
	Subject string         `toml:"subject" kind:"server" jsonschema:"the name that you give the run that it is for (--name, --for, or a command outside of every root); default: every run"`
	Profile string         `toml:"profile" jsonschema:"the [profile.NAME] that a run must have (--profile) to get them; default: every run"`
	For     time.Duration  `toml:"for" min:"1s" max:"876000h" jsonschema:"how long after the start of the run; default: until it ends"`
	Expires time.Time      `toml:"expires" jsonschema:"when the hosts are taken back, with the time zone"`
}

// Ends returns the time at which the hosts of a run that starts now are revoked; zero: at the
// end of the run.
func (n *Net) Ends(now time.Time) time.Time {
	if n.For > 0 {
		return now.Add(n.For)
	}
	return n.Expires
}

// netLimits has the fields of network.Limits.
type netLimits struct {
	BytesPerSecond int64 `toml:"bytes_per_second" kind:"size" jsonschema:"bytes a second, both ways together; more wait"`
	Bytes          int64 `toml:"bytes" kind:"size" jsonschema:"bytes in all, both ways together; then every connection is reset"`
	Connections    int   `toml:"connections" max:"4096" jsonschema:"connections that are open at a time; one more is reset"`
}

// fleet is the [fleet] table.
type fleet struct {
	Allow        []string `toml:"allow" kind:"act" jsonschema:"answer: they answer questions of programs; grant: they grant roots and hosts, set modes and end pauses; default: they look, revoke and pause"`
	ShareRecords *bool    `toml:"share_records" jsonschema:"send the audit records of your sessions to the fleet, where its owners read them (default true); false: they wait on this machine"` // nil: true
}

// secretBlock is a [[secret]] block.
type secretBlock struct {
	place
	Secret
}

// Secret is a credential that commands of `rootsfs run` use without ever seeing it.
type Secret struct {
	secret.Secret
	Subject string `toml:"subject" kind:"server" jsonschema:"the name that you give the run that gets it unasked (--name, --for, or a command outside of every root); default: only runs with --secret NAME"`
}

// Files is the table [files], about servers that use files/*. Zero values stand for the
// defaults of package broker.
type Files struct {
	// Deny: the owner is not asked, and only the paths of Allow are granted.
	Deny           bool          `toml:"consent" words:"ask,deny" jsonschema:"ask the owner about paths that nobody approved, or deny them; in force at once"`
	ConsentTimeout time.Duration `toml:"consent_timeout" min:"1s" max:"24h" jsonschema:"how long a question waits until it is denied (default \"2m\")"`
	OpsPerSecond   float64       `toml:"ops_per_second" jsonschema:"requests a second of one server; more are refused, with a time to retry"`
	BytesPerSecond int64         `toml:"bytes_per_second" kind:"size" jsonschema:"bytes a second of one server; more are refused, likewise"`
	MaxFile        int64         `toml:"max_file" kind:"size" jsonschema:"largest file that one server may make"`
	MaxWritten     int64         `toml:"max_written" kind:"size" jsonschema:"bytes that one server may write while it is connected"`
	Watches        int           `toml:"watches" max:"1000000" zero:"0 would be none; write a number from 1 on, or deny the right to watch in a root's mode" jsonschema:"open watches of one server (default 64)"`
	WatchedDirs    int           `toml:"watched_directories" max:"1000000" zero:"0 would be none; write a number from 1 on, or deny the right to watch in a root's mode" jsonschema:"directories that the watches of one server watch together (default 8192); one with many names counts once more for each thousand"`
	Frame          int           `toml:"frame" kind:"size" min:"64K" max:"1G" jsonschema:"longest message taken from a server, from 64K to 1G (default \"4M\"; in rootsfs run \"64M\")"`
	Allow          []Allow       `toml:"allow" jsonschema:"a path that is granted to a server that asks, without a question, but not over HTTP; in force at once"`
}

// Allow is a path that is granted without asking the owner, to a server that asks for the path
// or for one below it.
type Allow struct {
	Path   string       `toml:"path" kind:"path" need:"path = \"/…\"" jsonschema:"absolute, or beginning with ~/"` // ~ undone, links not resolved
	Rights guard.Rights `toml:"mode" jsonschema:"the most that is granted: ro (default), rw, stage, or a comma list of rights"`
	Line   int          // of the file
}

func (a *Allow) setPlace(p place) { a.Line, a.Rights = p.line(), cmp.Or(a.Rights, guard.ReadOnly) }

// subjectBlock is a [[subject]] block. The subject "*" stands for every server without a block.
type subjectBlock struct {
	place
	Name guard.Subject `toml:"name" kind:"server or *" need:"name = \"…\", or \"*\" for every server without a block" jsonschema:"the server's name in rootsfs status; * is every server without a block, each for itself; sessions such as serve#1 count together"`
	quota
}

// quota, abuse, limits, patterns and trash are converted to types of package guard and the packages
// below it. The compiler checks that the fields are the same.
type quota struct {
	MaxFile    int64 `toml:"max_file" kind:"size" jsonschema:"largest file that it may make"`
	MaxWritten int64 `toml:"max_written" kind:"size" jsonschema:"bytes that it may write while the session lives"`
	MaxCreated int64 `toml:"max_created" jsonschema:"names that it may create while the session lives"`
}

type abuse struct {
	Escapes  int  `toml:"escapes" max:"1000000" jsonschema:"attempts of one server to leave a root, in a minute; more raise an event; 0: no bound"`
	Refusals int  `toml:"refusals" max:"1000000" jsonschema:"refusals of one server, in a minute; more raise an event; looking for hidden names does not count; 0: no bound"`
	Suspend  bool `toml:"suspend" jsonschema:"suspend such a server too: refuse everything until rootsfs resume"`
}

type limits struct {
	OpsPerSecond  float64       `toml:"ops_per_second" jsonschema:"operations a second; more wait"`
	Burst         int           `toml:"burst" max:"2147483647" jsonschema:"operations that need not wait (default: those of one second)"`
	BytesInFlight int64         `toml:"bytes_in_flight" kind:"size" jsonschema:"bytes that are read and written at one time, such as 64M"`
	MaxFile       int64         `toml:"max_file" kind:"size" jsonschema:"largest file that may be made, such as 10M"`
	MaxWritten    int64         `toml:"max_written" kind:"size" jsonschema:"bytes that may be written while the grant lives"`
	MaxCreated    int64         `toml:"max_created" jsonschema:"names that may be created while the grant lives"`
	MaxStage      int64         `toml:"max_stage" kind:"size" jsonschema:"most that the stage of a root takes on the disk (default \"10G\"); beyond it programs are told that the disk is full"`
	Timeout       time.Duration `toml:"timeout" min:"1ms" max:"24h" jsonschema:"how long one operation may take (default \"1m\")"`
	Idle          time.Duration `toml:"idle" min:"1s" max:"8760h" jsonschema:"revoke a root that nothing has used for this time; the kernel's caches, and files that are merely open, are no use"`
}

type patterns struct {
	Deny       []rules.Pattern `toml:"deny" jsonschema:"names that are seen and cannot be opened"`
	Hide       []rules.Pattern `toml:"hide" jsonschema:"names that are not there"`
	Protect    []rules.Pattern `toml:"protect" jsonschema:"names that can be read and never changed"`
	Allow      []rules.Pattern `toml:"allow" jsonschema:"names for which the built-in rules do not hold"`
	Gitignore  bool            `toml:"respect_gitignore" jsonschema:"hide what .gitignore files name when the root is granted"`
	NoDefaults bool            `toml:"defaults" kind:"opposite" jsonschema:"the built-in rules; true unless set to false"`
}

type trash struct {
	On   bool          `toml:"on" jsonschema:"keep files that are unlinked, replaced or truncated to nothing"`
	Size int64         `toml:"size" kind:"size" zero:"0 would keep nothing; write on = false" jsonschema:"most that is kept in each root (default \"1G\"); the oldest goes first"`
	Age  time.Duration `toml:"age" min:"1s" max:"8760h" jsonschema:"how long it is kept (default \"720h\")"`
}

type stage struct {
	Output []rules.Pattern `toml:"output" jsonschema:"build output that you do not review: counted in one line, and applied only when it is named (default node_modules/, target/, .venv/, dist/, __pycache__/); \".gitignore\" stands for what the .gitignore files of the root name"`
}

type reload struct {
	Debounce time.Duration `toml:"debounce" min:"1ms" max:"1m" jsonschema:"how long changes are gathered (default \"250ms\")"`
}

// Root is a root that the owner wrote into the file. Writing it there counts as consent.
type Root struct {
	Name             guard.RootName `toml:"name" jsonschema:"default: the last element of the path"`
	Path             string         `toml:"path" kind:"path" jsonschema:"absolute, or beginning with ~/"` // ~ and URIs undone, links not resolved
	Rights           guard.Rights   `toml:"mode" jsonschema:"ro (default), rw, stage, or a comma list of rights"`
	Subject          guard.Subject  `toml:"subject" jsonschema:"the one server that it is for; default: every server"`
	For              time.Duration  `toml:"for" min:"1s" max:"876000h" jsonschema:"how long the grant lasts; default: as long as the session"`
	Expires          time.Time      `toml:"expires" jsonschema:"when the grant ends, with the time zone"`
	CrossFileSystems bool           `toml:"cross_file_systems" jsonschema:"enter other file systems mounted inside"`
	AllowSystem      bool           `toml:"allow_system" jsonschema:"let a system directory such as /etc be writable"`
	Limits           guard.Limits   // those of [limits] included
	Patterns         guard.Patterns // those of [policy] included
	Trash            rules.Trash    // that of [trash] included
	Line             int            // of the file
}

// rootBlock is a [[root]] block.
type rootBlock struct {
	place
	Root
	Stage  bool          `toml:"stage" jsonschema:"keep what programs change apart until you apply it; mode rw is then mode stage"`
	URI    string        `toml:"uri" jsonschema:"file:// URI, instead of a path"`
	Limits own[limits]   `toml:"limits" jsonschema:"as [limits], for this root"`
	Policy own[patterns] `toml:"policy" jsonschema:"as [policy], for this root; its rules come after those of [policy]"`
	Trash  own[trash]    `toml:"trash" jsonschema:"as [trash], for this root"`
}

// profile is a set of roots. An element is the name of a [[root]], or a SPEC as on the
// command line.
type profile struct {
	place
	Roots []string `toml:"roots" kind:"name or spec" need:"roots = [...]" jsonschema:"what --profile takes instead of all [[root]] blocks: their names, and SPECs ([NAME=]PATH[:MODE])"`
}
