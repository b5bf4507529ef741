package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// shells are the shells for which there is a completion script.
var shells = map[string]func(*cobra.Command, io.Writer) error{
	"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
	"fish":       fishCompletion,
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	"zsh":        (*cobra.Command).GenZshCompletion,
}

// fishCompletion prints cobra's script with one change: cobra's script would evaluate the words
// of the command line, which fish has taken out of their quotes.
func fishCompletion(c *cobra.Command, w io.Writer) error {
	const argsLine = "set -l args (commandline -opc)\n"
	var script strings.Builder
	if err := c.GenFishCompletion(&script, true); err != nil {
		return err
	}
	before, after, ok := strings.Cut(script.String(), argsLine)
	if !ok {
		return errors.New("cobra's script for fish is another one")
	}
	_, err := io.WriteString(w, before+argsLine+"    set args $args[1] (string escape -- $args)[2..-1]\n"+after)
	return err
}

// completionWriter is standard output while a shell asks for completions. It passes only words that
// need no quotes in any shell: at the next Tab bash evaluates the words that it has put on the line,
// and a server or a repository may have chosen them. It passes each word once: if a word comes
// twice, bash puts the description on the line, too.
type completionWriter struct {
	*app
	words map[string]bool
}

// Write implements io.Writer. p has whole lines: a word, a tab and the meaning of the word.
func (o completionWriter) Write(p []byte) (int, error) {
	flags := strings.HasPrefix(o.Args[len(o.Args)-1], "-")
	for line := range strings.Lines(string(p)) {
		word, what, hasMeaning := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		// The last line is the directive, not a word: it begins with a colon.
		if !names.IsShellWord(word) || strings.HasPrefix(word, "-") && !flags || o.words[word] && word[0] != ':' {
			continue
		}
		o.words[word] = true
		if hasMeaning {
			word += "\t" + names.EscapeQuoted(what)
		}
		o.say("%s", word)
	}
	return len(p), nil
}

const completionLong = `Print a script that makes a shell complete commands, flags, topics, and the names of
live sessions and roots. SHELL is bash, fish, powershell or zsh. bash needs the
package bash-completion, zsh compinit. A name that a shell would have to quote is
not offered.`

const completionExamples = `  source <(rootsfs completion bash)      # in ~/.bashrc
  source <(rootsfs completion zsh)       # in ~/.zshrc, after compinit
  rootsfs completion fish >~/.config/fish/completions/rootsfs.fish`

// newCompletionCmd replaces cobra's command, which for an unknown shell shows its help and
// succeeds.
func newCompletionCmd() *cobra.Command {
	list := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print a script for completion in a shell",
		Long:      completionLong,
		Example:   completionExamples,
		ValidArgs: list,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usage(fmt.Errorf("name one shell: %s", strings.Join(list, ", ")))
			case !slices.Contains(list, args[0]):
				return usage(fmt.Errorf("there is no completion for %s; there is for %s", names.Quote(args[0]), strings.Join(list, ", ")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return shells[args[0]](cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// completeProfiles offers the profiles of a configuration. fileOf returns the path of its file from
// a flag or an argument; "": the default file.
func completeProfiles(fileOf func(args []string) string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeWords(func(context.Context) ([]string, error) { return profilesOf(fileOf(args)) })
	}
}

func profilesOf(file string) ([]string, error) {
	conf, _, err := config.LoadFlag(file)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(conf.Profiles)), nil
}

// completeNoFiles turns off file names for flags and arguments that have no completion and cannot
// be files. Otherwise the shell would offer the files of the directory.
func completeNoFiles(c *cobra.Command) {
	if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 && c.Args != nil && c.Args(c, []string{"x"}) != nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, has := c.GetFlagCompletionFunc(f.Name); has {
			return
		}
		what, _ := pflag.UnquoteUsage(f)
		complete := cobra.NoFileCompletions
		switch what {
		case "file", "path", "pattern", "glob", "SPEC":
			return
		case "directory":
			complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		}
		completeFlag(c, f.Name, complete)
	})
	for _, sub := range c.Commands() {
		completeNoFiles(sub)
	}
}

// completeTimeout bounds how long completeWords looks for words, because the user waits after Tab.
const completeTimeout = time.Second

// completeSessions offers a word for each live session, with its meaning.
func completeSessions(offer func(control.Info) (word, what string)) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
		all, _ := control.List() // none if they cannot be listed
		for _, in := range all {
			word, what := offer(in)
			out = append(out, cobra.CompletionWithDesc(word, names.Escape(what)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRoots offers the session's roots for the first limit arguments (for all if limit is
// negative), and nextWords for the arguments after them.
func (a *app) completeRoots(limit int, nextWords ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit >= 0 && len(args) >= limit {
			return nextWords, cobra.ShellCompDirectiveNoFileComp
		}
		return offer(a, control.GetStatus, func(st control.Status) (out []string, err error) {
			for _, r := range st.Roots {
				out = append(out, cobra.CompletionWithDesc(r.Name.Raw(), r.Mode+" "+names.Escape(r.Resolved)))
			}
			return out, nil
		})
	}
}

// completeWords offers the words that f finds within completeTimeout. If f fails, it offers
// nothing: an error would disturb the user's typing. It never offers file names.
func completeWords(f func(context.Context) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	out, err := f(ctx)
	if err != nil {
		out = nil
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// offer offers the words that pick takes from the session's answer to a request.
func offer[Out any](a *app, v control.Verb[control.None, Out], pick func(Out) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	return completeWords(func(ctx context.Context) ([]string, error) {
		c, err := a.client()
		if err != nil {
			return nil, err
		}
		out, err := v.Call(ctx, c, control.None{})
		if err != nil {
			return nil, err
		}
		return pick(out)
	})
}
