package guard

import (
	"errors"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// The patterns judge each name at the moment when a resolution passes the name. They never judge
// the requested path. Package vfs calls Judge.Dir for each directory, and Judge.Name or Judge.As
// for each last name. In a root without patterns such a call costs one comparison. Admit judges an
// open file by its Hold, which has the verdict from the opening. When patterns change, the Hold
// becomes stale, and the caller has to make a new one (ErrJudgeAgain).

// Judge judges names for an operation, by the rules of every root that they lie in and that
// concerns the caller.
type Judge struct{ l *Lease }

// Judge returns the judge of the operation.
func (l *Lease) Judge() Judge { return Judge{l} }

// Access returns the access of the operation to its name.
func (j Judge) Access() rules.Access { return j.l.req.access(j.l.req.Names > 0) }

// OnlyReads reports whether the operation changes nothing.
func (r *Request) OnlyReads() bool { return r.access(false) <= rules.ToRead }

func (r *Request) access(makes bool) rules.Access {
	if r.AttributesOnly {
		return rules.ToLook
	}
	return rules.AccessOf(r.Op, r.Need, makes)
}

// Patterned reports whether names have to be judged at all.
func (j Judge) Patterned() bool { return j.l.patterned }

// Spells reports whether the source may take this name for another spelling of a name in the
// directory that pattern.Fold does not cover. Then the name on disk has to be found and judged,
// too.
func (j Judge) Spells(name string) bool {
	if !j.l.patterned {
		return false
	}
	naming := rules.ExactNames
	j.anyRules(func(r *rules.RuleSet) bool { naming = max(naming, r.Naming()); return false })
	return naming == rules.ShortNames || naming == rules.FoldedNames && pattern.Suspicious(name)
}

// anyRules reports whether matches is true for the rules of the root, or of a root nested in it.
func (j Judge) anyRules(matches func(*rules.RuleSet) bool) bool {
	if r := j.l.policy.Rules(); r != nil && matches(r) {
		return true
	}
	for i := range j.l.nesting.scopes {
		if r := j.l.nesting.scopes[i].root.policy.Load().Rules(); r != nil && matches(r) {
			return true
		}
	}
	return false
}

// Hides reports whether names in the root may be hidden.
func (j Judge) Hides() bool {
	return j.l.patterned && j.anyRules(func(r *rules.RuleSet) bool { return r.Hides() })
}

// Dir judges a directory that the operation enters, and those above it.
func (j Judge) Dir(rel string) error {
	if !j.l.patterned || rel == "" {
		return nil
	}
	return j.eachRules(rel, func(r *root, set *rules.RuleSet, rel string) error {
		v, err := set.JudgeDir(r.facts, rel)
		return j.noteVerdict(r, rel, "", v, err)
	})
}

// Name judges the name that the resolution has reached, in the directory dirRel of the root,
// for the operation's access. An operation on several names calls Name or As for each of them.
func (j Judge) Name(dirRel, name string) error {
	return j.As(j.Access(), dirRel, name, pattern.Unknown)
}

// As is Name for another access than that of the operation. t is the type of the file
// that has the name, or will have it, if that is known.
func (j Judge) As(a rules.Access, dirRel, name string, t pattern.Type) error {
	if !j.l.patterned {
		return nil
	}
	if len(j.l.nesting.scopes) == 0 { // nearly always: then no path has to be built
		if j.l.policy.Rules() == nil {
			return nil
		}
		return j.judgeIn(j.l.root, j.l.policy.Rules(), a, dirRel, name, t)
	}
	return j.eachRules(rules.Join(dirRel, name), func(r *root, set *rules.RuleSet, rel string) error {
		dir, base := rules.Split(rel)
		return j.judgeIn(r, set, a, dir, base, t)
	})
}

// eachRoot calls f with each root that a path lies in, and with the path below that root, until f
// returns an error. The first is the operation's own root. The others are the nested directories
// that contain the path and whose grant covers the caller.
func (j Judge) eachRoot(rel string, f func(r *root, rel string) error) error {
	if err := f(j.l.root, rel); err != nil {
		return err
	}
	for i := range j.l.nesting.scopes {
		s := &j.l.nesting.scopes[i]
		inner, ok := s.below(rel)
		if !ok || !s.whose.Covers(j.l.req.Caller.Subject) {
			continue
		}
		if err := f(s.root, inner); err != nil {
			return err
		}
	}
	return nil
}

// eachRules is eachRoot for the roots that have rules. f gets the rules, too.
func (j Judge) eachRules(rel string, f func(r *root, set *rules.RuleSet, rel string) error) error {
	return j.eachRoot(rel, func(r *root, rel string) error {
		set := j.l.policy.Rules() // as at admission
		if r != j.l.root {
			set = r.policy.Load().Rules()
		}
		if set == nil {
			return nil
		}
		return f(r, set, rel)
	})
}

// held judges open files by the verdict from their opening. If the verdict depends on a file's
// contents, held judges the present contents: a secret may have been written since.
func (j Judge) held() error {
	req := &j.l.req
	if v := j.heldVerdict(req.Held); v.Effect != pattern.None {
		if err := j.noteVerdict(j.l.root, req.Path.Rel(), "", v, rules.RefusalOf(req.access(false), v)); err != nil {
			return err
		}
	}
	// HeldTarget is the hold of the file that is written, or given another name.
	if v := j.heldVerdict(req.HeldTarget); v.Effect != pattern.None {
		return j.noteVerdict(j.l.root, req.Path2.Rel(), "", v, rules.RefusalOf(rules.ToChange, v))
	}
	return nil
}

// judgeIn judges a name in the directory dir by the rules of one root. dir is the path below that
// root.
func (j Judge) judgeIn(r *root, set *rules.RuleSet, a rules.Access, dir, base string, t pattern.Type) error {
	v, err := set.Judge(r.facts, j.l.req.Op, a, dir, base, t)
	return j.noteVerdict(r, dir, base, v, err)
}

// Now judges an open file by its present path below the root.
func (j Judge) Now(a rules.Access, rel string) error {
	v, _ := j.openVerdict(rel)
	return j.noteVerdict(j.l.root, rel, "", v, rules.RefusalOf(a, v))
}

func (j Judge) heldVerdict(h *Hold) pattern.Verdict {
	switch {
	case h == nil:
		return pattern.Verdict{}
	case h.contentPath == "":
		return h.verdict
	}
	v, _ := j.openVerdict(h.contentPath)
	return v
}

// openVerdict returns the verdict of the patterns on the path of an open file. If rules of several
// roots are about the path, it is the verdict with the strongest effect. byContents reports whether
// the verdict depends on the file's contents.
func (j Judge) openVerdict(rel string) (v pattern.Verdict, byContents bool) {
	if !j.l.patterned || rel == "" {
		return pattern.Verdict{}, false
	}
	_ = j.eachRules(rel, func(r *root, set *rules.RuleSet, rel string) error {
		got, looked := set.JudgeOpen(r.facts, rel)
		if got.Effect > v.Effect {
			v = got
		}
		byContents = byContents || looked
		return nil
	})
	return v, byContents
}

// Current returns an error (names.Conflict) if the root's patterns have changed since the
// operation was admitted. Long operations call it just before they take effect.
func (j Judge) Current() error {
	if j.l.root.policy.Load().Rules() != j.l.policy.Rules() {
		return &Error{Kind: names.Conflict, Err: errors.New("the root's patterns changed meanwhile; try again")}
	}
	return nil
}

// Moved judges the new path of the file id, of type t, that is about to be moved from another
// path. Some protected names, such as .git, may be created where they do not exist. A file may be
// moved to such a name if the file is a part of a repository that the root's users made
// (rules.RootFacts.IsMade).
func (j Judge) Moved(from, to string, id rules.Identity, t pattern.Type) error {
	if !j.l.patterned {
		return nil
	}
	return j.eachRules(to, func(r *root, set *rules.RuleSet, rel string) error {
		dir, base := rules.Split(rel)
		err := j.judgeIn(r, set, rules.ToMake, dir, base, t)
		if rules.RefusesCreatable(err) && j.movesUserRepo(r, from, id, t) {
			return nil
		}
		return err
	})
}

func (j Judge) movesUserRepo(r *root, path string, id rules.Identity, t pattern.Type) bool {
	made := false
	_ = j.eachRoot(path, func(o *root, rel string) error {
		made = made || o == r && o.facts.IsMade(rel, id, t)
		return nil
	})
	return made
}

// Move returns a function that judges the names in a directory that is to be moved from one
// path to another. The function refuses a name if a pattern is about it at the old or at the new
// path. rel is the path of the directory that has the name, below the moved directory.
func (j Judge) Move(from, to string) func(rel, name string, t pattern.Type) error {
	return func(rel, name string, t pattern.Type) error {
		for _, top := range [...]string{from, to} {
			path := rules.Join(top, name)
			if rel != "" {
				path = rules.Join(rules.Join(top, rel), name)
			}
			err := j.eachRules(path, func(r *root, set *rules.RuleSet, path string) error {
				var moved *rules.Move
				if top == to && r == j.l.root {
					moved = &rules.Move{From: from, To: to}
				}
				v, err := set.JudgeInMoved(r.facts, moved, path, t)
				return j.noteVerdict(r, path, "", v, err)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// noteVerdict notes the verdict of the rules of r about a name for a dry run, and returns err,
// which is the refusal or nil.
func (j Judge) noteVerdict(r *root, dir, base string, v pattern.Verdict, err error) error {
	if j.l.req.Dry != nil && (v.Rule != nil || v.Lifted != nil) {
		j.l.req.Dry.note(Step{Kind: StepRule, Root: r.name, At: strings.TrimSuffix(rules.Join(dir, base), "/"), Verdict: v, Refused: err != nil})
	}
	return err
}
