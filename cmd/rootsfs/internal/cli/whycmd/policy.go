package whycmd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/grantflags"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

func (a *app) newPolicyCmd() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "policy",
		Short: "Show, try and change the rules for names",
	}, newPolicyShowCmd(a), newPolicyCheckCmd(a), newPolicySetCmd(a))
}

func newPolicyShowCmd(a *app) *cobra.Command {
	var builtin bool
	var root string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "List the rules in force, and why they are there",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if builtin {
				return a.Report(builtinRules(), func() { a.printRules(builtinRules()) })
			}
			return a.policyShow(cmd.Context(), root)
		},
	}
	cmd.Flags().BoolVar(&builtin, "builtin", false, "the rules that every root begins with")
	a.RootFlag(cmd, &root, "only this `root`")
	return a.OfSession(cmd)
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
	ans, err := cli.Ask(ctx, a.App, control.GetPolicy, control.None{})
	if err != nil {
		return err
	}
	if root != "" {
		ans.Roots = slices.DeleteFunc(ans.Roots, func(r control.RootPolicy) bool { return r.Root != root })
		if len(ans.Roots) == 0 {
			return guard.NoRoot(guard.RootName(root))
		}
	}
	return a.Report(ans, func() {
		for _, r := range ans.Roots {
			a.Say("%s (%s)", cli.QuoteIfNeeded(r.Root), r.Mode)
			if r.Lifted != "" {
				a.Say("  %s", r.Lifted)
			}
			for _, dir := range r.Repos {
				a.Say("  created by the server: %s", cli.RepositoryText(r.Root, dir))
			}
			a.printRules(r.Rules)
		}
	})
}

func (a *app) printRules(rules []control.PolicyRule) {
	rows := [][]string{{"EFFECT", "PATTERN", "FROM", "WHY"}}
	for _, r := range rules {
		rows = append(rows, []string{r.Effect, under(r.Dir, r.Pattern).String(), where(&r), join(r.Reason, r.When)})
	}
	a.Table(rows)
}

func under(dir, text names.Foreign) names.Foreign {
	if dir == "" {
		return text
	}
	return dir + "/: " + text
}

func join(reason, when string) string {
	if reason != "" && when != "" {
		return reason + " (" + when + ")"
	}
	return reason + when
}

// where is the place a rule stands at.
func where(r *control.PolicyRule) string {
	if r.Line > 0 {
		return names.Escape(r.From) + ":" + strconv.Itoa(r.Line)
	}
	return names.Escape(r.From)
}

func newPolicyCheckCmd(a *app) *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:   "check PATH",
		Short: "Say whether an operation is allowed, or which rule refuses",
		Args:  cli.ArgCount(1, 1, "the path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			st, err := control.GetStatus.Call(cmd.Context(), c, control.None{})
			if err != nil {
				return err
			}
			q.path = args[0]
			ans, err := q.ask(cmd.Context(), c, &st)
			if err != nil {
				return err
			}
			if err := a.Report(ans, func() { a.Say("%s", checkedLine(&ans)) }); err != nil {
				return err
			}
			if !ans.Allowed {
				return &cli.ExitError{Code: cli.ExitNotApproved}
			}
			return nil
		},
	}
	opFlag(cmd, &q.op)
	a.RootFlag(cmd, &q.root, "PATH is below this `root`")
	cmd.Flags().StringVar(&q.subject, "subject", "", "answer for this `server`, by its name in rootsfs status")
	return a.OfSession(cmd)
}

// inSession is a path as a session takes it: ROOT/PATH if it leads through the mountpoint, and
// absolute if it is relative to the working directory, which is so if it begins with ./ or
// ../, or with no root's name and lies in a root.
func inSession(st *control.Status, path string) (string, error) {
	first, _, _ := strings.Cut(path, "/")
	if strings.HasPrefix(path, "file:") || rootNamed(st, first) != nil {
		return path, nil
	}
	full, err := filepath.Abs(path)
	isDotted := first == "." || first == ".."
	switch {
	case isDotted && err != nil:
		return "", err
	case err != nil:
		return path, nil
	case filepath.IsAbs(st.Point) && full != st.Point && names.Under(full, st.Point):
		return strings.TrimPrefix(full, st.Point+"/"), nil
	case isDotted:
		return full, nil
	case filepath.IsAbs(path):
		return path, nil
	}
	if slices.ContainsFunc(st.Roots, func(r control.Root) bool { return names.Under(full, r.Path) || names.Under(full, r.Resolved) }) {
		return full, nil
	}
	return path, nil
}

// checked is a check's answer as one line, and what to do, if that can be said in general.
func checked(c *control.CheckAnswer) (text, remedy string) {
	text = c.Op + " " + cli.QuoteIfNeeded(c.Path) + ": "
	switch {
	case c.Allowed && c.Lifted != nil:
		text += fmt.Sprintf("allowed: %s (%s) lifts %s %s (%s)", names.Quote(c.Rule.Pattern), where(c.Rule), c.Lifted.Effect, names.Quote(c.Lifted.Pattern), where(c.Lifted))
	case c.Allowed && slices.Contains([]string{"rename", "delete", "rmdir"}, c.Op):
		text += "allowed; a directory, if no pattern is about anything in it"
	case c.Allowed:
		text += "allowed"
	case c.Lacks != "":
		return text + fmt.Sprintf("refused: root %s lacks the right %s", cli.QuoteIfNeeded(c.Root), c.Lacks), "rootsfs roots set gives it"
	case c.Reason == names.NoConsent.String() && c.Root != "":
		return text + fmt.Sprintf("refused: root %s is for another server", cli.QuoteIfNeeded(c.Root)), "see: rootsfs roots list, and name it with --subject"
	case c.Reason == names.NoConsent.String():
		return text + "refused: no root of the session holds it", "see: rootsfs roots list"
	case c.Rule != nil:
		text += fmt.Sprintf("refused: %s %s (%s)", c.Rule.Effect, names.Quote(c.Rule.Pattern), where(c.Rule))
		if why := join(c.Rule.Reason, c.Rule.When); why != "" {
			text += ": " + why
		}
	default:
		text += "refused: " + c.Reason
	}
	return text, ""
}

// checkedLine is a check's answer with what to do behind it.
func checkedLine(c *control.CheckAnswer) string {
	text, remedy := checked(c)
	if remedy != "" {
		text += "; " + remedy
	}
	return text
}

func newPolicySetCmd(a *app) *cobra.Command {
	f := &grantflags.Patterns{}
	cmd := &cobra.Command{
		Use:               "set NAME",
		Short:             "Change the rules of a root while it is in use",
		Args:              cli.ArgCount(1, 1, "a root's name"),
		ValidArgsFunction: a.CompleteRoots(1),
	}
	f.Add(cmd.Flags())
	var patterns guard.Patterns
	return cli.Do(a.App, cmd, control.SetPatterns, func(args []string) (req control.PatternsRequest, err error) {
		patterns, err = f.Patterns()
		return control.PatternsRequest{Name: args[0], Patterns: patterns}, err
	}, func(got control.RootPolicy) {
		a.Say("%s has %s now, %d of them your own: %s", cli.QuoteIfNeeded(got.Root), cli.Plural(len(got.Rules), "rule"), own(got.Rules), patterns.Summary())
	})
}

// own counts the rules that are not built in.
func own(rules []control.PolicyRule) (n int) {
	for _, r := range rules {
		if r.From != control.BuiltIn {
			n++
		}
	}
	return n
}
