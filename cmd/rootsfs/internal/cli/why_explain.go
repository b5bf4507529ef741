package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// explanation is the output of `rootsfs why --json`. Texts are escaped.
type explanation struct {
	control.CheckAnswer
	Detail      names.Text      `json:"detail,omitempty"`        // of the record
	Session     names.Foreign   `json:"session,omitempty"`       // that refused, or was asked
	Ended       bool            `json:"session_ended,omitempty"` // that session is not live any more
	RootPath    names.Foreign   `json:"root_path,omitempty"`     // where the root lies
	Mode        string          `json:"mode,omitempty"`          // of the root
	RevokedAt   *time.Time      `json:"revoked_at,omitempty"`    // the root that held the path ended then
	Confinement string          `json:"confinement,omitempty"`   // the level of the session's command
	Time        *time.Time      `json:"time,omitempty"`          // of the refusal on record
	PID         int32           `json:"pid,omitempty"`           // of the program that was refused
	Count       int64           `json:"count,omitempty"`         // how often it was refused so
	Limit       string          `json:"limit,omitempty"`         // the limit that was reached, as `--limit` names it
	LimitValue  string          `json:"limit_value,omitempty"`   // and what it is
	Now         bool            `json:"allowed_now,omitempty"`   // refused then, and would not be now
	Since       []names.Foreign `json:"ended_since,omitempty"`   // roots of the session that have ended since
	Allow       names.Text      `json:"allow,omitempty"`         // the command that would allow it
	Advice      names.Text      `json:"advice,omitempty"`        // what to do if no command would, or what else the command does
	Older       bool            `json:"older,omitempty"`         // the records were written by an older version, so `root_path`, `confinement` and `allow` may be missing

	Left []stageDiffEntry `json:"left,omitempty"` // of `--op apply`: the changes that cannot be applied

	choices    func()   // prints Left, and what the owner can do about it
	recordedOp string   // as the audit log names the operation
	path2      string   // the new name of a rename
	endOp      string   // the operation that ended the root: revoke, expire, …
	startedBy  string   // the command that started an ended session: run, mount or serve
	point      string   // the mountpoint of that session
	builtIn    bool     // the rule on record is built in
	hasCommand bool     // the session on record has started one
	limits     []string // one of these was reached
	limitOwner string   // the root or server that has the limit
	host       string   // of a connection that no rule permitted, as --net takes it
}

// fill copies the session's answer.
func (e *explanation) fill(ans *control.WhyAnswer) {
	e.CheckAnswer = ans.Check
	if ans.Session != "" {
		e.Session, e.Confinement = names.Foreign(ans.Session), ans.Confinement
	}
	if ans.RootPath != "" {
		e.RootPath, e.Mode = names.Foreign(ans.RootPath), ans.Mode
	}
}

func rootNamed(st *control.Status, name string) *control.Root {
	if i := slices.IndexFunc(st.Roots, func(r control.Root) bool { return r.Name.Raw() == name }); i >= 0 {
		return &st.Roots[i]
	}
	return nil
}

// requestText returns the operation that was refused or asked about, with its path.
func (e *explanation) requestText() string {
	switch {
	case e.Path != "":
		return e.Op + " " + quoteIfNeeded(e.Path)
	case e.Op == names.OpNone.String():
		return "request"
	}
	return e.Op
}

// text returns the answer in one line.
func (e *explanation) text() string {
	if e.RevokedAt != nil && (e.Time == nil || e.Reason == names.Revoked.String()) {
		how := "was revoked"
		if e.endOp == names.OpExpire.String() {
			how = "expired"
		}
		return fmt.Sprintf("%s: refused: root %s %s at %s", e.requestText(), quoteIfNeeded(e.Root), how, e.RevokedAt.Local().Format(time.DateTime))
	}
	if e.Limit != "" {
		value := ""
		if e.LimitValue != "" {
			value = " (" + e.LimitValue + ")"
		}
		return fmt.Sprintf("%s: refused: the limit %s%s of %s is reached", e.requestText(), e.Limit, value, e.limitOwner)
	}
	if e.Link != nil && !e.Allowed {
		return fmt.Sprintf("%s: refused: it is a link, or passes one, that leaves the root", e.requestText())
	}
	if !e.Allowed && e.Rule == nil && e.Lacks == "" && e.Detail != "" {
		return fmt.Sprintf("%s: refused: %s", e.requestText(), e.Detail)
	}
	verdict, _ := checkText(&e.CheckAnswer)
	if e.Session == "" && e.Root == "" && !e.Allowed {
		return fmt.Sprintf("%s: refused: the root does not hold it", e.requestText())
	}
	if e.Shown {
		return verdict + ", as every file of the system that the confinement shows"
	}
	return verdict
}

