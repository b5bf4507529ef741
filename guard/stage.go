package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A staged root keeps the changes of its programs apart from its directory. The programs see
// their changes, and the directory stays as it is until the owner applies the changes. Until then
// the changes lie in a store outside of every root. The store outlives the root. This file says
// which roots can be staged; the Opener keeps the changes.

// Staged is the Source of a staged root. Its method Staged describes the root's store, and
// answers from memory.
type Staged interface {
	Source
	Staged() StageStatus
}

// StageStatus describes a root's stage for the owner.
type StageStatus struct {
	Store     string // the directory of the store
	Continued bool   // changes of an earlier session were there at the grant
	Changed   int    // names that programs changed, made or removed
	Bytes     int64  // bytes that the store takes on the disk
	Damaged   string // what was lost of the store, and why; "" if nothing was
	// Checkpoints is how many earlier states of the changes can be restored.
	Checkpoints int
}

// checkStage refuses a staged root whose changes could not be kept apart.
func checkStage(p *Policy, src Source, resolved string) error {
	if !p.Rights.Staged() {
		return nil
	}
	why := ""
	switch {
	case src.File() != "":
		why = "is a single file: name its directory, or use :rw without --stage"
	case src.Remote():
		why = "lies on a network or FUSE file system, which can change without a notice: use :rw without --stage, or copy it to a local disk"
	case src.Naming() >= rules.FoldedNames:
		why = "lies on a file system that takes several spellings for one name: use :rw without --stage, or copy it to one that does not"
	case p.OtherFileSystems:
		why = "cannot be staged across file systems: leave out --cross-file-systems, or use :rw without --stage"
	default:
		return nil
	}
	return stageRefusal("%s %s", names.Quote(resolved), why)
}

// checkStagedNesting refuses r if it overlaps with another root, some caller could use both, and
// at least one of the two is staged: they would disagree about the contents of the inner
// directory.
func (s *snapshot) checkStagedNesting(r *root) error {
	others := slices.Values(s.staged)
	if r.isStaged() {
		others = maps.Values(s.byName)
	}
	for other := range others {
		shared := r.grant.Subject.Covers(other.grant.Subject) || other.grant.Subject.Covers(r.grant.Subject)
		if shared && r.overlaps(other) {
			return stageRefusal("%s and the root %s (%s) overlap, and one of them is staged: leave one out, or use :rw without --stage for both",
				names.Quote(r.grant.Resolved), names.Quote(string(other.name)), names.Quote(other.grant.Resolved))
		}
	}
	return nil
}

// overlaps reports whether one of two roots lies in the other, or both are one directory.
func (r *root) overlaps(other *root) bool {
	_, inside := r.relativePath(other.grant.Resolved, other.location)
	_, around := other.relativePath(r.grant.Resolved, r.location)
	return inside || around || r.grant.Resolved == other.grant.Resolved || r.location != "" && r.location == other.location
}

// StagedFor returns the staged roots that a subject can use.
func (g *Registry) StagedFor(who Subject) (out []RootName) {
	for _, r := range g.snap.Load().staged {
		if r.grant.Subject.Covers(who) {
			out = append(out, r.name)
		}
	}
	return out
}

func (r *root) isStaged() bool { return r.grant.Policy.Rights.Staged() }

// rightsOnSet returns the rights that Set gives a root that has the rights old. Whether a
// root is staged never changes while it lives: its programs have its files open.
func rightsOnSet(name RootName, old, rights Rights) (Rights, error) {
	again := fmt.Sprintf("revoke it and add it again: rootsfs roots revoke %[1]s, then rootsfs roots add %[1]s=PATH:", names.ShellWord(string(name)))
	switch {
	case rights.Staged() && !old.Staged():
		return 0, stageRefusal("root %s is not staged, and that cannot change while it lives; %sstage", names.Quote(string(name)), again)
	case old.Staged() && rights == ReadWrite:
		return 0, stageRefusal("root %s is staged, and that cannot change while it lives; to let programs write it directly, %srw", names.Quote(string(name)), again)
	}
	return rights | old&Stage, nil
}

// noteClosing remembers a staged root whose store is about to be closed, until closed is
// called.
func (g *Registry) noteClosing(r *root) (closed func()) {
	if !r.isStaged() {
		return func() {}
	}
	done := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing == nil {
		g.closing = map[*root]chan struct{}{}
	}
	g.closing[r] = done
	return func() {
		g.mu.Lock()
		delete(g.closing, r)
		g.mu.Unlock()
		close(done)
	}
}

// AwaitStages waits until the stores of all staged roots that have ended are closed, and so
// can be opened by others. If ctx ends earlier, it returns ctx's error: something still uses a
// root.
func (g *Registry) AwaitStages(ctx context.Context) error {
	return g.awaitClosing(ctx, func(*Grant) bool { return true })
}

// awaitClosing is AwaitStages for the roots whose grants match.
func (g *Registry) awaitClosing(ctx context.Context, matches func(*Grant) bool) error {
	var list []chan struct{}
	g.mu.Lock()
	for r, done := range g.closing {
		if matches(&r.grant) {
			list = append(list, done)
		}
	}
	g.mu.Unlock()
	for _, done := range list {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func stageRefusal(format string, args ...any) error {
	return &Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

var errStagedTwice = &Error{Kind: names.Internal, Err: errors.New("the proposal was staged by a grant that failed; propose it again")}
