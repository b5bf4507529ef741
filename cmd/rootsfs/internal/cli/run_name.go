package cli

import (
	"path/filepath"
	"slices"
	"strings"
)

// launchers are programs that run another program or package. The session gets the name of that
// program or package. If the value is true, the first argument that is no option has the name. If
// the value is false, the launcher has subcommands, and only some of them (runners) run a program.
var launchers = map[string]bool{
	"npx": true, "bunx": true, "uvx": true, "python": true, "python3": true, "node": true, "sh": true, "bash": true, "env": true,
	"npm": false, "yarn": false, "pnpm": false, "pipx": false, "deno": false, "bun": false, "uv": false,
}

// runners are the subcommands that run the program or package named by the next argument. Other
// subcommands, such as "npm install", do not.
var runners = []string{"exec", "run", "dlx", "x"}

// commandName returns the name for the session of a command: for a launcher the name of the program
// or package that it runs, otherwise the name of the program in args[0].
func commandName(args []string) string {
	name, _ := nameAndWord(args)
	return name
}

// nameAndWord is commandName, and also returns the word from which the name is made.
func nameAndWord(args []string) (name, word string) {
	base := filepath.Base(args[0])
	running, known := launchers[base]
	if !known {
		return base, args[0]
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
			return base, args[0]
		}
		word = arg
		if name, _, ok := strings.Cut(strings.TrimPrefix(arg, "@"), "@"); ok {
			arg = name // without the version
		}
		return strings.TrimSuffix(filepath.Base(arg), filepath.Ext(filepath.Base(arg))), word
	}
	return base, args[0]
}
