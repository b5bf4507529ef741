package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// whyApply says whether the staged change of a path, and everything below it, could be applied.
// It asks for a dry run of the apply, and so gives the verdict that the apply would give.
func (a *app) whyApply(ctx context.Context, path string) (e *explanation, err error) {
	c, err := chooseStage("", []string{path})
	if err != nil {
		return nil, err
	}
	e = &explanation{CheckAnswer: control.CheckAnswer{Op: names.OpApply.String(), Path: c.displayPath(""), Root: names.Foreign(c.Meta.Root)}, RootPath: names.Foreign(c.Meta.Path), Mode: "stage"}
	if len(c.paths) > 0 {
		e.Path = c.displayPath(names.Foreign(c.paths[0]))
	}
	defer a.waiting("comparing")()
	o, err := c.open(ctx)
	if isRootGone(err) {
		e.Reason, e.Detail = names.Conflict.String(), names.Text("the directory of the root is gone, or another one is at its path now")
		c.flag = filepath.Base(c.Dir)
		e.Advice = names.Text("put the directory back, or drop the stage: " + string(c.command("discard", "--all")))
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	ans, err := askStage(ctx, o, control.ApplyStage, session.ApplyStage, control.StageApplyRequest{StageRequest: o.request(c.paths), DryRun: true})
	if err != nil {
		return nil, err
	}
	r := ans.Result()
	e.Allowed = len(r.Left) == 0
	for i := range r.Left {
		e.Left = append(e.Left, entryOfChange(&r.Left[i]))
	}
	e.choices = func() {
		if len(r.Left) == 1 { // the verdict tells why this change is left
			a.printChoices(o, r.Left)
			return
		}
		a.printLeft(o, r.Left)
	}
	switch n := len(r.Left); {
	case n == 1:
		left := &r.Left[0]
		e.Reason, e.Detail = kindOfClass(left.Class).String(), names.Text(names.EscapeQuoted(left.Why))
		e.Path = o.displayPath(left.Path)
	case n > 1:
		e.Reason, e.Detail = kindOfClass(r.Left[0].Class).String(), names.Text(fmt.Sprintf("%s of %s cannot be applied", countText(r.Left), plural(n+len(r.Done), "change")))
	case len(r.Done) == 0 && len(r.Output) == 0:
		e.Detail = "nothing is staged there"
	default:
		e.Detail = names.Text(countText(append(r.Done, r.Output...)))
	}
	return e, nil
}

// kindOfClass returns the kind of error for a class of changes that are not applied.
func kindOfClass(class vfs.StageClass) names.Kind {
	switch class {
	case vfs.StageProtected:
		return names.Permission
	case vfs.StageLink:
		return names.Escaped
	case vfs.StageInUse:
		return names.Locked
	case vfs.StageRefused:
		return names.IO
	}
	return names.Conflict
}

// printWhyApply prints what whyApply has found.
func (a *app) printWhyApply(e *explanation) {
	verdict := "refused"
	if e.Allowed {
		verdict = "allowed"
	}
	a.foldAt("", fmt.Sprintf("apply %s: %s: %s", quoteIfNeeded(e.Path), verdict, e.Detail))
	a.fold(fmt.Sprintf("root:        %s at %s, mode stage", quoteIfNeeded(e.Root), quoteIfNeeded(e.RootPath)))
	if e.Advice != "" {
		a.fold("to allow it: " + e.Advice.Raw())
	}
	if e.choices != nil {
		e.choices()
	}
}
