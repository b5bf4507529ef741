package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard/names"
)

const configLong = `Check a configuration as a session would read it, with what it grants, print the
JSON Schema of configurations, or show what this machine allows at most. The file is
$XDG_CONFIG_HOME/rootsfs/config.toml, by default ~/.config/rootsfs/config.toml.`

const configExamples = `  rootsfs config check
  rootsfs config ceiling
  rootsfs config schema >config.schema.json`

func (a *app) newConfigCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "config",
		Short:   "Check the configuration, and print its schema",
		Long:    configLong,
		Example: configExamples,
	}, newConfigCheckCmd(a), newConfigCeilingCmd(a), newConfigSchemaCmd(a))
}

const configSchemaLong = `Print the JSON Schema (draft 2020-12) of the configuration, or of a ceiling. Editors
complete and check a TOML file whose first line names it: #:schema config.schema.json`

const configSchemaExamples = `  rootsfs config schema >~/.config/rootsfs/config.schema.json
  rootsfs config schema --ceiling | jq '.properties | keys'`

func newConfigSchemaCmd(a *app) *cobra.Command {
	ofCeiling := false
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the configuration",
		Long:    configSchemaLong,
		Example: configSchemaExamples,
		RunE: func(*cobra.Command, []string) error {
			schema := config.SchemaJSON
			if ofCeiling {
				schema = config.CeilingSchemaJSON
			}
			text, err := schema()
			if err != nil {
				return err
			}
			a.say("%s", text)
			return nil
		},
	}
	cmd.Flags().BoolVar(&ofCeiling, "ceiling", false, "print that of a machine's ceiling")
	return cmd
}

const configCeilingLong = `Show what this machine allows at most: what the administrator's files
/etc/rootsfs/ceiling.toml and /etc/rootsfs/ceiling.d/*.toml, and the fleet's ceilings, say
together. No flag, configuration, answer or command goes beyond it (see: rootsfs help
ceiling). With FILE, show what that file would say, before it is rolled out.

The exit code is 0, also without a ceiling. It is 2 if a file cannot be used: then no
session begins.`

const configCeilingExamples = `  rootsfs config ceiling
  rootsfs config ceiling ./new.toml
  rootsfs config ceiling --json | jq '.bounds[] | select(.key == "root")'`

// ceilingReport is the output of config ceiling --json.
type ceilingReport struct {
	Files  []names.Foreign `json:"files"`  // the files that were read
	Bounds []ceilingBound  `json:"bounds"` // all of them are in force
}

// ceilingBound is one bound of the ceiling.
type ceilingBound struct {
	Key   string        `json:"key"`            // "root", or TABLE.KEY
	Path  names.Foreign `json:"path,omitempty"` // of a root
	Most  string        `json:"most"`           // the most that is allowed, as the file writes it
	Where names.Foreign `json:"where"`          // FILE:LINE
}

func newConfigCeilingCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ceiling [FILE]",
		Short:   "Show what this machine allows at most",
		Long:    configCeilingLong,
		Example: configCeilingExamples,
		Args:    argCount(0, 1, ""),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := ceilingOf(args)
			if err != nil {
				return usage(err)
			}
			rep := ceilingReport{Files: names.List[names.Foreign](c.Files), Bounds: []ceilingBound{}}
			for _, b := range c.Bounds() {
				rep.Bounds = append(rep.Bounds, ceilingBound{Key: b.Key, Path: names.Foreign(b.Path), Most: b.Most, Where: names.Foreign(b.Where)})
			}
			return a.report(rep, func() { a.printCeiling(&rep) })
		},
	}
	cmd.ValidArgsFunction = tomlFiles
	a.jsonFlag(cmd)
	return cmd
}

// tomlFiles completes the names of TOML files.
func tomlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}

// ceilingOf returns the ceiling of the file that args names, or the machine's ceiling if args is
// empty.
func ceilingOf(args []string) (*config.Ceiling, error) {
	if len(args) == 0 {
		return config.LoadCeiling()
	}
	file, err := expandHome(args[0])
	if err != nil {
		return nil, err
	}
	_, c, err := config.ReadCeiling(file)
	return c, err
}

func (a *app) printCeiling(rep *ceilingReport) {
	if len(rep.Files) == 0 {
		a.say("this machine has no ceiling: there is no %s", config.CeilingDir+"/ceiling.toml")
		return
	}
	rows := [][]string{{"KEY", "AT MOST", "PATH", "WHERE"}}
	for _, b := range rep.Bounds {
		path := "-"
		if b.Path != "" {
			path = quoteIfNeeded(b.Path)
		}
		rows = append(rows, []string{b.Key, b.Most, path, quoteIfNeeded(b.Where)})
	}
	a.table(rows)
}

