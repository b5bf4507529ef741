package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

const pauseLong = `Refuse everything to the programs of every live session, or of the one that --session
names, until "rootsfs resume". When pause returns, descriptors, mappings and watches that
programs hold answer nothing, and what they wrote is on the source. Connections of
"run --net=HOSTS" and "run --socket" are cut. After the resumption what was open works
again, and programs connect anew. Grants, questions and revocations go on meanwhile; the
owner's own commands work.

A program that reads a mapped file meanwhile gets SIGBUS, and a command whose own files
lie in a root may die of that. A network that is not rootsfs's own ("run --net") goes on.
The exit code is 1 if something could not be taken back. New accesses are refused then,
too.`

const pauseExamples = `  rootsfs pause
  rootsfs pause "strange pushes" --session work
  rootsfs pause --json`

// pauseResult is one session in the output of pause.
type pauseResult struct {
	Session string `json:"session"`
	control.PauseAnswer
	Error names.Text `json:"error,omitempty"` // what could not be taken back, or why the session is not paused
	err   error
}

func (a *app) newPauseCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pause [REASON]",
		Short:   "Refuse everything until rootsfs resume; nothing is lost",
		Long:    pauseLong,
		Example: pauseExamples,
		Args:    argCount(0, 1, "the reason"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var req control.PauseRequest
			if len(args) > 0 {
				req.Reason = args[0]
			}
			return a.pause(cmd.Context(), req)
		},
	}
	return a.ofSession(cmd)
}

// targetSessions returns the sessions that pause and resume are about: the named one, or all.
func (a *app) targetSessions() ([]control.Info, error) {
	all, err := control.List()
	if err == nil && (a.Session != "" || len(all) == 0) {
		var one control.Info
		one, err = control.Find(a.Session)
		all = []control.Info{one}
	}
	return all, err
}

func (a *app) pause(ctx context.Context, req control.PauseRequest) error {
	all, err := a.targetSessions()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	done := a.waiting("pausing")
	results := sideBySide(all, func(in control.Info) pauseResult {
		ans, err := control.Pause.Call(ctx, control.Dial(in), req)
		r := pauseResult{Session: in.Name, PauseAnswer: ans, err: err}
		if err != nil {
			r.Error = names.Text(err.Error())
		}
		return r
	})
	done()
	if err := a.report(results, func() { a.printPaused(results) }); err != nil {
		return err
	}
	for _, r := range results {
		if r.err != nil {
			return &exitError{Code: max(exitCode(r.err), exitFailure), Err: fmt.Errorf("session %s: %w", r.Session, r.err)}
		}
	}
	return nil
}

func (a *app) printPaused(results []pauseResult) {
	isPaused := false
	for _, r := range results {
		switch {
		case r.Paused.Cause == "":
			continue // the error says why
		case r.Error != "":
			a.say("%s: paused, but not everything could be taken back: %s", r.Session, r.Error)
		default:
			a.say("%s: paused in %.1f ms", r.Session, r.TookMS)
		}
		isPaused = true
	}
	if isPaused {
		a.say("to go on: rootsfs resume")
	}
}

// pausedSessions returns the sessions that the owner has paused. It leaves out sessions that do not
// answer.
func pausedSessions(ctx context.Context, all []control.Info) []control.Info {
	isPaused := sideBySide(all, func(in control.Info) bool {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		st, err := control.GetStatus.Call(ctx, control.Dial(in), control.None{})
		return err == nil && slices.ContainsFunc(st.Paused, func(p control.Paused) bool { return p.Cause == string(guard.PausedByOwner) })
	})
	var out []control.Info
	for i, in := range all {
		if isPaused[i] {
			out = append(out, in)
		}
	}
	return out
}
