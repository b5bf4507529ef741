package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/vfs"
)

// whyFlags are the flags of `rootsfs why`.
type whyFlags struct{ op, root, subject string }

const whyLong = `Without PATH, explain the last refusal that a program caused, of a path or of a host, in
the session of --session or in any, also if it has ended. With PATH, say what a live
session would answer: which root, right, rule or link decides, how the command is
confined, and which command would allow it. With --root, answer for that root as
"rootsfs run" would grant it, without a session.

PATH is written as for "rootsfs policy check", or leads through the mountpoint. If no
session is live, the last refusal of PATH on record is explained. Nothing is done, and
whether the file exists is not said. The exit code is 0 if the operation is allowed,
and 3 if it was or would be refused. With --op apply it asks for a dry run of
"rootsfs stage apply" of PATH and below, and says what to do about what cannot be applied.`

const whyExamples = `  rootsfs why
  rootsfs why code/.env --op read
  rootsfs why ./.git/config --op write --session work
  rootsfs why .git/hooks/pre-commit --op create --root .:rw
  rootsfs why src --op apply`

func (a *app) newWhyCmd() *cobra.Command {
	f := &whyFlags{}
	cmd := &cobra.Command{
		Use:     "why [PATH]",
		Short:   "Explain a refusal, and what would allow it",
		Long:    whyLong,
		Example: whyExamples,
		Args:    argCount(0, 1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.why(cmd.Context(), f, args, cmd.Flags().Changed("op"))
			if err != nil {
				return err
			}
			if e != nil && !e.Allowed {
				e.keepToCeiling(args)
			}
			if err := a.report(e, func() { a.printExplanation(e) }); err != nil {
				return err
			}
			if e != nil && !e.Allowed {
				return &exitError{Code: exitNotApproved}
			}
			return nil
		},
	}
	opFlag(cmd, &f.op)
	cmd.Flags().StringVar(&f.root, "root", "", "answer for this root instead of a session's: `SPEC` is [NAME=]PATH[:MODE]")
	cmd.Flags().StringVar(&f.subject, "subject", "", "answer for this `server`, by its name in rootsfs status")
	completeFlag(cmd, "root", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
	auditSessionFlag(a, cmd)
	a.jsonFlag(cmd)
	return cmd
}

// why returns the explanation for the command; nil means that nothing was refused.
func (a *app) why(ctx context.Context, f *whyFlags, args []string, opGiven bool) (*explanation, error) {
	switch {
	case len(args) == 0 && (f.root != "" || f.subject != "" || opGiven):
		return nil, usage(errors.New("--op, --root and --subject ask about a path: name it; see: rootsfs why --help"))
	case f.root != "" && a.Session != "":
		return nil, usage(errors.New("--root and --session cannot be combined: use one of them"))
	case len(args) == 0:
		return a.whyLast(ctx, "")
	}
	path, err := expandHome(args[0])
	if err != nil {
		return nil, usage(err)
	}
	if f.op == names.OpApply.String() {
		if f.root != "" || f.subject != "" || a.Session != "" {
			return nil, usage(errors.New("--op apply asks about the stage of PATH: leave out --root, --subject and --session"))
		}
		return a.whyApply(ctx, path)
	}
	if f.root != "" {
		return whySpec(ctx, f, path)
	}
	c, err := a.client()
	if errors.Is(err, control.ErrNoSession) {
		e, lerr := a.whyLast(ctx, path)
		if lerr == nil && e == nil {
			lerr = notRecorded(f.op, path, args)
		}
		return e, lerr
	}
	if err != nil {
		return nil, err
	}
	req := control.CheckRequest{Op: f.op, Subject: f.subject}
	if err := setCheckPath(&req, path); err != nil {
		return nil, err
	}
	return a.whyPath(ctx, c, &req)
}

// notRecorded returns the error for a path if there is no session to ask, and no refusal of the
// path is on record.
func notRecorded(op, path string, args []string) error {
	e := explanation{CheckAnswer: control.CheckAnswer{Op: op}}
	ceiling, err := config.LoadCeiling()
	if err == nil {
		err = e.overCeiling(ceiling, args)
	}
	if err != nil {
		return &exitError{Code: exitNotApproved, Err: err}
	}
	return &exitError{Code: ExitNoSuch, Err: fmt.Errorf("no session is live, or several are (say which with --session NAME), and no refusal of %s is on record; what no root holds is not there, and not recorded. To ask without a session: rootsfs why %s --root PATH:MODE", names.Quote(path), names.ShellWord(args[0]))}
}

func opFlag(cmd *cobra.Command, op *string) {
	cmd.Flags().StringVar(op, "op", "read", "the `operation`: read, write, append, list, stat, create, mkdir, delete, rename or watch, or one of the audit log")
	fixedWords(cmd, "op", "read", "write", "append", "list", "stat", "create", "mkdir", "delete", "rename", "watch")
}

// whyPath asks a live session about a path.
func (a *app) whyPath(ctx context.Context, c *control.Client, req *control.CheckRequest) (*explanation, error) {
	ans, err := control.Why.Call(ctx, c, *req)
	if err != nil {
		return nil, err
	}
	e := &explanation{}
	e.fill(&ans)
	path := ans.Asked
	if e.Root == "" && !e.Shown {
		a.noteEndedRoot(ctx, e, path)
		if ans.NoRoot && e.RevokedAt == nil {
			first, _, _ := strings.Cut(path, "/")
			return nil, guard.NoRoot(guard.RootName(first)) // the records have no ended root with this name, either
		}
	}
	if e.limits = limitsOf(&audit.Entry{Kind: names.Foreign(e.Reason), Op: names.Foreign(e.Op)}); len(e.limits) > 0 {
		return e, a.judgeLimit(ctx, c, e, req.Subject)
	}
	a.setAllow(e, &ans, path)
	return e, nil
}

// setAllow sets e.Allow to the command that would allow the refused operation.
func (a *app) setAllow(e *explanation, ans *control.WhyAnswer, path string) {
	last := ans.Last // the refusal that `allow --last` would lift
	switch {
	case e.Allowed:
	case last != nil && last.Root == e.Root && last.Path.String() == e.Path.String() && last.Op == e.recordedOp:
		e.Allow = a.command(commandWords{"allow", "--last"})
	default:
		if w := e.remedy(ans.Policy, path); w != nil {
			e.Allow = a.command(w)
		}
	}
}

// command returns a command line of rootsfs for the session that the user named.
func (a *app) command(w commandWords) names.Text {
	if a.Session != "" {
		w = append(w, "--session", names.Foreign(a.Session))
	}
	return w.line()
}

// whySpec asks about a root that no session has.
func whySpec(ctx context.Context, f *whyFlags, path string) (*explanation, error) {
	spec, err := rootspec.Parse(f.root)
	if err != nil {
		return nil, err
	}
	var e *explanation
	err = withRoot(ctx, spec, func(x session.Explainer, got guard.Grant) error {
		req := control.CheckRequest{Op: f.op, Subject: f.subject}
		if err := setCheckPath(&req, path); err != nil {
			return err
		}
		path = x.Locate(&req)
		if first, _, _ := strings.Cut(path, "/"); !filepath.IsAbs(path) && first != string(got.Root) {
			path = filepath.Join(got.Resolved, path) // below the root
		}
		req.Path = path
		ans, err := x.Check(ctx, req)
		if err != nil {
			return err
		}
		e = &explanation{CheckAnswer: ans}
		if e.Root != "" {
			e.RootPath, e.Mode = names.Foreign(got.Resolved), got.Policy.Rights.String()
		}
		if !e.Allowed {
			e.Allow = e.runLine(path)
		}
		return nil
	})
	return e, err
}

// withRoot grants a root in a separate registry without front ends, and calls ask.
func withRoot(ctx context.Context, spec rootspec.Spec, ask func(x session.Explainer, got guard.Grant) error) error {
	g, err := fromSpec(spec)
	if err != nil {
		return err
	}
	g.Policy.Rights, g.Origin = spec.Rights, "command line"
	reg, err := writabledirs.Registry(doctorRules(nil))
	if err != nil {
		return err
	}
	defer func() { _, _ = reg.RevokeAll(context.WithoutCancel(ctx)) }() // no program uses its roots
	got, err := reg.Grant(ctx, g)
	if err != nil {
		return err
	}
	return ask(runExplainer(reg), got)
}

// runExplainer returns an explainer that treats the roots of a registry as those of a session of
// `rootsfs run` at level namespaces.
func runExplainer(reg *guard.Registry) session.Explainer {
	visible := func(dest string, _ bool) bool { return dest == "" || sandbox.Namespaces.Shows(dest) }
	return session.Explainer{
		Registry: reg, Tree: vfs.New(reg), Mount: &mount.Options{Layout: mount.Layout{ByPath: true}, Visible: visible},
	}
}

// whyLast explains the newest refusal on record. With --session, only refusals in that session
// count. If path is not "", only refusals of path count. whyLast returns nil if there is no such
// refusal.
func (a *app) whyLast(ctx context.Context, path string) (*explanation, error) {
	defer a.waiting("reading the records")()
	t, err := a.lastTrail(ctx, path)
	if err != nil || t == nil {
		return nil, err
	}
	r := t.Refused
	e := &explanation{
		CheckAnswer: control.CheckAnswer{Path: recordPath(r), Op: r.Op.Raw(), Reason: r.Kind.Raw(), Root: r.Root},
		recordedOp:  r.Op.Raw(), Session: names.Foreign(t.Session), Detail: names.Text(names.EscapeQuoted(r.Detail)), PID: r.PID, Time: &r.Time,
		Count: max(1, r.Count), Confinement: names.Escape(t.Level), limits: limitsOf(r), host: hostOf(r),
		Older: t.Older, hasCommand: t.Ran, builtIn: r.RuleFrom == control.BuiltIn,
	}
	if len(e.limits) > 0 {
		e.Limit, e.limitOwner = e.limits[0], "root "+quoteIfNeeded(r.Root)
	}
	if !r.Last.IsZero() {
		e.Time = &r.Last
	}
	if root, ok := t.Roots[r.Root]; ok {
		e.RootPath, e.Mode = names.Foreign(root.Dir), root.Mode
	}
	if !t.Ended {
		e.Since = names.List[names.Foreign](t.EndedSince(*e.Time))
	}
	in, err := control.Find(t.Session)
	e.Ended = t.Ended || err != nil
	if r.Secret != "" {
		e.Advice = secretAdvice(r)
		return e, nil
	}
	if t.HidesPaths && (r.Effect != "" || r.Kind.Raw() == names.Escaped.String()) { // it depends on the path
		e.Advice = "the records do not have the path (audit_paths): ask about it, with rootsfs why PATH"
		return e, nil
	}
	req := control.CheckRequest{Path: (r.Root + "/" + r.Name()).Raw(), Path2: secondPath(r), Op: opWord(r), Subject: r.Subject.Raw()}
	if req.Op == names.OpRename.String() {
		e.path2 = req.Path2
	}
	if e.Ended {
		e.noteMissingRights(r)
		if e.path2 != "" && e.builtIn {
			e.findRefusedName(ctx, req)
		}
		e.startedBy, e.point = t.StartedBy(), t.Point
		e.Allow = e.runLine(t.HostPath(r))
		return e, nil
	}
	if slices.Contains(e.Since, e.Root) {
		e.noteMissingRights(r)
	}
	return e, a.judgeAgain(ctx, control.Dial(in), e, t.HostPath(r), &req)
}

// judgeAgain asks the live session of a refusal on record for the present verdict, and adds the
// verdict to the explanation.
func (a *app) judgeAgain(ctx context.Context, c *control.Client, e *explanation, host string, req *control.CheckRequest) error {
	if a.Session == "" {
		if all, err := control.List(); err == nil && len(all) > 1 {
			a.Session = e.Session.Raw() // the proposed command has to name the session
		}
	}
	if len(e.limits) > 0 || e.host != "" {
		return a.judgeLimit(ctx, c, e, req.Subject)
	}
	ans, err := control.Why.Call(ctx, c, *req)
	var remote *control.Error
	if err != nil && !errors.As(err, &remote) {
		return err
	}
	then, now := e.CheckAnswer, ans.Check
	e.fill(&ans)
	e.CheckAnswer = then // the answer on record
	switch {
	case err != nil, ans.NoRoot: // the session gives no verdict on the operation, or the root has ended
		a.noteEndedRoot(ctx, e, req.Path)
		e.Reason = then.Reason
	case now.Allowed:
		e.Now = true
		if e.Reason == names.Revoked.String() {
			e.Advice = "what programs held of the root before stays dead, also a working directory"
		}
		return nil
	default:
		e.Lacks, e.Rule, e.Reason, e.Root, e.At, e.Link = now.Lacks, now.Rule, now.Reason, now.Root, now.At, now.Link
	}
	a.setAllow(e, &ans, host)
	return nil
}

// judgeLimit completes the explanation of a refusal by a limit, or of a refused host. It adds the
// change that would allow the operation.
func (a *app) judgeLimit(ctx context.Context, c *control.Client, e *explanation, subject string) error {
	st, err := control.GetStatus.Call(ctx, c, control.None{})
	if err != nil {
		return err
	}
	if r := rootNamed(&st, e.Root.Raw()); r != nil {
		e.RootPath, e.Mode = r.Resolved, r.Mode
	}
	if st.Server != nil {
		e.Confinement = st.Server.Confinement
	}
	if e.host != "" {
		e.Allow = a.command(commandWords{"net", "add", names.Foreign(e.host)})
		return nil
	}
	e.noteLimit(&st, subject)
	return nil
}

// noteEndedRoot adds to e the ended root that held a path, if the records have such a root.
func (a *app) noteEndedRoot(ctx context.Context, e *explanation, path string) {
	store, err := recordStore()
	if err != nil {
		return
	}
	t, err := store.Trail(ctx, e.Session.Raw(), noRefusal)
	if err != nil {
		return
	}
	if name, root, found := t.EndedRoot(path); found {
		e.Root, e.RootPath, e.Mode, e.RevokedAt, e.endOp, e.Older = names.Foreign(name), names.Foreign(root.Dir), root.Mode, &root.End, root.EndOp, t.Older
		e.Reason = names.Revoked.String()
	}
}

// printExplanation prints an explanation for people.
func (a *app) printExplanation(e *explanation) {
	if e == nil {
		a.say("no refusal is on record")
		return
	}
	if e.Op == names.OpApply.String() && e.Session == "" {
		a.printWhyApply(e)
		return
	}
	a.foldAt("", e.text())
	if e.Time != nil {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(", %d times", e.Count)
		}
		when := e.Time.Local().Format(time.DateTime)
		who := ""
		if e.PID != 0 { // 0: the record has no process id
			who = fmt.Sprintf(", to pid %d", e.PID)
		}
		a.fold(fmt.Sprintf("refused:     %s%s, in session %s%s", when, who, quoteIfNeeded(e.Session), times))
	}
	switch {
	case e.Root != "" && e.RootPath != "":
		a.fold(fmt.Sprintf("root:        %s at %s, mode %s", quoteIfNeeded(e.Root), quoteIfNeeded(e.RootPath), e.Mode))
	case e.Root != "" && e.Older:
		a.fold(fmt.Sprintf("root:        %s, mode %s; its directory is not known: %s", quoteIfNeeded(e.Root), e.Mode, olderText))
	}
	if e.Link != nil {
		a.fold(fmt.Sprintf("link:        %s leads to %s", names.Quote(e.Link.At), names.Quote(e.Link.Target)))
	}
	switch {
	case e.Confinement != "":
		a.say("  confinement: %s", e.Confinement)
	case e.hasCommand && e.Older:
		a.say("  confinement: not known: %s", olderText)
	}
	for _, root := range e.Since {
		a.say("  since then:  root %s has ended: paths in it are not found any more", quoteIfNeeded(root))
	}
	switch {
	case e.Now && e.Advice != "":
		a.say("  now:         it is allowed; %s", e.Advice)
	case e.Now:
		a.say("  now:         it is allowed")
	case e.Allow != "" && e.Ended:
		a.say("  to allow it: the session has ended; start it again as %s", e.Allow)
	case e.Allow != "":
		a.say("  to allow it: %s", e.Allow)
		if e.Advice != "" {
			a.say("  note:        %s", e.Advice)
		}
	case e.Advice != "":
		a.say("  to allow it: %s", e.Advice)
	case e.Older && !e.Allowed:
		a.say("  to allow it: not known: %s", olderText)
	}
}

// olderText is shown for a fact that records of this version have and older ones lack.
const olderText = "written by an older version"
