package runcmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard/names"
)

// runArgs checks the words of `rootsfs run`, of which the first that is no flag begins
// the command. Without -- between, what was meant for us would silently be the
// command's: a server would be started without its root.
func runArgs(c *cobra.Command, args []string) error {
	if err := cli.ArgCount(1, -1, "the command")(c, args); err != nil || c.ArgsLenAtDash() >= 0 {
		return err
	}
	in, err := os.Stat(args[0])
	dir := err == nil && in.IsDir()
	if slices.Contains(args, "--") { // the command's own, or ours in the wrong place
		if net, ok := c.Flags().Lookup("net").Value.(*NetValue); ok && net.All && !dir {
			if _, err := network.ParseRules(args[0]); err == nil && strings.ContainsAny(args[0], ".:") {
				return cli.Usage(fmt.Errorf("%s is not a command. To approve hosts, write them behind an equals sign: --net=%s", names.Quote(args[0]), names.ShellWord(args[0])))
			}
		}
		if _, err := exec.LookPath(args[0]); dir || err != nil && !strings.Contains(args[0], "/") {
			return cli.Usage(fmt.Errorf("%s is not a command. To approve a root, write --root %s", names.Quote(args[0]), names.ShellWord(args[0])))
		}
		return nil
	}
	if c.Flags().Changed("root") {
		return nil
	}
	if dir {
		return cli.Usage(fmt.Errorf("%s is a directory, not a command. To approve it as a root, write --root %s, then -- and the command", names.Quote(args[0]), names.ShellWord(args[0])))
	}
	for _, arg := range args[1:] {
		if arg == "--root" || strings.HasPrefix(arg, "--root=") {
			return cli.Usage(fmt.Errorf("--root is written behind the command. Write rootsfs run --root PATH -- %s; if --root is the command's own, write -- before the command", names.ShellWord(args[0])))
		}
	}
	return nil
}

// unsetEnv tells of variables that --env names and that are not set here: the command
// does without, and says nothing of why it does not work.
func (a *app) unsetEnv(list []string) {
	for _, name := range list {
		if _, set := os.LookupEnv(name); !set && !strings.ContainsAny(name, "=*") {
			a.Warn("--env %s: not set here, so the command does not get it", names.Escape(name))
		}
	}
}

// launchers are the programs whose sessions are called after what they run: with true,
// their first argument is that; the others have subcommands (runners).
var launchers = map[string]bool{
	"npx": true, "bunx": true, "uvx": true, "python": true, "python3": true, "node": true, "sh": true, "bash": true, "env": true,
	"npm": false, "yarn": false, "pnpm": false, "pipx": false, "deno": false, "bun": false, "uv": false,
}

// runners are the subcommands that run what the next argument names. Others, such as
// "npm install", are the program's own work.
var runners = []string{"exec", "run", "dlx", "x"}

// commandName is what to call the session of a command: a package's name for
// those that run packages, otherwise the program's.
func commandName(args []string) string {
	base := filepath.Base(args[0])
	running, known := launchers[base]
	if !known {
		return base
	}
	for _, arg := range args[1:] {
		switch {
		case strings.HasPrefix(arg, "-"), arg == "tool" && base == "uv", strings.ContainsAny(arg, " \n;"):
			continue
		case !running && slices.Contains(runners, arg):
			running = true
			continue
		case !running && (base == "bun" || base == "deno") && strings.Contains(arg, "."):
			// A script, without "run".
		case !running:
			return base
		}
		if name, _, ok := strings.Cut(strings.TrimPrefix(arg, "@"), "@"); ok {
			arg = name // a version
		}
		return strings.TrimSuffix(filepath.Base(arg), filepath.Ext(filepath.Base(arg)))
	}
	return base
}
