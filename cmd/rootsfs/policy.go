package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

func newPolicyCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show, try and change the rules for names",
		Long: `Show, try and change the rules of a root for names: which are hidden (not there),
denied (seen, not opened) and protected (read, never changed). Patterns are written as
in .gitignore. Built-in rules cover secrets, and files that other programs execute.`,
		Example: `  rootsfs policy show
  rootsfs policy check code/.env --op read
  rootsfs policy set code --hide '*.sql' --allow .env.test`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyShowCmd(a), newPolicyCheckCmd(a), newPolicyTestCmd(a), newPolicySetCmd(a))
	return cmd
}

func newPolicyShowCmd(a *app) *cobra.Command {
	var builtin bool
	var root string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "List the rules in force, and why they are there",
		Long: `List the rules of each root of a session, in the order in which they are judged, and
the repositories that its users made, whose hooks are untrusted. With --builtin, list
the rules that every root begins with; that needs no session.`,
		Example: `  rootsfs policy show --root code
  rootsfs policy show --builtin --json`,
		Args: nargs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if builtin {
				return a.report(builtinRules(), func() { a.sayRules(builtinRules()) })
			}
			return a.policyShow(cmd.Context(), root)
		},
	}
	cmd.Flags().BoolVar(&builtin, "builtin", false, "the rules that every root begins with")
	cmd.Flags().StringVar(&root, "root", "", "only this `root`")
	_ = cmd.RegisterFlagCompletionFunc("root", a.completeRoots(-1)) // fails only if there is no such flag
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

func builtinRules() []control.PolicyRule {
	rules := pattern.Builtin()
	list := make([]*pattern.Rule, len(rules))
	for i := range rules {
		list[i] = &rules[i]
	}
	return control.Rules(list)
}

func (a *app) policyShow(ctx context.Context, root string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ans, err := c.Policy(ctx)
	if err != nil {
		return err
	}
	if root != "" {
		kept := ans.Roots[:0]
		for _, r := range ans.Roots {
			if r.Root == root {
				kept = append(kept, r)
			}
		}
		if len(kept) == 0 {
			return guard.NoRoot(guard.RootName(root))
		}
		ans.Roots = kept
	}
	return a.report(ans, func() {
		for _, r := range ans.Roots {
			a.say("%s (%s)", shown(r.Root), r.Mode)
			if r.Lifted != "" {
				a.say("  %s", r.Lifted)
			}
			for _, dir := range r.Repos {
				a.say("  created by the server: %s", repository(r.Root, dir))
			}
			a.sayRules(r.Rules)
		}
	})
}

func (a *app) sayRules(rules []control.PolicyRule) {
	rows := [][]string{{"EFFECT", "PATTERN", "FROM", "WHY"}}
	for _, r := range rules {
		rows = append(rows, []string{r.Effect, under(r.Dir, r.Pattern).String(), where(&r), join(r.Reason, r.When)})
	}
	a.table(rows)
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
		Long: `Say what an operation on PATH would be answered. PATH is ROOT/PATH, an absolute path
inside a root, or one relative to the working directory; with --root, a path below
that root. Write ./PATH if it begins like a root's name. Nothing is done, and whether
the file exists is not said. "rootsfs why" also says what would allow it.

A directory whose contents have rules may still refuse to be moved or removed. The
exit code is 0 if the operation is allowed, and 3 if it is refused.`,
		Example: `  rootsfs policy check code/.env --op read
  rootsfs policy check ./.git/config --op write
  rootsfs policy check --root code .git/hooks/pre-commit --op create --json`,
		Args: nargs(1, 1, "the path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			q.path = args[0]
			ans, err := q.ask(cmd.Context(), c)
			if err != nil {
				return err
			}
			if err := a.report(ans, func() { a.say("%s", checkedLine(&ans)) }); err != nil {
				return err
			}
			if !ans.Allowed {
				return &exitError{code: exitNotApproved}
			}
			return nil
		},
	}
	opFlag(cmd, &q.op)
	cmd.Flags().StringVar(&q.root, "root", "", "PATH is below this `root`")
	_ = cmd.RegisterFlagCompletionFunc("root", a.completeRoots(-1)) // as above
	cmd.Flags().StringVar(&q.subject, "subject", "", "ask for this `server`")
	subjectCompletion(a, cmd)
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

