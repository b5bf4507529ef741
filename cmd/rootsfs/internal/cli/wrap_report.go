package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// wrapResult is the output of wrap --json.
type wrapResult struct {
	File    string       `json:"file"`             // file that was named
	Target  string       `json:"target,omitempty"` // file that links lead to
	Format  string       `json:"format"`           // the host whose format it is; `mcp`: a format that several hosts share
	Undo    bool         `json:"undo"`             // `--undo` was given
	Changed bool         `json:"changed"`          // there is something to change
	Written bool         `json:"written"`          // the change was written
	Backup  string       `json:"backup,omitempty"` // copy of the file as it was
	Exact   bool         `json:"exact"`            // with `--undo`: the file is again what it was, byte for byte
	Links   int          `json:"links,omitempty"`  // other names of the file, where it stays as it was
	Diff    names.Text   `json:"diff"`             // the change, with keys and tokens blotted out
	Servers []wrapServer `json:"servers"`          // the servers of the file
}

// wrapServer is one server of the file.
type wrapServer struct {
	Name    names.Foreign   `json:"name"`                 // name of the server
	Project names.Foreign   `json:"project,omitempty"`    // project that it belongs to
	Line    int             `json:"line"`                 // line of the file
	State   string          `json:"state"`                // `wrap`, `unwrap`, or why it is left alone
	Roots   []wrapRoot      `json:"roots,omitempty"`      // roots that it gets: `spec`, `from`, `resolved` where links lead, and `outside` of the project
	Env     []names.Foreign `json:"env,omitempty"`        // variables that pass
	Home    string          `json:"home,omitempty"`       // directory that keeps its HOME
	Net     bool            `json:"net,omitempty"`        // it gets the network
	Fetcher string          `json:"fetched_by,omitempty"` // program that fetches it before it runs: npx, uvx, …
	Notes   []names.Text    `json:"notes,omitempty"`      // what to know before it is written
	Broad   []names.Foreign `json:"broad,omitempty"`      // wrapped already: flags that give more than a server should have
}

// wrapRoot is a root that a server gets, and why.
type wrapRoot struct {
	Spec names.Foreign `json:"spec"`
	From names.Text    `json:"from"`
	// Resolved is the path to which links lead; "" if the path passes no link.
	Resolved names.Foreign `json:"resolved,omitempty"`
	// Outside: a project's file names the root, and the root is not in the project.
	Outside bool `json:"outside,omitempty"`

	leads string // the path that Spec leads to, even if Spec passes no link
}

// notStarted has the states of entries of the file that have no command of a server, by their
// kinds. wrap leaves these entries alone.
var notStarted = map[hostconfig.Kind]string{
	hostconfig.Remote: "remote", hostconfig.Extension: "extension", hostconfig.Elsewhere: "elsewhere", hostconfig.HostCommand: "host command",
}

// serverStates are the texts about servers that are not changed, by their state.
var serverStates = map[string]string{
	"wrapped already": "left alone: it is started by rootsfs already (to wrap it anew, --undo first)",
	"another program": "left alone, NOT confined by this rootsfs: a program that is only called so starts it; write its own command in its place, then wrap it",
	"not confined":    "left alone, NOT confined: it is started by rootsfs run --unconfined; to confine it: wrap --undo --server NAME, then wrap",
	"remote":          "left alone: it is reached over the network, not started by the host",
	"extension":       "left alone: an extension of the host's starts it, NOT confined",
	"elsewhere":       "left alone: another file of the host's has its command; this one only switches it",
	"host command":    "left alone, NOT confined: no server, but a command that the host itself runs; remove it unless you want that",
	"container":       "left alone, NOT confined: its container tool does the work in a daemon, which a confined server does not reach (--server wraps it all the same)",
	"not wrapped":     "left alone: it is not wrapped",
	"by hand":         "left alone: it was wrapped by hand, or added since (--server unwraps it)",
	"not ours":        "left alone: it is rootsfs itself",
	"cannot":          `NOT undone: it was changed, and is no longer "run FLAGS -- COMMAND"`,
}

// diff returns the change as a unified diff, escaped for a terminal.
func (w *wrapping) diff(after *hostconfig.Config) names.Text {
	title := "wrapped"
	if w.undo {
		title = "unwrapped"
	}
	name := quoteIfNeeded(w.file.path)
	text := diff.Diff(name, w.conf.WithoutSecrets(), name+" ("+title+")", after.WithoutSecrets())
	_, text, _ = bytes.Cut(text, []byte("\n")) // drop the first line, which names a diff command
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString(visibleLine(strings.TrimRight(line, "\r\n")))
		b.WriteByte('\n')
	}
	return names.Text(b.String())
}

