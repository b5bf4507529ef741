package control

import (
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Checkpoint is a checkpoint of a stage.
type Checkpoint struct {
	Number  int           `json:"number"`         // as `rootsfs undo` takes it
	Name    names.Foreign `json:"name,omitempty"` // that the owner gave it
	Cause   names.Foreign `json:"cause"`          // `asked`, or what it was made before: `apply`, `discard`, `undo`, `session`, `tool call NAME`; `start`: nothing is staged
	Time    time.Time     `json:"time"`           // when it was made
	Changed int           `json:"changed"`        // names that were changed, made or removed
}

// CheckpointOf describes a checkpoint for the owner.
func CheckpointOf(c *vfs.Checkpoint) Checkpoint {
	return Checkpoint{c.Number, names.Foreign(c.Name), names.Foreign(c.Cause), c.Time, c.Changed}
}

// CheckpointsOf describes checkpoints.
func CheckpointsOf(list []vfs.Checkpoint) []Checkpoint {
	out := make([]Checkpoint, 0, len(list))
	for i := range list {
		out = append(out, CheckpointOf(&list[i]))
	}
	return out
}

// CheckpointsAnswer lists the checkpoints of a stage, the oldest first.
type CheckpointsAnswer struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// CheckpointRequest asks for a checkpoint.
type CheckpointRequest struct {
	Store string `json:"store"` // directory of the stage
	Name  string `json:"name,omitempty"`
}

// CheckpointAnswer has the checkpoint that equals the present stage.
type CheckpointAnswer struct {
	Checkpoint Checkpoint `json:"checkpoint"` // that has what is staged now
	Made       bool       `json:"made"`       // false: it was there, and nothing has changed since
}

// UndoRequest asks for an undo.
type UndoRequest struct {
	Store  string `json:"store"`        // directory of the stage
	To     string `json:"to,omitempty"` // number or name of a checkpoint; "": the latest that differs from the present stage
	DryRun bool   `json:"dry_run,omitempty"`
}

// UndoAnswer has the result of an undo: the changes, as programs see them.
type UndoAnswer struct {
	To      Checkpoint    `json:"to"`
	Before  *Checkpoint   `json:"before,omitempty"`  // checkpoint that was made before the undo; absent: none was made
	Applied int           `json:"applied,omitempty"` // how many paths are staged because their changes were applied since the checkpoint
	Changes []StageChange `json:"changes"`
}

// UndoAnswerOf returns the answer for an undo.
func UndoAnswerOf(u *vfs.StageUndone) UndoAnswer {
	a := UndoAnswer{To: CheckpointOf(&u.To), Applied: u.Applied, Changes: changesToSend(u.Changes)}
	if u.Before != nil {
		before := CheckpointOf(u.Before)
		a.Before = &before
	}
	return a
}

// StageChanges returns the changes of the answer.
func (a *UndoAnswer) StageChanges() []vfs.StageChange { return changesReceived(a.Changes) }
