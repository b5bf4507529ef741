package guard

import (
	"errors"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Patterns are judged on each name that a resolution passes, when it passes it, never on
// the path that was asked for. Package vfs shows the lease each directory (JudgeDir) and
// each last name (Judge, JudgeAs); in a root without patterns that costs a comparison.
// Admit judges open files: a file was judged when it was opened, its Hold has the
// verdict, and when patterns change every Hold is made anew.

// Access is what an operation does to a name.
type Access uint8

// The accesses. A denied name permits ToLook only; a protected one ToLook and ToRead.
const (
	ToLook   Access = iota + 1 // whether it is there, its attributes
	ToRead                     // contents, names in it, where a link leads
	ToChange                   // contents, attributes, the name itself
	ToMake                     // the name is to be made, or to get new contents
)

// accesses is the one table from operations to accesses, for the name an
// operation is about. An operation that is not in it counts as one that changes.
var accesses = [names.Ops]Access{
	names.OpLookup: ToLook, names.OpGetattr: ToLook, names.OpStatfs: ToLook, names.OpFlush: ToLook,
	names.OpFsync: ToLook, names.OpReadlink: ToRead, names.OpOpendir: ToRead, names.OpReaddir: ToRead,
	names.OpOpen: ToRead, names.OpRead: ToRead, names.OpLseek: ToRead, names.OpCopyFileRange: ToRead,
	names.OpGetxattr: ToRead, names.OpListxattr: ToRead, names.OpGetlk: ToRead, names.OpSetlk: ToRead,
	names.OpWatch: ToRead, names.OpCreate: ToMake, names.OpTmpfile: ToMake, names.OpMkdir: ToMake,
	names.OpMknod: ToMake, names.OpSymlink: ToMake, names.OpLink: ToMake, names.OpReplace: ToMake,
}

// accessOf is what an operation does to the name it is about; need are the rights
// its arguments add.
func accessOf(op Op, need Rights, makes bool) Access {
	a := ToChange
	if int(op) < len(accesses) && accesses[op] != 0 {
		a = accesses[op]
	}
	switch {
	case op == names.OpOpen && need.Mutating():
		return ToChange
	case a == ToChange && makes:
		return ToMake
	}
	return a
}

// Access is what the operation does to the name it is about.
func (l *Lease) Access() Access { return l.req.access(l.req.Names > 0) }

// OnlyReads reports whether the operation changes nothing.
func (r *Request) OnlyReads() bool { return r.access(false) <= ToRead }

func (r *Request) access(makes bool) Access {
	if r.AttributesOnly {
		return ToLook
	}
	return accessOf(r.Op, r.Need, makes)
}

// Refusal is the cause of an error by which a pattern refused an operation. Its
// text tells a server no more than it may know; Rule is for the owner.
type Refusal struct {
	Effect     pattern.Effect
	Rule       *pattern.Rule
	inMovedDir bool // the directory that holds the name was to be moved
}

func (r *Refusal) Error() string {
	if r.inMovedDir {
		return "the policy protects or hides something in this directory, so it stays where it is; move the rest of what is in it"
	}
	switch r.Effect { //nolint:exhaustive // None refuses nothing
	case pattern.Protect:
		return "the policy protects this name: it can be read and not changed; only the owner can lift that (rootsfs policy check)"
	case pattern.Deny:
		return "the policy denies this name; only the owner can lift that (rootsfs policy check)"
	}
	return "no such file or directory"
}

// Why names the rule, for the owner.
func (r *Refusal) Why() string {
	where := r.Rule.Source()
	if r.Rule.File != "" {
		where = names.Quote(where) + " line " + strconv.Itoa(r.Rule.Line)
	}
	return r.Effect.String() + " " + names.Quote(r.Rule.Text) + " (" + where + ")"
}

// facts returns what a record tells of the rule.
func (r *Refusal) facts() Facts {
	return Facts{Effect: r.Effect.String(), Rule: r.Rule.Text, RuleFrom: r.Rule.Source(), RuleLine: r.Rule.Line}
}

// refusal is the error of an access to a name with a verdict, nil if it passes.
func refusal(a Access, v pattern.Verdict) error {
	kind := names.Permission
	switch v.Effect {
	case pattern.None:
		return nil
	case pattern.Protect:
		if a == ToLook || a == ToRead {
			return nil
		}
	case pattern.Deny:
		if a == ToLook {
			return nil
		}
	case pattern.Hide:
		if a != ToMake {
			kind = names.Hidden
		}
	}
	if a == ToMake && v.Effect == pattern.Hide {
		// "No such file" would be no answer to a create.
		v.Effect = pattern.Deny
	}
	return &Error{Kind: kind, Err: &Refusal{Effect: v.Effect, Rule: v.Rule}}
}

// AsCreateRefusal turns a Hidden refusal into the Permission refusal that a create of the
// name would get. It is for operations that create the missing directories of a path. Other
// errors stay as they are.
func AsCreateRefusal(err error) error {
	var r *Refusal
	if errors.Is(err, names.Hidden) && errors.As(err, &r) {
		return refusal(ToMake, pattern.Verdict{Effect: r.Effect, Rule: r.Rule})
	}
	return err
}

// Patterned reports whether names have to be judged at all.
func (l *Lease) Patterned() bool { return l.patterned }

// Spells reports whether the source may take this name for another spelling of one that
// is in the directory: then the name on disk has to be found, and judged too.
func (l *Lease) Spells(name string) bool {
	if !l.patterned {
		return false
	}
	naming := ExactNames
	l.anyRules(func(r *ruleset) bool { naming = max(naming, r.naming); return false })
	return naming == ShortNames || naming == FoldedNames && pattern.Suspicious(name)
}

// anyRules reports whether the rules of the root match, or those of a root nested in it.
func (l *Lease) anyRules(matches func(*ruleset) bool) bool {
	if r := l.policy.rules; r != nil && matches(r) {
		return true
	}
	for i := range l.nesting.scopes {
		if r := l.nesting.scopes[i].root.policy.Load().rules; r != nil && matches(r) {
			return true
		}
	}
	return false
}

// Hides reports whether names in the root may be hidden.
func (l *Lease) Hides() bool {
	return l.patterned && l.anyRules(func(r *ruleset) bool { return r.hides })
}

// JudgeDir judges a directory that the operation enters, and those above it.
func (l *Lease) JudgeDir(rel string) error {
	if !l.patterned || rel == "" {
		return nil
	}
	return l.eachRules(rel, func(r *root, set *ruleset, rel string) error {
		v := set.barrier((*rootFacts)(r), rel)
		return l.decide(r, rel, "", v, refusal(ToRead, v))
	})
}

// Judge judges the name that resolution really reached, in the directory dirRel
// of the root, for what the operation does. Every entry of a composite operation
// is judged.
func (l *Lease) Judge(dirRel, name string) error {
	return l.JudgeAs(l.Access(), dirRel, name, pattern.Unknown)
}

// JudgeAs is Judge for another access than that of the operation. t is the type of the file
// that has the name, or will have it, if that is known.
func (l *Lease) JudgeAs(a Access, dirRel, name string, t pattern.Type) error {
	if !l.patterned {
		return nil
	}
	if t == pattern.Unknown && a == ToMake {
		t = createdType(l.req.Op)
	}
	if len(l.nesting.scopes) == 0 { // nearly always: no path has to be put together
		if l.policy.rules == nil {
			return nil
		}
		return l.judgeIn(l.root, l.policy.rules, a, dirRel, name, t)
	}
	return l.eachRules(under(dirRel, name), func(r *root, set *ruleset, rel string) error {
		dir, base := splitRel(rel)
		return l.judgeIn(r, set, a, dir, base, t)
	})
}

// judgeIn is JudgeAs by the rules of one root, in which the directory dir is.
func (l *Lease) judgeIn(r *root, set *ruleset, a Access, dir, base string, t pattern.Type) error {
	f := (*rootFacts)(r)
	v := set.judge(r, f, dir, base, t)
	if v.Effect == pattern.Protect && l.isException(a, v.Rule, f, under(dir, base)) {
		return l.decide(r, dir, base, v, nil)
	}
	if a == ToMake && v.Effect == pattern.None && t == pattern.Link {
		if rule := set.set.At(dir).Leads(dir, base, f); rule != nil {
			v = pattern.Verdict{Effect: pattern.Protect, Rule: rule}
		}
	}
	return l.decide(r, dir, base, v, refusal(a, v))
}

// createdType is the type of what an operation makes.
func createdType(op Op) pattern.Type {
	switch op {
	case names.OpMkdir:
		return pattern.Dir
	case names.OpSymlink:
		return pattern.Link
	case names.OpCreate, names.OpMknod, names.OpReplace, names.OpWrite:
		return pattern.Other
	}
	return pattern.Unknown
}

// isException reports whether a rule protects a name and yet admits this operation on it.
func (l *Lease) isException(a Access, r *pattern.Rule, f *rootFacts, rel string) bool {
	if r.Builtin() && r.Stays {
		return a == ToMake || !removesName(l.req.Op)
	}
	return a == ToMake && l.beginsRepository(r, f, rel)
}

// removesName reports whether an operation makes a name go away, by removing it or by moving
// what has it to another name.
func removesName(op Op) bool {
	return op == names.OpUnlink || op == names.OpRmdir || op == names.OpRename
}

// beginsRepository reports whether the operation begins a repository, or a rebase in one.
// Whoever may make names may do that: the name .git is protected where it exists, and may
// be made where it does not.
func (l *Lease) beginsRepository(r *pattern.Rule, f *rootFacts, rel string) bool {
	if !r.Builtin() || !r.Begins {
		return false
	}
	switch l.req.Op { //nolint:exhaustive // the others make no repository
	case names.OpMkdir, names.OpCreate:
		return true // they fail on a name that is taken
	case names.OpReplace, names.OpWrite:
		_, err := f.look(rel)
		return errors.Is(err, names.NotExist)
	}
	return false
}

// eachRoot calls f with the roots that a path lies in, and the path below each, until
// f returns an error: the operation's own root, and those around the path that concern
// the caller.
func (l *Lease) eachRoot(rel string, f func(r *root, rel string) error) error {
	if err := f(l.root, rel); err != nil {
		return err
	}
	for i := range l.nesting.scopes {
		s := &l.nesting.scopes[i]
		inner, ok := s.below(rel)
		if !ok || !s.whose.Covers(l.req.Caller.Subject) {
			continue
		}
		if err := f(s.root, inner); err != nil {
			return err
		}
	}
	return nil
}

// eachRules is eachRoot for the roots that have rules, and those rules.
func (l *Lease) eachRules(rel string, f func(r *root, set *ruleset, rel string) error) error {
	return l.eachRoot(rel, func(r *root, rel string) error {
		set := l.policy.rules // as at admission
		if r != l.root {
			set = r.policy.Load().rules
		}
		if set == nil {
			return nil
		}
		return f(r, set, rel)
	})
}

// judgeHeld judges open files by the verdict from when they were opened, or, where that
// depends on the file's contents, by what is in it now: a secret may have come since.
func (l *Lease) judgeHeld() error {
	req := &l.req
	if v := l.heldVerdict(req.Held); v.Effect != pattern.None {
		if err := l.decide(l.root, req.Path.Rel(), "", v, refusal(req.access(false), v)); err != nil {
			return err
		}
	}
	// The second file is the one that is written, or given another name.
	if v := l.heldVerdict(req.HeldTarget); v.Effect != pattern.None {
		return l.decide(l.root, req.Path2.Rel(), "", v, refusal(ToChange, v))
	}
	return nil
}

// JudgeNow judges an open file by the path below the root that it has now.
func (l *Lease) JudgeNow(a Access, rel string) error {
	v, _ := l.effect(rel)
	return l.decide(l.root, rel, "", v, refusal(a, v))
}

func (l *Lease) heldVerdict(h *Hold) pattern.Verdict {
	switch {
	case h == nil:
		return pattern.Verdict{}
	case h.contentPath == "":
		return h.verdict
	}
	v, _ := l.effect(h.contentPath)
	return v
}

// effect is what the patterns say of a path, for an open file. byContents says
// that they had to look into it.
func (l *Lease) effect(rel string) (v pattern.Verdict, byContents bool) {
	if !l.patterned || rel == "" {
		return pattern.Verdict{}, false
	}
	_ = l.eachRules(rel, func(r *root, set *ruleset, rel string) error {
		dir, base := splitRel(rel)
		if set.silent(dir, base) {
			return nil // nearly always, and then nothing is allocated
		}
		facts := &lookedInto{rootFacts: (*rootFacts)(r)}
		got := set.judge(r, facts, dir, base, pattern.Unknown)
		if got.Effect == pattern.Protect && got.Rule.Stays {
			got = pattern.Verdict{} // nothing is removed by an open file
		}
		if got.Effect > v.Effect {
			v = got
		}
		byContents = byContents || facts.readContents
		return nil
	})
	return v, byContents
}

// Current returns an error (names.Conflict) if the root's patterns have changed since the
// operation was admitted. Long operations call it just before they take effect.
func (l *Lease) Current() error {
	if l.root.policy.Load().rules != l.policy.rules {
		return &Error{Kind: names.Conflict, Err: errors.New("the root's patterns changed meanwhile; try again")}
	}
	return nil
}

func under(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func splitRel(rel string) (dir, base string) {
	i := strings.LastIndexByte(rel, '/')
	return rel[:max(0, i)], rel[i+1:]
}
