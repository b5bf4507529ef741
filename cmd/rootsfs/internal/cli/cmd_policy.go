package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

const policyLong = `Show, try and change the rules of a root for names: which are hidden (not there),
denied (seen, not opened) and protected (read, never changed). Patterns are written as
in .gitignore. Built-in rules cover secrets, and files that other programs execute.`

const policyExamples = `  rootsfs policy show
  rootsfs policy check code/.env --op read
  rootsfs policy set code --hide '*.sql' --allow .env.test`

func (a *app) newPolicyCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "policy",
		Short:   "Show, try and change the rules for names",
		Long:    policyLong,
		Example: policyExamples,
	}, newPolicyShowCmd(a), newPolicyCheckCmd(a), newPolicySetCmd(a))
}

const policyShowLong = `List the rules of each root of a session, in the order in which they are judged, and
the repositories that its users made, whose hooks are untrusted. With --builtin, list
the rules that every root begins with; that needs no session.`

const policyShowExamples = `  rootsfs policy show --root code
  rootsfs policy show --builtin --json`

func newPolicyShowCmd(a *app) *cobra.Command {
	var builtin bool
	var root string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "List the rules in force, and why they are there",
		Long:    policyShowLong,
		Example: policyShowExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if builtin {
				return a.report(builtinRules(), func() { a.printRules(builtinRules()) })
			}
			return a.policyShow(cmd.Context(), root)
		},
	}
	cmd.Flags().BoolVar(&builtin, "builtin", false, "the rules that every root begins with")
	a.rootFlag(cmd, &root, "only this `root`")
	return a.ofSession(cmd)
}

func builtinRules() []control.PolicyRule {
	rules := builtin.Rules()
	list := make([]*pattern.Rule, len(rules))
	for i := range rules {
		list[i] = &rules[i]
	}
	return control.Rules(list)
}

func (a *app) policyShow(ctx context.Context, root string) error {
	ans, err := ask(ctx, a, control.GetPolicy, control.None{})
	if err != nil {
		return err
	}
	if root != "" {
		ans.Roots = slices.DeleteFunc(ans.Roots, func(r control.RootPolicy) bool { return r.Root.Raw() != root })
		if len(ans.Roots) == 0 {
			return guard.NoRoot(guard.RootName(root))
		}
	}
	return a.report(ans, func() {
		for _, r := range ans.Roots {
			a.say("%s (%s)", quoteIfNeeded(r.Root), r.Mode)
			if r.Lifted != "" {
				a.say("  %s", r.Lifted)
			}
			for _, dir := range r.Repos {
				a.say("  created by the server: %s", repositoryText(r.Root, dir))
			}
			a.printRules(r.Rules)
		}
	})
}

func (a *app) printRules(rules []control.PolicyRule) {
	rows := [][]string{{"EFFECT", "PATTERN", "FROM", "WHY"}}
	for _, r := range rules {
		rows = append(rows, []string{r.Effect, underDir(r.Dir, r.Pattern).String(), ruleOrigin(&r), joinReasons(r.Reason, r.When)})
	}
	a.table(rows)
}

func underDir(dir, text names.Foreign) names.Foreign {
	if dir == "" {
		return text
	}
	return dir + "/: " + text
}

func joinReasons(reason, when string) string {
	if reason != "" && when != "" {
		return reason + " (" + when + ")"
	}
	return reason + when
}

// ruleOrigin returns the source of a rule, with the line if there is one.
func ruleOrigin(r *control.PolicyRule) string {
	if r.Line > 0 {
		return names.Escape(r.From) + ":" + strconv.Itoa(r.Line)
	}
	return names.Escape(r.From)
}

const policyCheckLong = `Say whether an operation on PATH would be allowed. PATH is ROOT/PATH, an absolute path
inside a root, or one relative to the working directory; with --root, a path below
that root. Write ./PATH if it begins like a root's name. The operation is tried at the
gate and not done: links are followed, and a rename also judges what is in a directory.
Whether the file exists is not said. "rootsfs why" also says what would allow it.

A directory whose contents have rules may still refuse to be removed. The exit code is
0 if the operation is allowed, and 3 if it is refused.`

const policyCheckExamples = `  rootsfs policy check code/.env --op read
  rootsfs policy check ./.git/config --op write
  rootsfs policy check --root code .git/hooks/pre-commit --op create --json`

