package guard

import (
	"errors"
	"slices"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A DryRun asks for the gate's answer to an operation (Request.Dry). The operation passes
// Admit and the same judgements as a real one, so both have the same verdict. It changes nothing,
// charges no quota, leaves no record, uses no grant up, and never waits: Lease.Change does not
// run its call, and Lease.Making and Lease.Moving acquire no lock.
//
// A dry run does not check whether the audit log has room, nor how fast its subject may cause
// records.
//
// The DryRun collects the steps that led to the answer.
type DryRun struct {
	mu       sync.Mutex // guards the fields below
	steps    []Step
	resolved Path // where the links of the request's path led; zero without any
}

// StepKind is the kind of a step of a dry run.
type StepKind uint8

// The kinds.
const (
	StepRoot  StepKind = iota + 1 // a root whose policy applies; nested roots come after the operation's own
	StepRight                     // rights that a root lacks
	StepRule                      // a rule about a name
	StepLink                      // a link that was met
	StepLimit                     // a limit that would be exceeded
)

func (k StepKind) String() string {
	return rules.WordOf(k, "none", "root", "right", "rule", "link", "limit")
}

// Step is one step of a dry run.
type Step struct {
	Kind    StepKind
	Root    RootName        // whose policy it is; "" for a subject's limit, or one that Charges.Add exceeds
	At      string          // of a rule: the path of the name, below Root
	Lacks   Rights          // of a right
	Verdict pattern.Verdict // of a rule, which another rule may have lifted
	Link    MetLink         // of a link
	Refused bool            // the step refused; the listing of a directory goes on after that
}

// MetLink is a link that the resolution of a path has met.
type MetLink struct {
	At     string // its path below the root, on which there are no links
	Target string // its text, which a server may have chosen
	Rest   string // the rest of the path after the link
}

// maxSteps is the number of steps after which a dry run collects only steps that refuse. A
// directory to be moved may hold any number of names with rules.
const maxSteps = 200

// note adds a step. d may be nil.
func (d *DryRun) note(s Step) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.steps) < maxSteps || s.Refused {
		d.steps = append(d.steps, s)
	}
}

// noteResolved notes where links have led. d may be nil.
func (d *DryRun) noteResolved(p Path) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resolved = p
}

// Steps returns the steps so far.
func (d *DryRun) Steps() []Step {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.steps)
}

// IsDry reports whether the operation is a dry run: it is resolved and judged, and then not done.
func (l *Lease) IsDry() bool { return l.req.Dry != nil }

var errDryChange = errors.New("a dry run changes nothing")

// RequestOf returns a request by path for the operation of a record.
func RequestOf(rec *Record) Request {
	return Request{Caller: Caller{Subject: rec.Subject, Via: rec.Via}, Op: rec.Op, Path: rec.Path, Path2: rec.Path2, Need: rec.Rights}
}

// Explanation says whether an operation would be admitted, and why not.
type Explanation struct {
	Allowed bool
	// Kind is the kind of the refusal.
	Kind Kind
	// Lacks has the missing rights, if these are the reason. If any of several rights would be
	// enough, it is Write.
	Lacks Rights
	// Verdict is the verdict of the rules. If the operation is allowed, it can name a rule that
	// was lifted.
	Verdict pattern.Verdict
	Path    Path     // where the links of the path led
	Root    RootName // the root whose policy decided; it may be a nested one
	At      string   // the path below Root that the rule was about
	Link    *MetLink // the link that leaves the root, if that is the reason
	// Missing says that the path leads to no file. Rules about the names in the path were judged
	// nevertheless.
	Missing bool
	Steps   []Step
}

// Explanation returns the answer of a dry run that was for the path p and ended with err.
func (d *DryRun) Explanation(p Path, err error) Explanation {
	out := Explanation{Allowed: err == nil, Root: p.Root, Path: p, Steps: d.Steps()}
	d.mu.Lock()
	if d.resolved.Root != "" {
		out.Path = d.resolved
	}
	d.mu.Unlock()
	if err != nil {
		out.Kind = names.Reason(err)
	}
	// Use the error, not the last step: an operation may go on after a refusal, as the listing
	// of a directory does.
	var rule *rules.Refusal
	isByRule := errors.As(err, &rule)
	for _, s := range out.Steps {
		switch {
		case s.Kind == StepRule && isByRule && s.Refused && s.Verdict.Rule == rule.Rule,
			s.Kind == StepRule && err == nil && !s.Refused:
			out.Verdict, out.Root, out.At = s.Verdict, s.Root, s.At
		case s.Kind == StepRight && s.Refused && !isByRule && (out.Kind == names.Permission || out.Kind == names.ReadOnly):
			out.Lacks, out.Root = s.Lacks, s.Root
		case s.Kind == StepLink && s.Refused && out.Kind == names.Escaped:
			out.Link = &s.Link
		case s.Kind == StepLimit && s.Refused && s.Root != "" && (out.Kind == names.Quota || out.Kind == names.Rate):
			out.Root = s.Root
		}
	}
	return out
}
