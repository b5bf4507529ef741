package control

import (
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// BuiltIn is the origin of the rules that every root begins with.
const BuiltIn = pattern.BuiltIn

// PolicyRule is one rule in force.
type PolicyRule struct {
	Effect  string        `json:"effect"` // hide, deny, protect, allow or except
	Pattern names.Foreign `json:"pattern"`
	// From is BuiltIn, "command line", or the file, and Line its line.
	From   names.Foreign `json:"from"`
	Line   int           `json:"line,omitempty"`
	Dir    names.Foreign `json:"dir,omitempty"`  // directory that the pattern is written for, below the root
	When   string        `json:"when,omitempty"` // further condition of the rule
	Reason string        `json:"reason,omitempty"`
}

// Rules converts rules of a registry for an answer.
func Rules(list []*pattern.Rule) []PolicyRule {
	out := make([]PolicyRule, 0, len(list))
	for _, r := range list {
		one := PolicyRule{Effect: r.List.String(), Pattern: names.Foreign(r.Text), From: names.Foreign(r.Source()), Line: r.Line, Dir: names.Foreign(r.Base), Reason: r.Reason}
		if r.List == pattern.Except {
			one.Effect = "except"
		}
		switch r.Condition { //nolint:exhaustive // Always needs no word
		case pattern.AtTop:
			one.When = "in the top directory of a repository"
		case pattern.Control:
			one.When = "unless the root's users made the repository"
		case pattern.Tokens:
			one.When = "while it holds a token"
		case pattern.GitDir, pattern.SvnDir:
			one.When = "in a directory that holds " + strings.Join(builtin.Parts(r.Condition), ", ") + ", unless the root's users made it"
		}
		out = append(out, one)
	}
	return out
}

// RootPolicy has the rules in force in one root.
type RootPolicy struct {
	Root   names.Foreign `json:"root"`
	Mode   string        `json:"mode"`
	Lifted names.Text    `json:"lifted,omitempty"` // which built-in protections are off, in words
	Rules  []PolicyRule  `json:"rules"`
	// Repos are directories of repositories that the root's users made: their
	// hooks and configuration are untrusted.
	Repos []names.Foreign `json:"created_repositories,omitempty"`
}

// PolicyAnswer lists the policies of the roots.
type PolicyAnswer struct {
	Roots []RootPolicy `json:"roots"`
}

// CheckRequest asks whether a program may do an operation. The operation is not done.
type CheckRequest struct {
	// Path is ROOT/PATH, absolute, or relative to Dir. Of a path through the mountpoint, only the
	// part below the mountpoint counts. If Root is set, Path is a path below that root.
	Path    string `json:"path"`
	Dir     string `json:"dir,omitempty"` // the asker's working directory; "": no path is relative to it
	Root    string `json:"root,omitempty"`
	Path2   string `json:"path2,omitempty"` // the second path of rename and link, as ROOT/PATH
	Op      string `json:"op"`
	Subject string `json:"subject,omitempty"`
}

// CheckAnswer says whether the operation is allowed, and what decided.
type CheckAnswer struct {
	Path    names.Foreign `json:"path"`             // as ROOT/PATH
	Op      string        `json:"op"`               // operation
	Allowed bool          `json:"allowed"`          // whether it would be allowed
	Reason  string        `json:"reason,omitempty"` // the kind of refusal
	Lacks   string        `json:"lacks,omitempty"`  // rights that the root lacks
	Root    names.Foreign `json:"root"`             // whose policy decided; "" if no root holds the path
	Rule    *PolicyRule   `json:"rule,omitempty"`   // the rule that decided
	Lifted  *PolicyRule   `json:"lifted,omitempty"` // the rule that this one lifts
	At      names.Foreign `json:"at,omitempty"`     // the name that the rule is about, if it is not that of `path`: ROOT/PATH
	Link    *Link         `json:"link,omitempty"`   // the link on the way to the path that leaves its root: at, and its target
	Paused  *Paused       `json:"paused,omitempty"` // the pause that refuses everything
	Shown   bool          `json:"shown,omitempty"`  // allowed, because the confinement shows the path; no root holds it
}

// WhyAnswer is a CheckAnswer with the further facts that `rootsfs why` needs.
type WhyAnswer struct {
	Check CheckAnswer `json:"check"`
	// Asked is the requested path, as ROOT/PATH or absolute. If links lead out of their root,
	// Check.Path may be the path that they lead to.
	Asked string `json:"asked"`
	// NoRoot: Asked begins with a name, and the session has no root of that name.
	NoRoot      bool        `json:"no_root,omitempty"`
	Session     string      `json:"session"`
	RootPath    string      `json:"root_path,omitempty"`   // of Check.Root
	Mode        string      `json:"mode,omitempty"`        // of Check.Root
	Confinement string      `json:"confinement,omitempty"` // of the session's command
	Policy      *RootPolicy `json:"policy,omitempty"`      // of Check.Root, if a rule of it decided
	Last        *Refusal    `json:"last"`                  // as in RefusalAnswer
}

// Link is a link that leads out of its root.
type Link struct {
	At     names.Foreign `json:"at"`     // path of the link on the host
	Target names.Foreign `json:"target"` // target as the link has it
}

// PatternsRequest replaces the owner's patterns of a root.
type PatternsRequest struct {
	Name     string         `json:"name"`
	Patterns guard.Patterns `json:"patterns"`
}
