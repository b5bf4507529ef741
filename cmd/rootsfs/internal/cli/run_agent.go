package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/project"
	"github.com/rootsfs/rootsfs/guard/names"
)

// forValue is --for of `run`: a duration, after which the roots are revoked, or an agent, whose
// preset is used. The flag may be given twice: once with a duration and once with an agent.
type forValue struct{ F *runFlags }

// String implements pflag.Value.
func (v forValue) String() string {
	if v.F == nil || v.F.ForTime == 0 && v.F.Agent == "" {
		return ""
	}
	return cmp.Or(v.F.Agent, v.F.ForTime.String())
}

// Type implements pflag.Value.
func (v forValue) Type() string { return "string" }

// Set implements pflag.Value.
func (v forValue) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil {
		if v.F.ForTime = d; d <= 0 {
			return fmt.Errorf("%s: write a positive duration, such as 30m", text)
		}
		return nil
	}
	for _, one := range agents.All() {
		if text == one.Name || text == one.Command { // such as claude
			v.F.Agent, v.F.ForAgent = one.Name, true
			return nil
		}
	}
	return fmt.Errorf("%s: write a duration, such as 30m, or an agent: %s", names.Quote(text), strings.Join(agents.Names(), ", "))
}

// agentCompletion offers the agents for --for.
func agentCompletion(cmd *cobra.Command) {
	completeFlag(cmd, "for", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, one := range agents.All() {
			out = append(out, cobra.CompletionWithDesc(one.Name, one.Title))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// agentCommand returns the agent's command if the command line names an agent and no command.
func (f *runFlags) agentCommand(args []string) []string {
	if one, ok := agents.Find(f.Agent); ok && len(args) == 0 {
		return []string{one.Command}
	}
	return args
}

// preset sets flags from the agent's preset, which the configuration may change. Flags of the
// command line overrule the preset, but --env, --hide, --protect and the hosts of --net add to it.
func (f *runFlags) preset(cmd *cobra.Command) error {
	one, ok := agents.Find(f.Agent)
	if !ok {
		return nil
	}
	conf, err := f.load(cmd)
	if err != nil {
		return err
	}
	own := conf.Agents[f.Agent]
	overrule(&one, own)
	if !cmd.Flags().Changed("stage") {
		f.Stage = own.Stage
	}
	if len(f.Roots) == 0 && len(f.Once) == 0 && f.Profile == "" {
		if err := f.projectRoot(one.Mode); err != nil {
			return err
		}
	}
	if err := f.presetNet(cmd, &one, own.Net); err != nil {
		return err
	}
	var env []string
	for _, v := range one.Env {
		if _, set := os.LookupEnv(v); set || strings.HasSuffix(v, "*") {
			env = append(env, v)
		}
	}
	f.env = slices.Concat(env, one.Set, f.env) // the later one counts
	f.Patterns.Hide = append(one.Hide, f.Patterns.Hide...)
	f.Patterns.Protect = append(one.Protect, f.Patterns.Protect...)
	f.homeParts = one.Home
	return nil
}

// overrule replaces parts of an agent's preset by the values of the configuration.
func overrule(one *agents.Agent, own config.Agent) {
	one.Mode = cmp.Or(own.Mode, one.Mode)
	for _, l := range []struct{ to, from *[]string }{
		{&one.Env, &own.Env}, {&one.Home, &own.HomeFiles}, {&one.Hide, &own.Hide}, {&one.Protect, &own.Protect}, {&one.Hosts, &own.Hosts},
	} {
		if *l.from != nil {
			*l.to = *l.from
		}
	}
}

// presetNet adds the hosts of the agent's preset to those of --net. It adds none if --net is given
// without hosts. whole is the key net of the configuration: without --net, it gives the agent every
// host or none, instead of the preset's hosts.
func (f *runFlags) presetNet(cmd *cobra.Command, one *agents.Agent, whole *bool) error {
	isGiven := cmd.Flags().Changed("net")
	switch {
	case isGiven && len(f.Net.Rules) == 0:
		return nil
	case !isGiven && whole != nil:
		f.Net.All, f.Net.none = *whole, !*whole
		return nil
	}
	for _, h := range one.Hosts {
		rule, err := network.ParseRule(h)
		if err != nil {
			return err // the bad host is the configuration's: tests check the presets' hosts
		}
		f.presetNets = append(f.presetNets, rule)
	}
	return f.presetBaseURLs(one)
}

// presetBaseURLs approves the addresses of a model's service that the owner's variables name, each
// by host and port. It does not approve the address of a proxy.
func (f *runFlags) presetBaseURLs(one *agents.Agent) error {
	for _, name := range one.BaseURLs() {
		u, err := url.Parse(os.Getenv(name))
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
		rule, err := network.ParseRule(net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !rule.IsOneHost() {
			return fmt.Errorf("%s: %s is not one host: the address of a model's service is; approve others with --net", name, names.Quote(u.Hostname()))
		}
		if !slices.ContainsFunc(ownProxies(), func(p ownProxy) bool { return p.host == rule }) {
			f.presetNets = append(f.presetNets, rule)
		}
	}
	return nil
}

// projectRoot makes the repository around the working directory the root, or the working
// directory itself if it is in no repository. In both cases the command starts in the working
// directory, except with --dir or --map flat.
func (f *runFlags) projectRoot(mode string) error {
	dir, err := workingDir()
	if err != nil {
		return err
	}
	top, _ := gitTop(dir)
	top = cmp.Or(top, dir)
	for _, home := range homeDirs() {
		if names.Under(home, top) {
			return usage(fmt.Errorf("the working directory is or holds a home directory, which is too much for an agent: change to a project, or name one with --root %s", names.ShellWord("PATH:"+mode)))
		}
	}
	f.Roots = []string{top + ":" + mode}
	if f.dir == "" && f.paths == "same" {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			f.dir = real
		}
	}
	return nil
}

// gitTop returns the top of the repository around dir.
func gitTop(dir string) (top string, found bool) {
	top, kind, err := project.Detect(dir)
	if err != nil || kind != "git" {
		return "", false
	}
	return top, true
}

// proposedRoot returns the SPEC of a root for a command without one: the repository around the
// working directory, or "" if there is none. written is the SPEC as a person would write it.
func proposedRoot() (spec, written string) {
	dir, err := workingDir()
	if err != nil {
		return "", ""
	}
	top, found := gitTop(dir)
	if !found {
		return "", ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil && real == top {
		return top + ":rw", ".:rw"
	}
	return top + ":rw", top + ":rw"
}

// askRepository is for a command without a root. It asks on the terminal whether the command may
// read and write the repository in which the command is started, and reports whether the repository
// has become a root. It does not ask outside of a repository, with --learn or --unconfined, or if
// standard input is no terminal.
func (f *runFlags) askRepository() (granted bool) {
	spec, _ := proposedRoot()
	if spec == "" || f.learn || f.unconfined || !isTerminal(os.Stdin) {
		return false
	}
	what := fmt.Sprintf("no root was named, and this is the repository %s\n", names.Quote(strings.TrimSuffix(spec, ":rw")))
	if confirm(what, "Let the command read and write it?") != nil {
		return false
	}
	return f.projectRoot("rw") == nil
}
