package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

func (a *app) newConfigCmd() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "config",
		Short: "Check the configuration, and print its schema",
	}, newConfigCheckCmd(a), newConfigSchemaCmd(a))
}

func newConfigSchemaCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration",
		RunE: func(*cobra.Command, []string) error {
			text, err := config.SchemaJSON()
			if err != nil {
				return err
			}
			a.Say("%s", text)
			return nil
		},
	}
}

func newConfigCheckCmd(a *app) *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Find the mistakes of a configuration, and what it grants",
		Args:  cli.ArgCount(0, 1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				var err error
				if file, err = cli.ExpandHome(args[0]); err != nil {
					return cli.Usage(err)
				}
			}
			return a.configCheck(cmd.Context(), file, cmd.Flags().Changed("profile"), profile)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	cmd.Flags().StringVar(&profile, "profile", "", "try only the roots of this `profile`")
	_ = cmd.RegisterFlagCompletionFunc("profile", cli.CompleteProfiles(func(args []string) string { // as for words
		return slices.Concat(args, []string{""})[0]
	}))
	a.JSONFlag(cmd)
	return cmd
}

// configReport is what config check --json prints.
type configReport struct {
	File     string          `json:"file"`
	Resolved string          `json:"resolved,omitempty"` // without links; left out if there is no file
	OK       bool            `json:"ok"`
	Problems []configProblem `json:"problems"`
	Sets     []configSet     `json:"sets"`
}

// configProblem is one mistake in the file.
type configProblem struct {
	Line  int    `json:"line,omitempty"` // 0: the file as a whole
	Key   string `json:"key,omitempty"`
	Error string `json:"error"`
}

// configSet is what one profile grants; "" is that of no profile.
type configSet struct {
	Profile string       `json:"profile"`
	Roots   []configRoot `json:"roots"`
}

// configRoot is what became of one root.
type configRoot struct {
	Name     string     `json:"name"`
	Path     string     `json:"path"`
	Resolved string     `json:"resolved,omitempty"`
	File     bool       `json:"file,omitempty"`
	Mode     string     `json:"mode"`
	Subject  string     `json:"subject,omitempty"`
	Line     int        `json:"line"`
	Expires  *time.Time `json:"expires,omitempty"` // of a grant made now
	Expired  bool       `json:"expired,omitempty"` // its time is over: it is left out
	Rules    int        `json:"rules"`             // patterns in force, built-in ones included
	Lifted   string     `json:"lifted_protections,omitempty"`
	Problem  string     `json:"problem,omitempty"` // why it cannot be granted
}

func (a *app) configCheck(ctx context.Context, file string, one bool, profile string) error {
	rep := configReport{Problems: []configProblem{}, Sets: []configSet{}}
	conf, err := readConfig(file, &rep)
	if err != nil {
		if rep.Problems = problems(err); !a.JSON {
			for _, p := range rep.Problems[:len(rep.Problems)-1] {
				a.Say("%s", p.line(rep.File))
			}
			last := rep.Problems[len(rep.Problems)-1]
			return cli.Usage(errors.New(last.line(rep.File)))
		}
		if err := a.Report(rep, nil); err != nil {
			return err
		}
		return &cli.ExitError{Code: cli.ExitUsage}
	}
	which := append([]string{""}, slices.Sorted(maps.Keys(conf.Profiles))...)
	if one {
		if _, err := conf.Select(profile); err != nil {
			return cli.Usage(err)
		}
		which = []string{profile}
	}
	failed, first := 0, error(nil)
	for _, p := range which {
		set, errs := tryGrants(ctx, conf, p)
		rep.Sets = append(rep.Sets, set)
		if failed += len(errs); first == nil && len(errs) > 0 {
			first = errs[0]
		}
	}
	rep.OK = failed == 0
	if err := a.Report(rep, func() { a.printConfig(&rep) }); err != nil {
		return err
	}
	if failed > 0 {
		return &cli.ExitError{Code: cli.ExitCode(first), Err: fmt.Errorf("%s cannot be granted", cli.Plural(failed, "root"))}
	}
	return nil
}

// readConfig reads the file as a session would.
func readConfig(file string, rep *configReport) (*config.Config, error) {
	conf, path, err := config.LoadFlag(file)
	if path == "" {
		return nil, err
	}
	if rep.File = path; err == nil {
		rep.Resolved = conf.Resolved
	}
	return conf, err
}

