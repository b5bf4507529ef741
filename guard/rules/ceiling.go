package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Ceiling bounds the roots on this machine, no matter which user approves them. A registry can have
// several ceilings; a root then stays within each of them. The zero Ceiling allows every root.
type Ceiling struct {
	// Places are the directories that may be roots; nil: there is no bound.
	Places []CeilingPlace
	// Longest is how long a root may live after it was granted or renewed; 0: as long as the
	// session.
	Longest time.Duration
	// Where names the file of the ceiling, for the error about a root that lies in no place.
	Where string
}

// CeilingPlace bounds the roots at a directory and below it, except those for which another place is
// closer.
type CeilingPlace struct {
	Dir    string // absolute, without links
	Rights Rights // the most that a root has; 0: no root. With Stage, a root that can change anything must be staged
	Where  string // where the bound is written, as FILE:LINE
}

// closest returns the place at path or closest above it; nil if there is none.
func (c *Ceiling) closest(path string) *CeilingPlace {
	var at *CeilingPlace
	for i := range c.Places {
		if p := &c.Places[i]; names.Under(path, p.Dir) && (at == nil || len(p.Dir) > len(at.Dir)) {
			at = p
		}
	}
	return at
}

// bounds returns every place whose bound a root at resolved has to keep: the place at resolved or
// closest above it, and the places below it, which the root would reach. It returns an error if the
// root lies in no place.
func (c *Ceiling) bounds(resolved string) ([]*CeilingPlace, error) {
	if c.Places == nil {
		return nil, nil
	}
	at := c.closest(resolved)
	if at == nil {
		return nil, ceilingError("the ceiling of this machine has no place for a root at %s (%s)", names.Quote(resolved), c.Where)
	}
	list := []*CeilingPlace{at}
	for i := range c.Places {
		if p := &c.Places[i]; p.Dir != resolved && names.Under(p.Dir, resolved) {
			list = append(list, p)
		}
	}
	return list, nil
}

func ceilingError(format string, args ...any) error {
	return &names.Error{Kind: names.Permission, Err: fmt.Errorf(format, args...)}
}

// Check returns an error if the ceiling does not allow a root at resolved with these rights. The
// error names the line of the bound, or the file if the root lies in no place.
func (c *Ceiling) Check(resolved string, rights Rights) error {
	list, err := c.bounds(resolved)
	if err != nil {
		return err
	}
	for _, p := range list {
		switch {
		case !rights.WiderThan(p.Rights):
		case p.Rights&ReadWrite == 0 && names.Under(resolved, p.Dir):
			return ceilingError("the ceiling of this machine allows no root at %s (%s)", names.Quote(resolved), p.Where)
		case p.Rights&ReadWrite == 0:
			return ceilingError("%s: the ceiling of this machine allows no root that reaches %s (%s); choose a directory beside it",
				names.Quote(resolved), names.Quote(p.Dir), p.Where)
		default:
			return ceilingError("%s can be at most %s: the ceiling of this machine says so for %s (%s)",
				names.Quote(resolved), p.Rights, names.Quote(p.Dir), p.Where)
		}
	}
	return nil
}

// within is RootRules.Within for one ceiling.
func (c *Ceiling) within(resolved string, rights Rights) (Rights, error) {
	list, err := c.bounds(resolved)
	if err != nil {
		return 0, err
	}
	allowed := rights
	for _, p := range list {
		if p.Rights.Staged() && !allowed.Staged() {
			allowed &^= MutatingRights
		}
		allowed &= p.Rights | Stage
	}
	if allowed&ReadWrite == 0 {
		return 0, c.Check(resolved, rights)
	}
	return allowed, nil
}

// wantsStage reports whether a root at resolved that can change anything has to be staged.
func (c *Ceiling) wantsStage(resolved string) bool {
	list, _ := c.bounds(resolved)
	return slices.ContainsFunc(list, func(p *CeilingPlace) bool { return p.Rights.Staged() })
}

// end returns the earlier one of two ends: the one that was asked for, and the latest that the
// ceiling allows a root that is granted or renewed now.
func (c *Ceiling) end(asked, now time.Time) time.Time {
	if c.Longest <= 0 {
		return asked
	}
	if last := now.Add(c.Longest); asked.IsZero() || asked.After(last) {
		return last
	}
	return asked
}

// CheckCeilings returns the error of Ceiling.Check for the first ceiling that does not allow a root
// at resolved with these rights.
func (r RootRules) CheckCeilings(resolved string, rights Rights) error {
	for i := range r.Ceilings {
		if err := r.Ceilings[i].Check(resolved, rights); err != nil {
			return err
		}
	}
	return nil
}

// AsStaged returns the rights, with all changes staged if a ceiling demands that of a root at
// resolved.
func (r RootRules) AsStaged(resolved string, rights Rights) Rights {
	if slices.ContainsFunc(r.Ceilings, func(c Ceiling) bool { return c.wantsStage(resolved) }) {
		return rights.AsStaged()
	}
	return rights
}

// End returns the end of a root that is granted or renewed now. It is the time asked (zero: the end
// of the session), or the latest end that the ceilings allow, if that is earlier.
func (r RootRules) End(asked, now time.Time) time.Time {
	for i := range r.Ceilings {
		asked = r.Ceilings[i].end(asked, now)
	}
	return asked
}

// Within returns as many of a live root's rights as all ceilings allow. If the ceilings allow none,
// the error says why. If a ceiling demands that changes are staged, and the root is not staged,
// Within leaves out the rights to change, because a live root cannot become staged.
func (r RootRules) Within(resolved string, rights Rights) (Rights, error) {
	for i := range r.Ceilings {
		var err error
		if rights, err = r.Ceilings[i].within(resolved, rights); err != nil {
			return 0, err
		}
	}
	return rights, nil
}
