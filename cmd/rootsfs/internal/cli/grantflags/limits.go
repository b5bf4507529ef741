package grantflags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
)

// LimitFlags are --limit NAME=VALUE, and a hidden flag for each limit, such as
// --max-file, by which the limits were given before there was --limit.
type LimitFlags struct {
	guard.Limits
	given []config.Limit
}

func (f *LimitFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(&limitValue{all: f}, "limit", "limit each root: `NAME=VALUE`, such as max_file=10M or idle=10m (rootsfs help limits); repeatable")
	_ = cmd.RegisterFlagCompletionFunc("limit", CompleteLimit(config.Limits())) // as for words
	for _, l := range config.Limits() {
		name := strings.ReplaceAll(l.Name(), "_", "-")
		fs.Var(&limitValue{all: f, one: &l}, name, l.Meaning())
		cli.HideFlags(fs, name)
	}
}

// Override puts the limits that were given in the place of others.
func (f *LimitFlags) Override(to *guard.Limits) {
	for _, l := range f.given {
		l.Copy(to, &f.Limits)
	}
}

// limitValue implements pflag.Value for --limit, or for the flag of one limit.
type limitValue struct {
	all  *LimitFlags
	one  *config.Limit // nil: the text names it
	text string
}

func (v *limitValue) Set(text string) error {
	if v.text = text; text == "" {
		return nil // emptyFlags tells
	}
	if v.one != nil {
		v.all.given = append(v.all.given, *v.one)
		return v.one.Set(&v.all.Limits, text)
	}
	l, err := setLimit(config.Limits(), &v.all.Limits, text, "max_file=10M")
	v.all.given = append(v.all.given, l)
	return err
}

// setLimit reads NAME=VALUE into a set of limits; see config.Limit.
func setLimit(all []config.Limit, to any, text, example string) (config.Limit, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return config.Limit{}, fmt.Errorf("needs NAME=VALUE, such as %s", example)
	}
	l, err := config.LimitNamed(all, name)
	if err != nil {
		return l, fmt.Errorf("%s: %w", text, err)
	}
	if err := l.Set(to, value); err != nil {
		return l, fmt.Errorf("%s=%w", l.Name(), err)
	}
	return l, nil
}

func (v *limitValue) String() string { return v.text }

func (v *limitValue) Type() string { return "string" }

// NetLimits implements pflag.Value for --net-limit.
type NetLimits struct {
	network.Limits
	text string
}

func (v *NetLimits) Set(text string) error {
	if v.text = text; text == "" {
		return nil // emptyFlags tells
	}
	_, err := setLimit(config.NetLimits(), &v.Limits, text, "bytes=1G")
	return err
}

func (v *NetLimits) String() string { return v.text }

func (v *NetLimits) Type() string { return "string" }

// CompleteLimit completes the names of limits.
func CompleteLimit(all []config.Limit) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, l := range all {
			names = append(names, cobra.CompletionWithDesc(l.Name()+"=", l.Meaning()))
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