// commandWords are the words of a command line, before names.ShellWord quotes them.
type commandWords []names.Foreign

// line returns the words as a command line of rootsfs.
func (w commandWords) line() names.Text {
	text := "rootsfs"
	for _, word := range w {
		text += " " + names.ShellWord(word)
	}
	return names.Text(text)
}

// spec returns a SPEC of the root, NAME=PATH:MODE, with the given mode.
func (e *explanation) spec(mode string) names.Foreign {
	return e.Root + "=" + e.RootPath + ":" + names.Foreign(mode)
}

// remedy returns the command that would allow an operation that a live session refuses; nil: none
// is known. If a rule of a root decided, rules has all rules of that root.
func (e *explanation) remedy(rules *control.RootPolicy, path string) commandWords {
	switch {
	case e.RevokedAt != nil && e.RootPath == "":
		return nil
	case e.RevokedAt != nil:
		return append(commandWords{"roots", "add"}, e.grantFlags()...)
	case e.Link != nil && e.Confinement == "":
		e.Advice = e.linkAdvice()
		return nil
	case e.Link != nil && e.holdsHome(linkDest(e.Link)):
		return nil
	case e.Link != nil:
		return commandWords{"roots", "add", names.Foreign(linkDest(e.Link)) + ":ro"}
	case e.Lacks != "":
		return commandWords{"roots", "set", e.Root, names.Foreign(e.widerMode())}
	case e.Rule != nil && rules != nil:
		return e.withoutRule(rules)
	case e.Reason == names.Suspended.String(), e.Paused != nil && e.Paused.Cause == string(guard.PausedByOwner):
		return commandWords{"resume"}
	case e.Reason == names.Unavailable.String():
		return commandWords{"roots", "renew", e.Root}
	case e.Reason == names.NoConsent.String() && e.Root == "" && filepath.IsAbs(path):
		if dir := nearestExisting(path); !e.holdsHome(dir) {
			return commandWords{"roots", "add", names.Foreign(dir) + ":" + modeFor(e.Op)}
		}
	}
	return nil
}

// holdsHome reports whether a directory is or contains a home directory. If so, holdsHome sets
// e.Advice, and the caller proposes no command: a server may have chosen the path or the link.
func (e *explanation) holdsHome(dir string) bool {
	if at := session.Resolve(dir); at != "/" && !slices.ContainsFunc(homeDirs(), func(home string) bool { return names.Under(home, at) }) {
		return false
	}
	e.Advice = names.Text("name a file or directory that exists; " + names.Quote(dir) + " is or holds a home directory, which is too much for a root")
	return true
}

// withoutRule returns the command that sets the root's patterns without the pattern that decided.
// If that pattern is built in, the command adds a pattern that allows this path.
func (e *explanation) withoutRule(rules *control.RootPolicy) commandWords {
	out := commandWords{"policy", "set", e.Root}
	isFromGitignore := func(r *control.PolicyRule) bool { return filepath.Base(r.From.Raw()) == ".gitignore" }
	gitignore, builtin := false, false
	if isFromGitignore(e.Rule) {
		e.Advice = "the command shows everything that .gitignore files hide in the root; add --hide PATTERN for what is to stay hidden"
	}
	for _, r := range rules.Rules {
		builtin = builtin || r.From == control.BuiltIn
		switch {
		case r.From == control.BuiltIn, r == *e.Rule:
		case isFromGitignore(&r):
			gitignore = !isFromGitignore(e.Rule)
		default:
			out = append(out, "--"+names.Foreign(r.Effect), r.Pattern)
		}
	}
	if e.Rule.From == control.BuiltIn {
		out = append(out, e.allowFlags()...)
	}
	if gitignore {
		out = append(out, "--respect-gitignore")
	}
	if !builtin {
		out = append(out, "--no-default-policy")
	}
	return out
}

// linkAdvice returns the advice for a link that a mount does not follow.
func (e *explanation) linkAdvice() names.Text {
	return names.Text("open what the link leads to, " + names.Quote(linkDest(e.Link)) + ", by a path of its own: a mount follows no link out of a root, nor one that is an absolute path")
}

// grantFlags returns a SPEC of the root. If the refused operation lacked rights, the mode in the
// SPEC has these rights, too. Otherwise, if a built-in rule refused the operation, a flag --allow
// follows.
func (e *explanation) grantFlags() commandWords {
	switch {
	case e.Lacks != "":
		return commandWords{e.spec(e.widerMode())}
	case e.isBuiltinRule():
		return append(commandWords{e.spec(e.Mode)}, e.allowFlags()...)
	}
	return commandWords{e.spec(e.Mode)}
}