// problems are the mistakes in a file, in its order; there is at least one.
func problems(err error) []configProblem {
	var e *config.Error
	if !errors.As(err, &e) {
		return []configProblem{{Error: cli.OneLine(err)}}
	}
	out := []configProblem{{e.Line, e.Key, e.Err.Error()}}
	if errors.Is(e.Err, fs.ErrNotExist) {
		out[0].Error = "no such file; check the spelling"
	}
	for _, more := range e.Rest {
		out = append(out, configProblem{more.Line, more.Key, more.Err.Error()})
	}
	return out
}

// line is a mistake as people read it.
func (p *configProblem) line(file string) string {
	e := config.Error{File: file, Line: p.Line, Key: p.Key, Err: errors.New(p.Error)}
	return e.Error()
}

// tryGrants grants what a profile names in a registry that nothing shows, and
// takes it back.
func tryGrants(ctx context.Context, conf *config.Config, profile string) (set configSet, errs []error) {
	set = configSet{Profile: profile, Roots: []configRoot{}}
	reg, err := written.Registry(DoctorRules(conf))
	if err != nil {
		return configSet{}, []error{err}
	}
	defer func() { _, _ = reg.RevokeAll(context.WithoutCancel(ctx)) }() // nobody holds anything of it
	roots, err := conf.Select(profile)
	if err != nil {
		return set, []error{err}
	}
	now := time.Now()
	for i := range roots {
		r := &roots[i]
		out := configRoot{Name: string(r.Name), Path: r.Path, Mode: r.Rights.String(), Subject: string(r.Subject),
			Line: r.Line, Expired: r.Expired(now), Lifted: r.Patterns.Lifted()}
		if !out.Expired {
			got, err := reg.Grant(ctx, r.Grant(now))
			if err != nil {
				out.Problem = remedied(reg, r.Grant(now), err)
				errs = append(errs, err)
			} else {
				granted(reg, &got, &out)
			}
		}
		set.Roots = append(set.Roots, out)
	}
	return set, errs
}

// remedied says why a root cannot be granted, with the remedy that fits a file.
func remedied(reg *guard.Registry, g guard.Grant, err error) string {
	if g.AllowSystem = true; errors.Is(err, names.Permission) {
		if p, perr := reg.Propose(g); perr == nil {
			p.Close()
			return fmt.Sprintf("%s is a system directory and may only be read-only; write allow_system = true in its [[root]] block if writing is meant", names.Quote(g.Dir))
		}
	}
	return cli.OneLine(err)
}

func granted(reg *guard.Registry, got *guard.Grant, out *configRoot) {
	out.Resolved, out.Rules = got.Resolved, len(reg.RulesOf(got.Root))
	if !got.Expires.IsZero() {
		out.Expires = &got.Expires
	}
	if st, ok := reg.Lookup(got.Root); ok {
		out.File = st.FileRoot
	}
}

func (a *app) printConfig(rep *configReport) {
	if rep.Resolved == "" {
		a.Say("%s: there is none, so nothing is configured", cli.QuoteIfNeeded(rep.File))
		return
	}
	a.Say("%s: read without a mistake", cli.QuoteIfNeeded(rep.File))
	for _, set := range rep.Sets {
		if set.Profile != "" {
			a.Say("profile %s:", cli.QuoteIfNeeded(set.Profile))
		}
		if len(set.Roots) == 0 {
			a.Say("no roots")
			continue
		}
		rows := [][]string{{"LINE", "ROOT", "MODE", "FOR", "EXPIRES", "RULES", "GRANTS"}}
		for i := range set.Roots {
			rows = append(rows, set.Roots[i].row())
		}
		a.Table(rows)
	}
}

func (r *configRoot) row() []string {
	whom, what := "every server", cli.QuoteIfNeeded(r.Resolved)
	if r.Subject != "" {
		whom = cli.QuoteIfNeeded(r.Subject)
	}
	switch {
	case r.Expired:
		what = "nothing: its time is over"
	case r.Problem != "":
		what = "cannot be granted: " + r.Problem
	case r.Lifted != "":
		what += " (" + names.Escape(r.Lifted) + ")"
	}
	return []string{strconv.Itoa(r.Line), cli.QuoteIfNeeded(r.Name), r.Mode, whom, cli.LocalTime(r.Expires), strconv.Itoa(r.Rules), what}
}