// maxShown is the most characters of a line that visibleLine shows, because a file may be a single
// long line. maxIndent is the longest indentation that visibleLine shows unescaped, and the longest
// run of spaces and tabs that visibleText shows unescaped.
const maxShown, maxIndent = 400, 40

// visibleLine returns a line of a diff for the terminal. It cuts the line after maxShown
// characters, and escapes the same characters as names.EscapeQuoted, except an indentation of at
// most maxIndent.
func visibleLine(line string) string {
	rest, more := line, ""
	n := 0
	for at := range line {
		if n++; n > maxShown {
			rest, more = line[:at], fmt.Sprintf("… (%d bytes)", len(line))
			break
		}
	}
	indent := len(rest) - len(strings.TrimLeft(rest, "+- \t"))
	if indent > maxIndent {
		indent = 0
	}
	return rest[:indent] + names.EscapeQuoted(rest[indent:]) + more
}

// printWrapping prints the change and its effects.
func (a *app) printWrapping(w *wrapping) {
	if w.res.Diff != "" {
		for line := range strings.Lines(w.res.Diff.Raw() + "\n") {
			a.foldAt("", strings.TrimSuffix(line, "\n"))
		}
	}
	for i := range w.res.Servers {
		a.printServer("", &w.res.Servers[i])
	}
	if !w.undo && slices.ContainsFunc(w.res.Servers, func(s wrapServer) bool { return len(s.Roots) > 0 }) && len(w.roots) == 0 {
		a.say("ro is read-only; to let a server write: rootsfs wrap %s --server NAME --root PATH:rw", names.ShellWord(w.file.path))
	}
}

// printServer prints the change of a server.
func (a *app) printServer(indent string, s *wrapServer) {
	name := indent + names.Quote(s.Name)
	if s.Project != "" {
		name += " of " + names.Quote(s.Project)
	}
	switch s.State {
	case "not named":
		return
	case "wrap":
		a.say("%s: confined, %s", name, confinementLine(s))
	case "unwrap":
		a.say("%s: started by its own command again, NOT confined", name)
	default:
		a.say("%s (line %d): %s", name, s.Line, serverStates[s.State])
	}
	for _, r := range s.Roots {
		leads := ""
		if r.Resolved != "" {
			leads = ", leads to " + names.Quote(r.Resolved)
		}
		if r.Outside {
			leads += ", OUTSIDE of its project"
		}
		a.say("%s  root %s, from %s%s", indent, quoteIfNeeded(r.Spec), r.From, leads)
	}
	for _, b := range s.Broad {
		a.say("%s  look at: %s", indent, quoteIfNeeded(b))
	}
	for _, n := range s.Notes {
		a.say("%s  note: %s", indent, n)
	}
}

// confinementLine returns a line about the remaining access of a server.
func confinementLine(s *wrapServer) string {
	text := "no network"
	switch {
	case s.Net && s.Fetcher != "":
		text = "with the network, by which " + s.Fetcher + " fetches it"
	case s.Net:
		text = "with the network"
	case s.Fetcher != "":
		text += ", which " + s.Fetcher + " needs to fetch it (--net gives it, --home DIRECTORY keeps what was fetched)"
	}
	if len(s.Roots) == 0 {
		return text + ", and no roots: it reaches no files of yours; --root gives it some"
	}
	return text + ", " + plural(len(s.Roots), "root")
}

// printWritten prints the changes that were made.
func (a *app) printWritten(w *wrapping) {
	path := names.ShellWord(w.file.path)
	switch {
	case !w.res.Changed && w.undo:
		a.say("nothing to undo in %s", quoteIfNeeded(w.file.path))
	case !w.res.Changed:
		a.say("nothing to wrap in %s", quoteIfNeeded(w.file.path))
	case w.dryRun:
		a.say("nothing was written: --dry-run")
	case w.res.Exact:
		a.say("written: %s is what it was before, byte for byte (%s)", quoteIfNeeded(w.file.path), quoteIfNeeded(w.res.Backup))
	case w.undo:
		a.say("written: %s; other changes made since it was wrapped stay; what it was just now: %s", quoteIfNeeded(w.file.path), quoteIfNeeded(w.res.Backup))
	default:
		a.say("written: %s; what it was: %s", quoteIfNeeded(w.file.path), quoteIfNeeded(w.res.Backup))
		a.say("start the host again; to undo: rootsfs wrap --undo %s", path)
	}
	if w.res.Written && w.res.Links > 0 {
		a.say("NOTE: the file has %s (hard links), where it is as it was: if the host reads it there, change that, too", plural(w.res.Links, "other name"))
	}
}