// allowFlags returns a flag that allows the path that a rule refused. If a rename was refused because
// of a file at its old name or below, a second flag allows this file at its new name, too.
func (e *explanation) allowFlags() commandWords {
	flags := commandWords{"--allow", literalPattern(e.rel())}
	refused, from := cmp.Or(e.At, e.Path).Raw(), e.Path.Raw()
	if e.path2 != "" && names.Under(refused, from) {
		if rel, ok := strings.CutPrefix(e.path2+refused[len(from):], e.Root.Raw()+"/"); ok {
			flags = append(flags, "--allow", literalPattern(rel))
		}
	}
	return flags
}

// isBuiltinRule reports whether a built-in rule refused the operation.
func (e *explanation) isBuiltinRule() bool {
	if e.Rule != nil {
		return e.Rule.From == control.BuiltIn
	}
	return e.builtIn
}

// runLine returns the command line for a session that allows the refused operation: of `rootsfs
// run`, or of the command that started the session on record. It returns "" if none is known.
// hostPath is the path of the operation on the host.
func (e *explanation) runLine(hostPath string) names.Text {
	var flags commandWords
	switch {
	case e.RootPath == "" && filepath.IsAbs(hostPath):
		if dir := nearestExisting(hostPath); !e.holdsHome(dir) {
			flags = commandWords{"--root", names.Foreign(dir) + ":" + modeFor(e.Op)}
		}
	case e.host != "":
		flags = commandWords{"--net=" + names.Foreign(e.host)}
	case e.RootPath == "":
	case e.Limit != "":
		flags = append(commandWords{"--root"}, e.limitFlags()...)
	case e.Lacks != "", e.isBuiltinRule():
		flags = append(commandWords{"--root"}, e.grantFlags()...)
	case e.Reason == names.Escaped.String():
		if e.Link == nil {
			e.Link = linkAt(hostPath)
		}
		if e.Link != nil && (e.startedBy == "mount" || e.startedBy == "serve") {
			e.Advice = e.linkAdvice()
		} else if e.Link != nil && !e.holdsHome(linkDest(e.Link)) {
			flags = commandWords{"--root", e.spec(e.Mode), "--root", names.Foreign(linkDest(e.Link)) + ":ro"}
		}
	}
	switch {
	case flags == nil:
		return ""
	case e.startedBy == "mount":
		return append(append(commandWords{"mount"}, flags...), names.Foreign(e.point)).line()
	case e.startedBy == "serve":
		return append(commandWords{"serve"}, flags...).line()
	}
	return append(append(commandWords{"run"}, flags...), "--", "COMMAND").line()
}

// rel returns the refused path below the root.
func (e *explanation) rel() string {
	_, rel, _ := strings.Cut(cmp.Or(e.At, e.Path).Raw(), "/")
	return rel
}

// widerMode returns the root's mode with the missing rights added.
func (e *explanation) widerMode() string {
	have, err := rules.ParseMode(e.Mode)
	lacks, lerr := rules.ParseMode(e.Lacks)
	if err != nil || lerr != nil {
		return e.Lacks
	}
	return (have | lacks).String()
}

// modeFor returns the mode of a root that allows an operation.
func modeFor(op string) names.Foreign {
	if slices.Contains([]string{"read", "list", "stat", "watch", "lookup", "getattr", "readlink", "opendir", "readdir"}, op) {
		return "ro"
	}
	return "rw"
}

// nearestExisting returns path if it exists, otherwise the nearest existing path above it.
func nearestExisting(path string) string {
	at := filepath.Clean(path)
	for ; at != "/"; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			break
		}
	}
	return at
}

// literalPattern returns a pattern that matches one path below a root, and nothing else.
func literalPattern(rel string) names.Foreign {
	var b strings.Builder
	b.WriteByte('/')
	for i := range len(rel) {
		if strings.IndexByte(`*?[]\`, rel[i]) >= 0 || rel[i] == ' ' && i == len(rel)-1 {
			b.WriteByte('\\')
		}
		b.WriteByte(rel[i])
	}
	return names.Foreign(b.String())
}

// linkDest returns the path on the host that a link names. It follows no further links.
func linkDest(l *control.Link) string {
	if target := l.Target.Raw(); !filepath.IsAbs(target) {
		return filepath.Join(filepath.Dir(l.At.Raw()), target)
	}
	return filepath.Clean(l.Target.Raw())
}

// linkAt reads a link; nil if there is none.
func linkAt(path string) *control.Link {
	text, err := os.Readlink(path)
	if err != nil {
		return nil
	}
	return &control.Link{At: names.Foreign(path), Target: names.Foreign(text)}
}