// fromHere makes a path absolute that is relative to the working directory: one that
// begins with ./ or ../, and one that begins with no root's name and lies in a root.
func fromHere(ctx context.Context, c *control.Client, path string) (string, error) {
	if filepath.IsAbs(path) || strings.HasPrefix(path, "file:") {
		return path, nil
	}
	first, _, _ := strings.Cut(path, "/")
	explicit := first == "." || first == ".."
	full, err := filepath.Abs(path)
	if err != nil {
		if explicit {
			return "", err
		}
		return path, nil
	}
	if explicit {
		return full, nil
	}
	st, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	inside := false
	for _, r := range st.Roots {
		if r.Name == first {
			return path, nil
		}
		for _, dir := range []string{r.Path, r.Resolved} {
			rel, err := filepath.Rel(dir, full)
			inside = inside || err == nil && filepath.IsLocal(rel)
		}
	}
	if inside {
		return full, nil
	}
	return path, nil
}

// checked is a check's answer as one line, and what to do, if that can be said in general.
func checked(c *control.CheckAnswer) (text, remedy string) {
	text = c.Op + " " + shown(c.Path) + ": "
	switch {
	case c.Allowed && c.Lifted != nil:
		text += fmt.Sprintf("allowed: %s (%s) lifts %s %s (%s)", names.Quote(c.Rule.Pattern), where(c.Rule), c.Lifted.Effect, names.Quote(c.Lifted.Pattern), where(c.Lifted))
	case c.Allowed && slices.Contains([]string{"rename", "delete", "rmdir"}, c.Op):
		text += "allowed; a directory, if no pattern is about anything in it"
	case c.Allowed:
		text += "allowed"
	case c.Lacks != "":
		return text + fmt.Sprintf("refused: root %s lacks the right %s", shown(c.Root), c.Lacks), "rootsfs roots set gives it"
	case c.Reason == names.NoConsent.String() && c.Root != "":
		return text + fmt.Sprintf("refused: root %s is for another server", shown(c.Root)), "see: rootsfs roots list, and name it with --subject"
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
	f := &patternFlags{}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the rules of a root while it is in use",
		Long: `Replace the patterns of the root NAME by those given. Without any, only the built-in
rules remain. When set returns, everything that the new rules forbid is dead.`,
		Example:           `  rootsfs policy set code --hide '*.sql' --protect /LICENSE`,
		Args:              nargs(1, 1, "a root's name"),
		ValidArgsFunction: a.completeRoots(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.patterns()
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			got, err := c.SetPatterns(cmd.Context(), control.PatternsRequest{Name: args[0], Patterns: p})
			if err != nil {
				return err
			}
			return a.report(got, func() {
				a.say("%s has %s now, %d of them your own: %s", shown(got.Root), plural(len(got.Rules), "rule"), own(got.Rules), p.Summary())
			})
		},
	}
	f.add(cmd.Flags())
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
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

// expectations is the file of `policy test`.
type expectations struct {
	Expect []expectation `toml:"expect"`
}

type expectation struct {
	Path    string `toml:"path"`
	Op      string `toml:"op"`
	Subject string `toml:"subject"`
	Allowed *bool  `toml:"allowed"`
	Effect  string `toml:"effect"` // of the rule that decides, "" for any
}

// tested is what policy test --json prints for each expectation.
type tested struct {
	OK   bool                `json:"ok"`
	Want string              `json:"want"`
	Got  control.CheckAnswer `json:"got"`
}

func newPolicyTestCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Compare a session's policy with a table of expectations",
		Long: `Compare a session's policy with the expectations in FILE. The exit code is 0 if all
hold, and 1 if one does not. FILE has TOML blocks:
  [[expect]]
  path = "code/.env"
  op = "read"
  allowed = false
  effect = "hide"       # may be left out`,
		Example: "  rootsfs policy test policy-tests.toml",
		Args:    nargs(1, 1, "the file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.policyTest(cmd.Context(), args[0]) },
	}
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

func readExpectations(file string) ([]expectation, error) {
	file, err := inHome(file)
	if err != nil {
		return nil, usage(err)
	}
	doc, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var e expectations
	dec := toml.NewDecoder(strings.NewReader(string(doc))).DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return nil, usage(fmt.Errorf("%s: %w", names.Quote(file), located(err)))
	}
	if len(e.Expect) == 0 {
		return nil, usage(fmt.Errorf("%s has no [[expect]] block; see: rootsfs policy test --help", names.Quote(file)))
	}
	for i, one := range e.Expect {
		for _, must := range []struct {
			key     string
			missing bool
		}{{"path", one.Path == ""}, {"op", one.Op == ""}, {"allowed", one.Allowed == nil}} {
			if must.missing {
				return nil, usage(fmt.Errorf("%s: expectation %d has no %s; see: rootsfs policy test --help", names.Quote(file), i+1, must.key))
			}
		}
		if !slices.Contains([]string{"", pattern.Hide.String(), pattern.Deny.String(), pattern.Protect.String()}, one.Effect) {
			return nil, usage(fmt.Errorf("%s: expectation %d: effect %s: write hide, deny or protect, or leave it out", names.Quote(file), i+1, names.Quote(one.Effect)))
		}
	}
	return e.Expect, nil
}

