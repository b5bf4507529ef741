package rules

import (
	"errors"
	"strconv"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Refusal is the cause of the error if a pattern refused an operation. Its text has only facts that
// a server may know; Rule is for the owner.
type Refusal struct {
	Effect     pattern.Effect
	Rule       *pattern.Rule
	inMovedDir bool // a directory that holds the name, at any depth, was to be moved
}

func (r *Refusal) Error() string {
	if r.inMovedDir {
		return "the policy protects, denies or hides something in this directory, so it stays where it is; move the rest of what is in it"
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

// RefusalOf returns the error of an access to a name with a verdict, or nil if the access is
// permitted.
func RefusalOf(a Access, v pattern.Verdict) error {
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
	return &names.Error{Kind: kind, Err: &Refusal{Effect: v.Effect, Rule: v.Rule}}
}

// AsCreateRefusal turns a Hidden refusal into the Permission refusal that a create of the
// name would get. It is for operations that create the missing directories of a path. Other
// errors stay as they are.
func AsCreateRefusal(err error) error {
	var r *Refusal
	if errors.Is(err, names.Hidden) && errors.As(err, &r) {
		return RefusalOf(ToMake, pattern.Verdict{Effect: r.Effect, Rule: r.Rule})
	}
	return err
}