func newPolicyCheckCmd(a *app) *cobra.Command {
	var req control.CheckRequest
	cmd := &cobra.Command{
		Use:     "check PATH",
		Short:   "Say whether an operation is allowed, or which rule refuses",
		Long:    policyCheckLong,
		Example: policyCheckExamples,
		Args:    argCount(1, 1, "the path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := setCheckPath(&req, args[0]); err != nil {
				return err
			}
			ans, err := control.CheckPolicy.Call(cmd.Context(), c, req)
			if err != nil {
				return err
			}
			if err := a.report(ans, func() { a.say("%s", checkedLine(&ans)) }); err != nil {
				return err
			}
			if !ans.Allowed {
				return &exitError{Code: exitNotApproved}
			}
			return nil
		},
	}
	opFlag(cmd, &req.Op)
	a.rootFlag(cmd, &req.Root, "PATH is below this `root`")
	cmd.Flags().StringVar(&req.Subject, "subject", "", "answer for this `server`, by its name in rootsfs status")
	return a.ofSession(cmd)
}

// setCheckPath sets the path and the working directory of a request, from a path on the command
// line.
func setCheckPath(req *control.CheckRequest, path string) (err error) {
	if req.Path, err = expandHome(path); err != nil {
		return usage(err)
	}
	req.Dir, err = workingDir()
	if first, _, _ := strings.Cut(path, "/"); first == "." || first == ".." {
		return err
	}
	return nil // the path may begin with a root's name, and then needs no working directory
}

// checkText returns the answer of a policy check as one line. remedy says what the user can do
// about a refusal, and is "" if the operation is allowed or checkText knows no remedy.
func checkText(c *control.CheckAnswer) (text, remedy string) {
	text = c.Op + " " + quoteIfNeeded(c.Path) + ": "
	switch {
	case c.Allowed && c.Lifted != nil:
		text += fmt.Sprintf("allowed: %s (%s) lifts %s %s (%s)", names.Quote(c.Rule.Pattern), ruleOrigin(c.Rule), c.Lifted.Effect, names.Quote(c.Lifted.Pattern), ruleOrigin(c.Lifted))
	case c.Allowed && slices.Contains([]string{"delete", "rmdir"}, c.Op):
		text += "allowed; a directory, if no pattern is about anything in it"
	case c.Allowed && c.Op == names.OpRename.String():
		text += "allowed, if no pattern is about the new name"
	case c.Allowed:
		text += "allowed"
	case c.Lacks != "":
		return text + fmt.Sprintf("refused: root %s lacks the right %s", quoteIfNeeded(c.Root), c.Lacks), "rootsfs roots set gives it"
	case c.Reason == names.NoConsent.String() && c.Root != "":
		return text + fmt.Sprintf("refused: root %s is for another server", quoteIfNeeded(c.Root)), "see: rootsfs roots list, and name it with --subject"
	case c.Reason == names.NoConsent.String():
		return text + "refused: no root of the session holds it", "see: rootsfs roots list"
	case c.Rule != nil:
		text += fmt.Sprintf("refused: %s %s (%s)", c.Rule.Effect, names.Quote(c.Rule.Pattern), ruleOrigin(c.Rule))
		if c.At != "" {
			text += ", which is about " + names.Quote(c.At)
		}
		if why := joinReasons(c.Rule.Reason, c.Rule.When); why != "" {
			text += ": " + why
		}
	case c.Link != nil:
		text += fmt.Sprintf("refused: the link %s leads out of the root, to %s", names.Quote(c.Link.At), names.Quote(c.Link.Target))
	case c.Paused != nil:
		text += "refused: " + c.Paused.String()
	default:
		text += "refused: " + c.Reason
	}
	return text, ""
}

// checkedLine returns the answer of a policy check as one line, with the remedy at its end.
func checkedLine(c *control.CheckAnswer) string {
	text, remedy := checkText(c)
	if remedy != "" {
		text += "; " + remedy
	}
	return text
}

const policySetLong = `Replace the patterns of the root NAME by those given. Without any, only the built-in
rules remain. When set returns, everything that the new rules forbid is dead.`

const policySetExamples = `  rootsfs policy set code --hide '*.sql' --protect /LICENSE`

func newPolicySetCmd(a *app) *cobra.Command {
	f := &patternFlags{}
	cmd := &cobra.Command{
		Use:               "set NAME",
		Short:             "Change the rules of a root while it is in use",
		Long:              policySetLong,
		Example:           policySetExamples,
		Args:              argCount(1, 1, "a root's name"),
		ValidArgsFunction: a.completeRoots(1),
	}
	f.Add(cmd.Flags())
	var patterns guard.Patterns
	return do(a, cmd, control.SetPatterns, func(args []string) (req control.PatternsRequest, err error) {
		patterns, err = f.patterns()
		return control.PatternsRequest{Name: args[0], Patterns: patterns}, err
	}, func(got control.RootPolicy) {
		a.say("%s has %s now, %d of them your own: %s", quoteIfNeeded(got.Root), plural(len(got.Rules), "rule"), ownRules(got.Rules), patterns.Summary())
	})
}

// ownRules counts the rules that are not built in.
func ownRules(rules []control.PolicyRule) (n int) {
	for _, r := range rules {
		if r.From != control.BuiltIn {
			n++
		}
	}
	return n
}