// located says where in a TOML file a mistake is.
func located(err error) error {
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		wrong = &unknown.Errors[0]
		row, _ := wrong.Position()
		return fmt.Errorf("line %d: unknown key %s", row, names.Quote(strings.Join(wrong.Key(), ".")))
	case errors.As(err, &wrong):
		row, _ := wrong.Position()
		if keys := wrong.Key(); len(keys) > 0 && expectTypes[keys[len(keys)-1]] != "" {
			key := keys[len(keys)-1]
			return fmt.Errorf("line %d: %s must be %s", row, key, expectTypes[key])
		}
		return fmt.Errorf("line %d: %s", row, strings.TrimPrefix(names.Escape(err.Error()), "toml: "))
	}
	return err
}

// expectTypes are what the keys of an expectation take.
var expectTypes = map[string]string{
	"path": "text in quotes", "op": "text in quotes", "subject": "text in quotes", "effect": "text in quotes",
	"allowed": "true or false", "expect": "blocks that begin with [[expect]]",
}

func (a *app) policyTest(ctx context.Context, file string) error {
	list, err := readExpectations(file)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	results, failed := make([]tested, 0, len(list)), 0
	for i, e := range list {
		got, err := c.Check(ctx, control.CheckRequest{Path: e.Path, Op: e.Op, Subject: e.Subject})
		if err != nil {
			return fmt.Errorf("expectation %d: %w", i+1, err)
		}
		r := tested{Got: got, Want: "refused", OK: got.Allowed == *e.Allowed}
		if *e.Allowed {
			r.Want = "allowed"
		}
		if e.Effect != "" {
			r.Want += " by " + e.Effect
			r.OK = r.OK && got.Rule != nil && got.Rule.Effect == e.Effect
		}
		if !r.OK {
			failed++
		}
		results = append(results, r)
	}
	err = a.report(results, func() {
		for i := range results {
			if r := &results[i]; !r.OK {
				a.say("expected %s, got %s", r.Want, checkedLine(&r.Got))
			}
		}
		a.say("%s, %d failed", plural(len(results), "expectation"), failed)
	})
	if err == nil && failed > 0 {
		return &exitError{code: exitFailure, err: errors.New("not every expectation holds")}
	}
	return err
}
