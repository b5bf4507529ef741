package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rootsfs/rootsfs/guard"
)

// The schema is made by reading: the functions that take a document apart run
// once over an empty one, and every getter notes the key it was asked for, its
// type and its bounds. So the schema names what is read, no more and no less.
// What no getter knows (which keys exclude each other) is added by constrain.

// schemaID names the schema, for editors.
const schemaID = "https://github.com/rootsfs/rootsfs/config.schema.json"

// schema is the JSON Schema (draft 2020-12) of the configuration, for editors and
// other tools. A document that Load accepts is valid by it; of those that are, Load
// refuses some that a schema cannot tell: a path that is relative, a name that is
// taken twice, a file in another's hands. Date-times of TOML count as text.
func schema() *jsonschema.Schema {
	top := object()
	parseInto(&Config{Profiles: map[string][]Root{}}, table{r: &reader{lines: &lines{}}, shape: top}, "/home/me")
	constrain(top)
	top.ID, top.Schema = schemaID, "https://json-schema.org/draft/2020-12/schema"
	top.Title, top.Description = "rootsfs configuration", "~/.config/rootsfs/config.toml; see rootsfs config --help"
	return top
}

// SchemaJSON is the schema as text, indented.
func SchemaJSON() ([]byte, error) { return json.MarshalIndent(schema(), "", "  ") }

// object is a table that takes no keys but those that are noted.
func object() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: none(), Properties: map[string]*jsonschema.Schema{}}
}

// none is the schema that nothing is valid by.
func none() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

// note adds a key to the schema, if one is being made; make says what it takes.
func (t table) note(key string, make func() *jsonschema.Schema) {
	if t.shape == nil {
		return
	}
	s := make()
	if s.Description == "" {
		s.Description = describe(show(t.sub(key)))
	}
	t.shape.Properties[key] = s
	t.shape.PropertyOrder = append(t.shape.PropertyOrder, key)
}

// constrain adds what holds between keys.
func constrain(top *jsonschema.Schema) {
	root := top.Properties["root"].Items
	root.OneOf = []*jsonschema.Schema{{Required: []string{"path"}}, {Required: []string{"uri"}}}
	root.Not = &jsonschema.Schema{Required: []string{"for", "expires"}}
	top.Properties["files"].Properties["allow"].Items.Required = []string{"path"}
	top.Properties["subject"].Items.Required = []string{"name"}
	top.Properties["profile"].AdditionalProperties.Required = []string{"roots"}
}

func number(v float64) *float64 { return &v }

func textSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

func flagSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

func countSchema(most int64) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "integer", Minimum: number(0)}
	if most < math.MaxInt64 {
		s.Maximum = number(float64(most))
	}
	return s
}

func speedSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "number", Minimum: number(0), Maximum: number(maxSpeed)}
}

// sizePattern is what ParseSize reads.
const sizePattern = `^[0-9]+[ \t]*([bB]|[kKmMgGtT]([iI]?[bB])?)?$`

func sizeSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: number(0)}, {Type: "string", Pattern: sizePattern},
	}}
}

