package doctorcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
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
	cli.CompleteFlag(cmd, "profile", cli.CompleteProfiles(func(args []string) string {
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
	Profile string  `json:"profile"`
	Roots   []trial `json:"roots"`
}

func (a *app) configCheck(ctx context.Context, file string, one bool, profile string) error {
	rep := configReport{Problems: []configProblem{}, Sets: []configSet{}}
	conf, path, err := config.LoadFlag(file)
	rep.File = path
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
	rep.Resolved = conf.Resolved
	which := profiles(conf)
	if one {
		if _, err := conf.Select(profile); err != nil {
			return cli.Usage(err)
		}
		which = []string{profile}
	}
	opened := openRoots(ctx, rootPaths(conf))
	failed, first := 0, error(nil)
	for _, p := range which {
		list, err := tryRoots(ctx, conf, p, opened)
		if err != nil {
			return err
		}
		for i := range list {
			if list[i].err != nil {
				failed, first = failed+1, cmp.Or(first, list[i].err)
			}
		}
		rep.Sets = append(rep.Sets, configSet{p, list})
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
