package runcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/project"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ForValue is --for of `run`: a duration, after which the roots are revoked, or the
// agent whose preset is taken. It may be given once for each.
type ForValue struct{ F *Flags }

// String implements pflag.Value.
func (v ForValue) String() string {
	if v.F == nil || v.F.ForTime == 0 && v.F.Agent == "" {
		return ""
	}
	return cmp.Or(v.F.Agent, v.F.ForTime.String())
}

// Type implements pflag.Value.
func (v ForValue) Type() string { return "string" }

// Set implements pflag.Value.
func (v ForValue) Set(text string) error {
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
	cli.CompleteFlag(cmd, "for", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, one := range agents.All() {
			out = append(out, cobra.CompletionWithDesc(one.Name, one.Title))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}) // fails only for an unknown flag
}

// KeptHome is the directory that a HOME is kept in: of agents, or of servers.
func KeptHome(of, name string) (string, error) {
	dir, err := config.XDG("XDG_DATA_HOME", ".local/share", "rootsfs", of, name)
	if err != nil {
		return "", errors.New("HOME is not set: say where another one is kept, with --home DIRECTORY")
	}
	return dir, nil
}

// agentCommand is the command of a command line that names an agent and no command.
func (f *Flags) agentCommand(args []string) []string {
	if one, ok := agents.Find(f.Agent); ok && len(args) == 0 {
		return []string{one.Command}
	}
	return args
}

// preset puts what the agent needs in the place of flags that were not given.
func (f *Flags) preset(cmd *cobra.Command) error {
	one, ok := agents.Find(f.Agent)
	if !ok {
		return nil
	}
	conf, err := f.Load(cmd)
	if err != nil {
		return err
	}
	own := conf.Agents[f.Agent]
	overrule(&one, own)
	if len(f.Roots) == 0 && len(f.Once) == 0 && f.Profile == "" {
		if err := f.projectRoot(one.Mode); err != nil {
			return err
		}
	}
	if !cmd.Flags().Changed("home") {
		if f.home = own.HomeDir; f.home == "" {
			if f.home, err = KeptHome("agents", f.Agent); err != nil {
				return err
			}
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

// overrule puts what the configuration says of an agent in the place of its preset.
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

// presetNet gives the agent the hosts that it connects to. Hosts of --net are added to them;
// its other values, and net of the configuration, which is whole, take their place.
func (f *Flags) presetNet(cmd *cobra.Command, one *agents.Agent, whole *bool) error {
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
			return err // a host of the configuration: those of the presets are tested
		}
		f.presetNets = append(f.presetNets, rule)
	}
	// A model's address that the owner has set, such as OPENAI_BASE_URL.
	for _, name := range one.Env {
		u, err := url.Parse(os.Getenv(name))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		rule, err := network.ParseRule(u.Host)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.presetNets = append(f.presetNets, rule)
	}
	return nil
}

// projectRoot makes the repository around the working directory the root, or, if it is in
// none, the working directory, where the command works in either case.
func (f *Flags) projectRoot(mode string) error {
	dir, err := cli.WorkingDir()
	if err != nil {
		return err
	}
	top, _ := gitTop(dir)
	top = cmp.Or(top, dir)
	for _, home := range cli.HomeDirs() {
		if names.Under(home, top) {
			return cli.Usage(fmt.Errorf("the working directory is or holds a home directory, which is too much for an agent: change to a project, or name one with --root %s", names.ShellWord("PATH:"+mode)))
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

// gitTop is the top of the repository around dir.
func gitTop(dir string) (top string, found bool) {
	top, kind, err := project.Detect(dir)
	if err != nil || kind != "git" {
		return "", false
	}
	return top, true
}

// proposedRoot is the SPEC of a root for a command without one: the repository around the
// working directory, "" if that is in none. shown is how a person writes it.
func proposedRoot() (spec, written string) {
	dir, err := cli.WorkingDir()
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

// askRepository asks on the terminal whether a command that has no root gets the
// repository that it is started in.
func (f *Flags) askRepository() (granted bool) {
	spec, _ := proposedRoot()
	if spec == "" || f.learn || f.unconfined || !cli.IsTerminal(os.Stdin) {
		return false
	}
	what := fmt.Sprintf("no root was named, and this is the repository %s\n", names.Quote(strings.TrimSuffix(spec, ":rw")))
	if cli.Confirm(what, "Let the command read and write it?") != nil {
		return false
	}
	return f.projectRoot("rw") == nil
}

// bringHome copies files of the owner's HOME into a kept one that lacks them. The command
// can have made links there: os.Root follows none that leads out.
func bringHome(home string, files []string, uid, gid uint32) error {
	if len(files) == 0 {
		return nil
	}
	in, err := os.OpenRoot(home)
	if err != nil {
		return fmt.Errorf("--home: %w", err)
	}
	defer in.Close()
	for _, file := range files {
		from, err := ownerFile(file)
		if err != nil {
			return err
		}
		text, ok := readGitFile(from)
		if !ok {
			continue
		}
		if err := bringFile(in, file, text, int(uid), int(gid)); err != nil {
			return fmt.Errorf("copy %s into the agent's HOME: %w", names.Quote(from), err)
		}
	}
	return nil
}

// ownerFile is where a file lies that the owner has in his HOME.
func ownerFile(file string) (string, error) {
	if rest, ok := strings.CutPrefix(file, ".config/"); ok {
		return config.XDG("XDG_CONFIG_HOME", ".config", rest)
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, file), err
}

func bringFile(in *os.Root, file, text string, uid, gid int) error {
	for i := range len(file) {
		if file[i] != '/' {
			continue
		}
		switch err := in.Mkdir(file[:i], 0o700); {
		case err == nil:
			if err := in.Lchown(file[:i], uid, gid); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
	f, err := in.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // it is the agent's own by now
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chown(uid, gid), f.Close())
}
