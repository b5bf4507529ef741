package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// keyFlags are flags that set keys of a table of the configuration, with their values.
type keyFlags[T any] struct {
	Values  T
	setKeys []config.Key[T] // keys that the command line has set
}

// netLimits has the limits that --net-limit sets.
type netLimits = keyFlags[network.Limits]

// addLimits adds --limit, and for each limit a hidden flag such as --max-file. Older versions had these
// flags instead of --limit.
func addLimits(cmd *cobra.Command, f *keyFlags[guard.Limits]) {
	f.addNamed(cmd, "limit", "limit each root: `NAME=VALUE`, such as max_file=10M or idle=10m (rootsfs help limits); repeatable", config.Limits())
	f.addEach(cmd, "", config.Limits())
}

// addNamed adds a flag that takes NAME=VALUE, for any of the keys.
func (f *keyFlags[T]) addNamed(cmd *cobra.Command, flag, usage string, keys []config.Key[T]) {
	cmd.Flags().Var(&keyValue[T]{flags: f, keys: keys}, flag, usage)
	completeFlag(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var list []string
		for _, k := range keys {
			list = append(list, cobra.CompletionWithDesc(k.Name()+"=", k.Meaning()))
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// addEach adds a hidden flag for each of the keys.
func (f *keyFlags[T]) addEach(cmd *cobra.Command, prefix string, keys []config.Key[T]) {
	for _, k := range keys {
		name := prefix + strings.ReplaceAll(k.Name(), "_", "-")
		flag := cmd.Flags().VarPF(&keyValue[T]{flags: f, keys: []config.Key[T]{k}, hasOneKey: true}, name, "", k.Meaning())
		if k.IsSwitch() {
			flag.NoOptDefVal = "true"
		}
		hideFlags(cmd.Flags(), name)
	}
}

// override copies into dst the values of the keys that the command line has set.
func (f *keyFlags[T]) override(dst *T) {
	for _, k := range f.setKeys {
		k.Copy(dst, &f.Values)
	}
}

// keyValue implements pflag.Value.
type keyValue[T any] struct {
	flags     *keyFlags[T]
	keys      []config.Key[T]
	hasOneKey bool // the text is the value of the one key; otherwise it is NAME=VALUE
	text      string
}

func (v *keyValue[T]) Set(text string) error {
	if v.text = text; text == "" {
		return nil // emptyFlags reports it
	}
	k, value := v.keys[0], text
	if !v.hasOneKey {
		name, after, ok := strings.Cut(text, "=")
		var err error
		if k, err = config.KeyNamed(v.keys, name); err == nil && !ok {
			err = fmt.Errorf("write %s=VALUE", k.Name())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", names.ShellWord(text), err)
		}
		value = after
	}
	v.flags.setKeys = append(v.flags.setKeys, k)
	err := k.Set(&v.flags.Values, value)
	if err != nil && !v.hasOneKey {
		err = fmt.Errorf("%s=%w", k.Name(), err)
	}
	return err
}

func (v *keyValue[T]) String() string { return v.text }

func (v *keyValue[T]) Type() string { return "string" }