const configCheckLong = `Read a configuration as strictly as a session does, and show each mistake with its
line. If there is none, try what the file grants, profile by profile: each root is
opened and checked as "rootsfs mount" would; nothing is mounted or recorded.

The exit code is 0 if all is well, and 2 if the file cannot be used. Otherwise it is
that of "rootsfs mount": 3 if the rules refuse a root, 1 if it cannot be opened.`

const configCheckExamples = `  rootsfs config check
  rootsfs config check ./new.toml --json
  rootsfs config check --profile review`

func newConfigCheckCmd(a *app) *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:     "check [FILE]",
		Short:   "Find the mistakes of a configuration, and what it grants",
		Long:    configCheckLong,
		Example: configCheckExamples,
		Args:    argCount(0, 1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				var err error
				if file, err = expandHome(args[0]); err != nil {
					return usage(err)
				}
			}
			return a.configCheck(cmd.Context(), file, cmd.Flags().Changed("profile"), profile)
		},
		ValidArgsFunction: tomlFiles,
	}
	cmd.Flags().StringVar(&profile, "profile", "", "try only the roots of this `profile`")
	completeFlag(cmd, "profile", completeProfiles(func(args []string) string {
		return slices.Concat(args, []string{""})[0]
	}))
	a.jsonFlag(cmd)
	return cmd
}

// configReport is the output of config check --json.
type configReport struct {
	File     string          `json:"file"`
	Resolved string          `json:"resolved,omitempty"` // File without symbolic links; left out if there is no file, or it has mistakes
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

// configSet has the roots of one profile; the profile "" stands for no profile.
type configSet struct {
	Profile string      `json:"profile"`
	Roots   []rootTrial `json:"roots"`
}

// configCheck checks a configuration file. If the file has no mistake, configCheck tries the roots
// of every profile, or only the roots of profile if isOneProfile is set.
func (a *app) configCheck(ctx context.Context, file string, isOneProfile bool, profile string) error {
	rep := configReport{Problems: []configProblem{}, Sets: []configSet{}}
	conf, path, err := config.LoadFlag(file)
	rep.File = path
	if err != nil {
		if rep.Problems = configProblems(err); !a.JSON {
			for _, p := range rep.Problems[:len(rep.Problems)-1] {
				a.say("%s", p.line(rep.File))
			}
			last := rep.Problems[len(rep.Problems)-1]
			return usage(errors.New(last.line(rep.File)))
		}
		if err := a.report(rep, nil); err != nil {
			return err
		}
		return &exitError{Code: ExitUsage}
	}
	rep.Resolved = conf.Resolved
	profileNames := profiles(conf)
	if isOneProfile {
		if _, err := conf.Select(profile); err != nil {
			return usage(err)
		}
		profileNames = []string{profile}
	}
	opened := openRoots(ctx, rootPaths(conf))
	failed, first := 0, error(nil)
	for _, p := range profileNames {
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
	if err := a.report(rep, func() { a.printConfig(&rep) }); err != nil {
		return err
	}
	if failed > 0 {
		return &exitError{Code: exitCode(first), Err: fmt.Errorf("%s cannot be granted", plural(failed, "root"))}
	}
	return nil
}

// configProblems returns the mistakes that err reports, at least one, in the order of the file.
func configProblems(err error) []configProblem {
	var e *config.Error
	if !errors.As(err, &e) {
		return []configProblem{{Error: oneLine(err)}}
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

// line returns a mistake as a line for people.
func (p *configProblem) line(file string) string {
	e := config.Error{File: file, Line: p.Line, Key: p.Key, Err: errors.New(p.Error)}
	return e.Error()
}

func (a *app) printConfig(rep *configReport) {
	if rep.Resolved == "" {
		a.say("%s: there is none, so nothing is configured", quoteIfNeeded(rep.File))
		return
	}
	a.say("%s: read without a mistake", quoteIfNeeded(rep.File))
	for _, set := range rep.Sets {
		if set.Profile != "" {
			a.say("profile %s:", quoteIfNeeded(set.Profile))
		}
		if len(set.Roots) == 0 {
			a.say("no roots")
			continue
		}
		rows := [][]string{{"LINE", "ROOT", "MODE", "FOR", "EXPIRES", "RULES", "GRANTS"}}
		for i := range set.Roots {
			rows = append(rows, set.Roots[i].row())
		}
		a.table(rows)
	}
}
