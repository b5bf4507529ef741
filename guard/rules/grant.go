package rules

import (
	"reflect"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Grant is an approval of a root: its directory, its policy, its end and its subject. In JSON
// it is the owner's request to a session.
type Grant struct {
	Root names.RootName `json:"name"`
	// Dir is the requested path on the host, absolute. After approval, Resolved is the path
	// that Dir led to, without links.
	Dir      names.Foreign `json:"path"`
	Resolved string        `json:"-"`
	Policy   Policy        `json:"policy"`
	Expires  time.Time     `json:"expires,omitzero"` // zero: ends with the session
	Subject  Subject       `json:"subject,omitempty"`
	Origin   string        `json:"approved_by,omitempty"` // "command line", "configuration", "control", ...
	// AllowSystem permits this root to be writable although it is a system directory.
	// AllowRootDir permits it to be "/". In RootRules, the same fields are for all roots.
	AllowSystem  bool `json:"allow_system,omitempty"`
	AllowRootDir bool `json:"allow_root_dir,omitempty"`
	// Implicit marks a root that a command needs to run at all, such as its interpreter.
	// Listings for servers leave it out, though servers may read it.
	Implicit bool `json:"-"`
	// Store is the directory with the changes of a staged root. If it is "", Opener.Stage
	// chooses a directory and sets it.
	Store string `json:"-"`
}

// WiderThan reports whether the grant may allow anything that ask does not: for example another
// root or subject, more rights, more names, higher limits, or a later end. It also reports true for
// a grant without rights.
func (got *Grant) WiderThan(ask *Grant) bool {
	a, b := &ask.Policy, &got.Policy
	switch {
	case got.Root != ask.Root, got.Dir != ask.Dir, got.Resolved != ask.Resolved,
		got.Subject != ask.Subject && ask.Subject != "":
		return true
	case got.AllowSystem && !ask.AllowSystem, got.AllowRootDir && !ask.AllowRootDir:
		return true
	case b.Rights == 0, b.Rights.WiderThan(a.Rights),
		b.OtherFileSystems && !a.OtherFileSystems, b.PosixFull && !a.PosixFull,
		a.Once && !b.Once, a.Trash.On && !b.Trash.On:
		return true
	case a.Patterns.allowsLess(&b.Patterns):
		return true
	case !ask.Expires.IsZero() && (got.Expires.IsZero() || got.Expires.After(ask.Expires)):
		return true
	}
	return b.Limits.exceed(&a.Limits)
}

// exceed reports whether a limit of l is higher than the same limit of asked, or is lifted.
func (l *Limits) exceed(asked *Limits) bool {
	got, ask := reflect.ValueOf(l).Elem(), reflect.ValueOf(asked).Elem()
	for i := range got.NumField() {
		a, b := ask.Field(i), got.Field(i)
		if a.CanFloat() && isMore(a.Float(), b.Float()) || a.CanInt() && isMore(a.Int(), b.Int()) {
			return true
		}
	}
	return false
}

// isMore reports whether a limit is higher than the requested one. 0 is no limit.
func isMore[T int64 | float64](asked, given T) bool {
	return asked > 0 && (given <= 0 || given > asked)
}
