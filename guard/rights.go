package guard

import "github.com/rootsfs/rootsfs/guard/rules"

// Narrowest returns the rights that the root and all nested roots that the operation has
// entered allow.
func (l *Lease) Narrowest() Rights {
	have := l.policy.Rights
	for _, c := range l.crossed {
		have &= c.root.policy.Load().Rights
	}
	return have
}

// Denied returns the refusal of an operation that turns out, while it runs, to lack rights. The
// record names these.
func (l *Lease) Denied(lacks Rights) error {
	l.req.Need |= lacks
	return l.denied(narrowedBy(l, lacks), lacks, l.Narrowest())
}

// narrowedBy returns the root that lacks one of the rights: the operation's own, or the first
// nested one that it has entered.
func narrowedBy(l *Lease, lacks Rights) *root {
	if lacks&^l.policy.Rights == 0 {
		for _, c := range l.crossed {
			if lacks&^c.root.policy.Load().Rights != 0 {
				return c.root
			}
		}
	}
	return l.root
}

// denied returns the refusal of an operation that lacks rights: names.ReadOnly (EROFS) if the
// root is read-only and the operation would change it, otherwise names.Permission (EACCES).
func (l *Lease) denied(r *root, lacks, have Rights) error {
	if l.req.Dry != nil {
		l.req.Dry.note(Step{Kind: StepRight, Root: r.name, Lacks: rules.Plainest(l.req.Op, lacks), Refused: true})
	}
	return lacks.Refusal(have)
}

// MayChange returns an error if the attributes of a file may not be changed. With the right to
// write, the attributes of any file may be changed; with only the right to create, those of a
// file that was made in this lifetime of the root (see Notes.Created).
func (l *Lease) MayChange(id rules.Identity) error {
	if l.Narrowest()&Write != 0 || l.root.created.Has(id) {
		return nil
	}
	return l.Denied(Write)
}
