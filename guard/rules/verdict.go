package rules

import (
	"errors"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// JudgeDir judges a directory that an operation enters, and those above it.
func (r *RuleSet) JudgeDir(f *RootFacts, rel string) (pattern.Verdict, error) {
	v := r.barrier(f, rel)
	return v, RefusalOf(ToRead, v)
}

// Judge judges a name in the directory dir for the access that an operation makes to it. t is
// the type of the file that has the name, or will have it, if that is known. A verdict does not
// always refuse the operation.
func (r *RuleSet) Judge(f *RootFacts, op names.Op, a Access, dir, base string, t pattern.Type) (pattern.Verdict, error) {
	if t == pattern.Unknown && a == ToMake {
		t = createdType(op)
	}
	v := r.judge(f, f, dir, base, t)
	if v.Effect == pattern.Protect && isException(op, a, v.Rule, f, Join(dir, base)) {
		return v, nil
	}
	if a == ToMake && v.Effect == pattern.None && t == pattern.Link {
		rule := r.set.At(dir).ProtectingRule(dir, base, f)
		if rule == nil && r.folded != nil && f.foldsAt(dir) {
			rule = r.folded.At(dir).ProtectingRule(dir, base, f)
		}
		if rule != nil {
			v = pattern.Verdict{Effect: pattern.Protect, Rule: rule}
		}
	}
	return v, RefusalOf(a, v)
}

// JudgeOpen returns the verdict of the rules on the path of an open file. byContents reports
// whether the verdict depends on the file's contents.
func (r *RuleSet) JudgeOpen(f *RootFacts, rel string) (v pattern.Verdict, byContents bool) {
	dir, base := Split(rel)
	if r.silent(dir, base) {
		return v, false // nearly always; this way allocates no memory
	}
	facts := &contentsRecorder{RootFacts: f}
	v = r.judge(f, facts, dir, base, pattern.Unknown)
	if v.Effect == pattern.Protect && v.Rule.Fixed {
		v = pattern.Verdict{} // an operation on an open file removes no name
	}
	return v, facts.readContents
}

// JudgeInMoved judges a name in a directory that is about to be moved. It returns an error if a
// rule protects, denies or hides the name. If moved is not nil, rel is the path after the move.
func (r *RuleSet) JudgeInMoved(f *RootFacts, moved *Move, rel string, t pattern.Type) (pattern.Verdict, error) {
	dir, base := Split(rel)
	facts := pattern.Facts(f)
	if moved != nil {
		facts = movedFacts{f, *moved}
	}
	v := r.judge(f, facts, dir, base, t)
	if v.Effect == pattern.None {
		return v, nil
	}
	return v, &names.Error{Kind: names.Permission, Err: &Refusal{Effect: v.Effect, Rule: v.Rule, inMovedDir: true}}
}

// RefusesCreatable reports whether an error is the refusal of a name that may be created where it
// does not exist, such as .git.
func RefusesCreatable(err error) bool {
	var refused *Refusal
	return errors.As(err, &refused) && refused.Rule.Builtin() && refused.Rule.Creatable
}

// isException reports whether a rule protects a name but admits this operation on it.
func isException(op names.Op, a Access, r *pattern.Rule, f *RootFacts, rel string) bool {
	if r.Builtin() && r.Fixed {
		return a == ToMake || !removesName(op)
	}
	return a == ToMake && beginsRepository(op, r, f, rel)
}

// beginsRepository reports whether the operation begins a repository, or a rebase in one.
// A program that may make names may do that: the name .git is protected if it exists, and may
// be made if it does not.
func beginsRepository(op names.Op, r *pattern.Rule, f *RootFacts, rel string) bool {
	if !r.Builtin() || !r.Creatable {
		return false
	}
	switch op { //nolint:exhaustive // the others make no repository
	case names.OpMkdir, names.OpCreate:
		return true // these operations fail if the name exists
	case names.OpReplace, names.OpWrite:
		_, err := f.look(rel)
		return errors.Is(err, names.NotExist)
	}
	return false
}

// Move is a directory that is to be moved: its path before, and after.
type Move struct{ From, To string }

// movedFacts answers questions about files by their paths after a move that is not made yet.
type movedFacts struct {
	pattern.Facts
	Move
}

// pathBefore returns the path of a file before the move.
func (m movedFacts) pathBefore(path string) string {
	if path == m.To || strings.HasPrefix(path, m.To+"/") {
		return m.From + path[len(m.To):]
	}
	return path
}

func (m movedFacts) IsDir(path string) bool        { return m.Facts.IsDir(m.pathBefore(path)) }
func (m movedFacts) IsTop(dir string) bool         { return m.Facts.IsTop(m.pathBefore(dir)) }
func (m movedFacts) IsInUserRepo(path string) bool { return m.Facts.IsInUserRepo(m.pathBefore(path)) }
func (m movedFacts) IsBare(dir string, kind pattern.Condition) bool {
	return m.Facts.IsBare(m.pathBefore(dir), kind)
}
func (m movedFacts) HasTokens(path string) bool { return m.Facts.HasTokens(m.pathBefore(path)) }
