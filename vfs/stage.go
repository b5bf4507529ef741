package vfs

import (
	"context"
	"errors"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// The owner's operations on what the programs of a staged root changed. They take no caller and
// no right of the root, so a front end must not offer them to anybody but the owner.

// StageSummary is what is known of a stage without opening it.
type StageSummary = draft.Summary

// Stages lists the stages in a directory of stores, the oldest first.
func Stages(dir string) ([]StageSummary, error) { return draft.List(dir) }

// StageClass says what applying a change would do, or why it is not done.
type StageClass byte

// The classes.
const (
	StageNew       StageClass = 'A' // the source has nothing there
	StageChanged   StageClass = 'M' // contents
	StageMode      StageClass = 'm' // mode, owner, times or attributes
	StageRemoved   StageClass = 'D'
	StageReplaced  StageClass = 'T' // by something of another kind
	StageConflict  StageClass = 'C' // the owner has changed it, too
	StageInUse     StageClass = 'W' // somebody has it open for writing
	StageProtected StageClass = 'P' // the policy of now protects or hides the name
	StageLink      StageClass = 'L' // a link that leaves the root
	StageSpecial   StageClass = 'S' // a device, FIFO or socket
	StageUnsure    StageClass = '?' // written shortly before the machine stopped
)

// StageChange is one change.
type StageChange struct {
	Path          string // below the root
	Class         StageClass
	Mode, OldMode uint32 // with the type, as stat has it; 0: there is nothing
	Size, OldSize int64
	Why           string // of a class that is not applied: a sentence, with names quoted
}

// StageApply says what to apply.
type StageApply struct {
	Paths   []string // below the root; none: everything
	Partial bool     // apply the rest if something cannot be applied
	Links   bool     // also links that leave the root
	DryRun  bool
	Take    string // of conflicts: "stage" or "source"; "": neither
}

// StageResult is what was applied, or discarded, and what was left.
type StageResult struct {
	Done, Left []StageChange
}

var errNotYet = &guard.Error{Kind: names.Invalid, Err: errors.New("not yet")}

// StageChanges lists the changes at and below paths, sorted by path; all without paths. Every
// name below a removed directory is listed.
func (t *Tree) StageChanges(ctx context.Context, root guard.RootName, paths []string) ([]StageChange, error) {
	return nil, errNotYet
}

// StageContents returns what a file has in the stage, or in the source now. Of a link it is
// the target. If it is more than most bytes, the error is names.Quota.
func (t *Tree) StageContents(ctx context.Context, root guard.RootName, path string, staged bool, most int64) ([]byte, error) {
	return nil, errNotYet
}

// StageApply brings changes into the source. Unless a.Partial, it applies nothing if anything
// is left.
func (t *Tree) StageApply(ctx context.Context, root guard.RootName, a StageApply) (StageResult, error) {
	return StageResult{}, errNotYet
}

// StageDiscard drops changes, all without paths.
func (t *Tree) StageDiscard(ctx context.Context, root guard.RootName, paths []string) (StageResult, error) {
	return StageResult{}, errNotYet
}
