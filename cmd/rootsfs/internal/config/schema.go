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
	if len(words) > 1 && words[0] == "profile" {
		words[1] = "NAME"
	}
	return strings.Join(words, ".")
}

// meanings say in a line what each key means. A test compares the keys.
var meanings = map[string]string{
	"mount":             "defaults for the flags of rootsfs mount",
	"mount.cache":       "how much the kernel may keep",
	"mount.locks":       "where file locks are kept",
	"mount.posix":       "full shows special files and keeps set-id bits",
	"mount.audit_paths": "paths in audit records",
	"mount.read_only":   "make the mount itself read-only",
	"mount.allow_other": "let other users into the mount",
	"mount.audit_keep":  "audit files of a session's name that are kept; 0: all",

	"mount.audit_max_size": "size of all sessions' audit files together; 0: no bound",
	"mount.audit_max_days": "age of audit files, in days; 0: no bound",

	"run":        "what every rootsfs run keeps to",
	"run.level":  "confine by this level or a stronger one, or start nothing",
	"run.links":  "whether links that leave a root are shown where the command sees their target anyway",
	"run.listen": "TCP and UDP ports that the command may listen on, with --net",
	"run.socket": "Unix sockets of the host's that the command may connect to, by path",

	"limits":                 "for every root that does not say otherwise",
	"limits.ops_per_second":  "operations; more wait",
	"limits.burst":           "operations that need not wait",
	"limits.bytes_in_flight": "bytes being read and written at one time",
	"limits.max_file":        "largest file that may be made",
	"limits.max_written":     "bytes that may be written while the grant lives",
	"limits.max_created":     "names that may be created while the grant lives",
	"limits.timeout":         "how long one operation may take",
	"limits.idle":            "revoked when nothing has used it for so long",

	"policy":                   "what every root shows of names; patterns as in .gitignore",
	"policy.hide":              "not there",
	"policy.deny":              "seen, not opened",
	"policy.protect":           "read, never changed",
	"policy.allow":             "lifts the built-in protections",
	"policy.respect_gitignore": "hide what .gitignore files name when the grant is made",
	"policy.defaults":          "the built-in protections",

	"trash":      "whether roots keep what is removed, in .rootsfs-trash",
	"trash.on":   "keep files that are unlinked, replaced or truncated to nothing",
	"trash.size": "bytes that are kept in each root; the oldest goes when there is more",
	"trash.age":  "what is older goes",

	"files":                     "what MCP servers get over files/*",
	"files.consent":             "ask the owner about paths that nobody approved, or deny",
	"files.consent_timeout":     "how long a question waits; then it is denied",
	"files.ops_per_second":      "requests of one server; more are refused, with a time to retry",
	"files.bytes_per_second":    "bytes of one server",
	"files.max_file":            "largest file that one server may make",
	"files.max_written":         "bytes that one server may write while it is connected",
	"files.watches":             "open watches of one server",
	"files.watched_directories": "directories that the watches of one server watch together",
	"files.frame":               "longest message taken from a server, from 64K to 1G",
	"files.allow":               "granted to a server that asks, without a question",
	"files.allow.path":          "absolute, or beginning with ~/",
	"files.allow.mode":          "the most that is granted so: ro, rw, or a comma list of rights",

	"subject":             "what one server may use in all its roots together",
	"subject.name":        "of the server, as in status; * is every one without a block",
	"subject.max_file":    "largest file that it may make",
	"subject.max_written": "bytes that it may write while the session lives",
	"subject.max_created": "names that it may create while the session lives",

	"abuse":          "when a server that is refused again and again is told of",
	"abuse.escapes":  "attempts of one server to leave a root, in a minute; 0: no bound",
	"abuse.refusals": "refusals of one server, in a minute; 0: no bound",
	"abuse.suspend":  "who goes beyond is refused everything until rootsfs resume",

	"reload":          "how changes of this file are taken up",
	"reload.debounce": "how long changes are gathered",

	"root":                    "a directory or file that the owner approves",
	"root.name":               "default: the last element of the path",
	"root.path":               "absolute, or beginning with ~/",
	"root.uri":                "file:// URI, in the place of a path",
	"root.mode":               "ro (default), rw, or a comma list of rights",
	"root.subject":            "the one server it is for; default: every one",
	"root.for":                "how long the grant lasts",
	"root.expires":            "when the grant ends; with its zone",
	"root.cross_file_systems": "enter other file systems mounted inside",
	"root.allow_system":       "a system directory such as /etc may be writable",
	"root.limits":             "as [limits], for this root",
	"root.policy":             "as [policy], after it, for this root",
	"root.trash":              "as [trash], for this root",

	"profile":            "sets of roots that --profile takes instead of all",
	"profile.NAME":       "one set",
	"profile.NAME.roots": "names of [[root]] blocks, and SPECs ([NAME=]PATH[:MODE])",
}