// durationSchema says the range after what the key means: a pattern cannot.
func durationSchema(meaning string, least, most time.Duration) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^[+]?([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h)(([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h))*$`,
		Description: strings.TrimPrefix(fmt.Sprintf("%s; from %v to %v", meaning, least, most), "; ")}
}

func momentSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "date-time"}
}

func textsSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "array", Items: textSchema()} }

func portsSchema() *jsonschema.Schema {
	port := &jsonschema.Schema{Type: "integer", Minimum: number(1), Maximum: number(math.MaxUint16)}
	return &jsonschema.Schema{Type: "array", Items: port}
}

func patternsSchema() *jsonschema.Schema {
	s := textsSchema()
	s.MaxItems = jsonschema.Ptr(guard.MaxPatterns)
	return s
}

func oneOfSchema(words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

// describe is what a key means. Keys of a root's own tables mean what those of
// the tables for all roots do.
func describe(path string) string {
	return cmp.Or(meanings[path], meanings[strings.TrimPrefix(path, "root.")], meanings[profileKey(path)])
}

func profileKey(path string) string {
	words := strings.Split(path, ".")
	if len(words) > 1 && (words[0] == "profile" || words[0] == "agent") {
		words[1] = "NAME"
	}
	return strings.Join(words, ".")
}

// meanings say in a line what each key means. A test compares the keys.
var meanings = map[string]string{
	"mount":                "defaults for the flags of `rootsfs mount`; they hold from the next mount on",
	"mount.cache":          "how much the kernel may keep, as --cache",
	"mount.locks":          "whom file locks exclude: the mount's users, or the host's processes too",
	"mount.posix":          "full shows special files and keeps set-id bits",
	"mount.audit_paths":    "how paths are written in audit records",
	"mount.read_only":      "make the mount itself read-only",
	"mount.allow_other":    "let other users into the mount",
	"mount.audit_max_size": "most that the audit files of all sessions take together (default \"2G\"); 0: no bound",
	"mount.audit_max_days": "age in days at which audit files are deleted (default 90); 0: never",

	"run":        "what every `rootsfs run` keeps to",
	"run.level":  "confine by this level or a stronger one, or start nothing; a weaker --level, and --unconfined, are refused",
	"run.links":  "strict refuses every link that leaves its root; visible, the default, allows those to what the command sees anyway",
	"run.listen": "TCP and UDP ports that commands with --net may listen on",
	"run.socket": "Unix sockets of the host that commands may connect to, by path",

	"limits":                 "for every root that has no limits of its own",
	"limits.ops_per_second":  "operations a second; more wait",
	"limits.burst":           "operations that need not wait",
	"limits.bytes_in_flight": "bytes that are read and written at one time",
	"limits.max_file":        "largest file that may be made",
	"limits.max_written":     "bytes that may be written while the grant lives",
	"limits.max_created":     "names that may be created while the grant lives",
	"limits.timeout":         "how long one operation may take",
	"limits.idle":            "revoke a root that nothing has used for this time; the kernel's caches, and files that are merely open, are no use",

	"policy":                   "rules for names in every root, in force at once; patterns as in .gitignore",
	"policy.hide":              "names that are not there",
	"policy.deny":              "names that are seen and cannot be opened",
	"policy.protect":           "names that can be read and never changed",
	"policy.allow":             "names for which the built-in rules do not hold",
	"policy.respect_gitignore": "hide what .gitignore files name when the root is granted",
	"policy.defaults":          "the built-in rules; true unless set to false",

	"trash":      "keep what is removed from roots, in .rootsfs-trash of each",
	"trash.on":   "keep files that are unlinked, replaced or truncated to nothing",
	"trash.size": "most that is kept in each root (default \"1G\"); the oldest goes first",
	"trash.age":  "how long it is kept (default \"720h\")",

	"files":                     "what MCP servers get over files/*; from the next mount on, but for consent and allow",
	"files.consent":             "ask the owner about paths that nobody approved, or deny them; in force at once",
	"files.consent_timeout":     "how long a question waits until it is denied (default \"2m\")",
	"files.ops_per_second":      "requests a second of one server; more are refused, with a time to retry",
	"files.bytes_per_second":    "bytes a second of one server; more are refused, likewise",
	"files.max_file":            "largest file that one server may make",
	"files.max_written":         "bytes that one server may write while it is connected",
	"files.watches":             "open watches of one server (default 64)",
	"files.watched_directories": "directories that the watches of one server watch together (default 8192); one with many names counts once more for each thousand",
	"files.frame":               "longest message taken from a server, from 64K to 1G (default \"4M\"; in `rootsfs run` \"64M\")",
	"files.allow":               "a path that is granted to a server that asks, without a question; in force at once",
	"files.allow.path":          "absolute, or beginning with ~/",
	"files.allow.mode":          "the most that is granted: ro, rw, or a comma list of rights",

	"subject":             "what one server may use in all its roots together, in force at once",
	"subject.name":        "the server's name in `rootsfs status`; * is every server without a block, each for itself; sessions such as serve#1 count together",
	"subject.max_file":    "largest file that it may make",
	"subject.max_written": "bytes that it may write while the session lives",
	"subject.max_created": "names that it may create while the session lives",

	"abuse":          "when to report a server that is refused again and again, in force at once",
	"abuse.escapes":  "attempts of one server to leave a root, in a minute; more raise an event; 0: no bound",
	"abuse.refusals": "refusals of one server, in a minute; more raise an event; looking for hidden names does not count; 0: no bound",
	"abuse.suspend":  "suspend such a server too: refuse everything until `rootsfs resume`",

	"reload":          "how changes of this file are taken up",
	"reload.debounce": "how long changes are gathered (default \"250ms\")",

	"root":                    "a directory or file that you approve",
	"root.name":               "default: the last element of the path",
	"root.path":               "absolute, or beginning with ~/",
	"root.uri":                "file:// URI, instead of a path",
	"root.mode":               "ro (default), rw, or a comma list of rights",
	"root.subject":            "the one server that it is for; default: every server",
	"root.for":                "how long the grant lasts; default: as long as the session",
	"root.expires":            "when the grant ends, with the time zone",
	"root.cross_file_systems": "enter other file systems mounted inside",
	"root.allow_system":       "let a system directory such as /etc be writable",
	"root.limits":             "as [limits], for this root",
	"root.policy":             "as [policy], for this root; its rules come after those of [policy]",
	"root.trash":              "as [trash], for this root",

	"net":         "hosts that commands of `rootsfs run` may connect to, as run --net takes them",
	"net.hosts":   "names, *.domains, addresses and prefixes, each with :port or without",
	"net.subject": "the name of the run that it is for; default: every run",
	"net.for":     "how long after the start of the run; default: until it ends",
	"net.expires": "when the hosts are taken back, with the time zone",

	"agent":                 "what differs from the presets of agents (run --for NAME), by name",
	"agent.NAME":            "what differs for one agent",
	"agent.NAME.mode":       "mode of the project's root",
	"agent.NAME.home":       "directory that its HOME is kept in; absolute, or beginning with ~/",
	"agent.NAME.home_files": "files of your HOME that are copied into its HOME where they are missing, as paths below HOME",
	"agent.NAME.env":        "variables that it gets, as --env takes them",
	"agent.NAME.hosts":      "hosts that it may connect to, as run --net takes them",
	"agent.NAME.net":        "true: the whole network in place of hosts; false: none",
	"agent.NAME.hide":       "patterns of names that are hidden from it",
	"agent.NAME.protect":    "patterns of names that it cannot change",

	"profile":            "sets of roots, by name",
	"profile.NAME":       "one set, for --profile NAME",
	"profile.NAME.roots": "what --profile takes instead of all [[root]] blocks: their names, and SPECs ([NAME=]PATH[:MODE])",
}
