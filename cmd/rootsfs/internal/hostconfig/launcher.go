package hostconfig

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/rootsfs/rootsfs/guard/names"
)

// fetchers are commands that download the packages that they run.
var fetchers = []string{
	"npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "pip", "pip3",
	"nix", "nix-shell", "guix", "pkgx", "dnx", "jbang",
}

// containerTools are commands that start a server in a container. A daemon does the work.
var containerTools = []string{"docker", "podman", "nerdctl"}

// launcher is a program that starts another program, which its arguments name.
type launcher struct {
	// subcommands are the subcommands that start a program; nil: the launcher has no
	// subcommands.
	subcommands []string
	// valued are the options that take the next argument.
	valued []string
	// before is the number of arguments, apart from options, before the command. If the
	// arguments of a launcher with subcommands contain "--", the command follows it.
	before int
	// command are the options after which the command begins. If isText is set, the command is
	// one argument, for a shell.
	command []string
	isText  bool
}

// launchers are the programs that start others, by name. Shells are in shells.
var launchers = map[string]launcher{
	"env": {valued: []string{"-u", "--unset", "-C", "--chdir"}}, "nohup": {}, "setsid": {}, "command": {}, "exec": {valued: []string{"-a"}}, "time": {}, "unbuffer": {},
	"nice": {valued: []string{"-n"}}, "ionice": {valued: []string{"-c", "-n"}}, "stdbuf": {valued: []string{"-i", "-o", "-e"}},
	"timeout": {valued: []string{"-s", "--signal", "-k", "--kill-after"}, before: 1}, "xvfb-run": {valued: []string{"-n", "-s", "-e", "-f"}},
	"sudo": {valued: []string{"-u", "-g", "-C", "-D", "-h", "-p"}}, "doas": {valued: []string{"-u", "-C"}}, "runuser": {valued: []string{"-u", "-g"}}, "setpriv": {valued: []string{"--reuid", "--regid"}},
	"mise": {subcommands: []string{"exec", "x"}, valued: []string{"-C", "--cd", "-E", "--env", "-j", "--jobs"}}, "rtx": {subcommands: []string{"exec", "x"}},
	"fnm": {subcommands: []string{"exec"}, valued: []string{"--using", "--fnm-dir", "--log-level", "--node-dist-mirror"}}, "nvm": {subcommands: []string{"exec"}, before: 1}, "n": {subcommands: []string{"exec"}, before: 1},
	"volta": {subcommands: []string{"run"}, valued: []string{"--node", "--npm", "--pnpm", "--yarn", "--env"}},
	"asdf":  {subcommands: []string{"exec"}}, "proto": {subcommands: []string{"run", "exec"}}, "corepack": {},
	"pyenv": {subcommands: []string{"exec"}}, "rbenv": {subcommands: []string{"exec"}}, "nodenv": {subcommands: []string{"exec"}}, "goenv": {subcommands: []string{"exec"}}, "jenv": {subcommands: []string{"exec"}},
	"direnv": {subcommands: []string{"exec"}, before: 1}, "dotenv": {valued: []string{"-e", "-f", "-v", "-p"}}, "dotenvx": {subcommands: []string{"run"}, valued: []string{"-f", "-e"}},
	"op": {subcommands: []string{"run"}, valued: []string{"--env-file", "--account"}}, "doppler": {subcommands: []string{"run"}, valued: []string{"-p", "-c", "--project", "--config"}},
	"infisical": {subcommands: []string{"run"}, valued: []string{"--env", "--projectId", "--path"}}, "aws-vault": {subcommands: []string{"exec"}, before: 1}, "chamber": {subcommands: []string{"exec"}},
	"conda": {subcommands: []string{"run"}, valued: []string{"-n", "--name", "-p", "--prefix", "--cwd"}}, "mamba": {subcommands: []string{"run"}, valued: []string{"-n", "-p"}}, "micromamba": {subcommands: []string{"run"}, valued: []string{"-n", "-p"}},
	"poetry": {subcommands: []string{"run"}, valued: []string{"-C", "--directory", "-P"}}, "pipenv": {subcommands: []string{"run"}}, "pdm": {subcommands: []string{"run"}, valued: []string{"-p"}}, "hatch": {subcommands: []string{"run"}, valued: []string{"-e"}}, "rye": {subcommands: []string{"run"}},
	"pixi": {subcommands: []string{"run", "exec"}, valued: []string{"-e", "--manifest-path"}}, "bundle": {subcommands: []string{"exec"}}, "devbox": {subcommands: []string{"run"}, valued: []string{"-c", "--config"}}, "flox": {subcommands: []string{"activate"}, valued: []string{"-d", "-r"}},
	"cmd": {command: []string{"/c", "/C"}}, "cmd.exe": {command: []string{"/c", "/C"}}, "su": {command: []string{"-c", "--command"}, isText: true},
}

// versionManagers are launchers that keep their programs in HOME. A confined server has a private HOME.
var versionManagers = []string{"mise", "rtx", "fnm", "nvm", "volta", "asdf", "proto", "pyenv", "rbenv", "nodenv", "goenv", "jenv"}

var shells = []string{"sh", "bash", "zsh", "dash", "ash", "ksh", "fish"}

// maxLaunchers is how many nested launchers are followed.
const maxLaunchers = 8

// FetcherOf returns the fetcher that a command starts, directly or through shells and other
// launchers; "": none. words are the command and its arguments. A fetcher needs the network.
func FetcherOf(words []string) string {
	for _, last := range finalCommands(words, maxLaunchers) {
		if i := slices.Index(fetchers, filepath.Base(last[0])); i >= 0 {
			return fetchers[i]
		}
	}
	return ""
}

// words returns the server's command with its arguments.
func (s *Server) words() []string {
	return names.List[string](slices.Insert(slices.Clone(s.Args), 0, s.Command))
}

// finalCommands returns the commands that run in the end when the command in words starts. A shell or
// launcher is replaced by the commands that its arguments name, if there are any, and so on. depth
// bounds the number of nested launchers that are followed.
func finalCommands(words []string, depth int) (commands [][]string) {
	if len(words) == 0 {
		return nil
	}
	name := filepath.Base(words[0])
	one, known := launchers[name]
	switch {
	case depth == 0 || !known && !slices.Contains(shells, name):
		return [][]string{words}
	case !known:
		text, ok := shellText(words[1:])
		if !ok {
			return [][]string{words}
		}
		for _, command := range shellCommands(text) {
			commands = append(commands, finalCommands(command, depth-1)...)
		}
		return commands
	}
	inner := one.inner(words[1:])
	if len(inner) > 0 && name == "corepack" && !slices.Contains(fetchers, filepath.Base(inner[0])) {
		inner = nil
	}
	if len(inner) == 0 {
		return [][]string{words}
	}
	return finalCommands(inner, depth-1)
}

// inner returns the command in the arguments of a launcher; nil: there is none.
func (l *launcher) inner(args []string) []string {
	if l.subcommands != nil {
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args = args[1:]
		}
		if len(args) == 0 || !slices.Contains(l.subcommands, args[0]) {
			return nil
		}
		args = args[1:]
		if i := slices.Index(args, "--"); i >= 0 {
			return args[i+1:]
		}
	}
	before, optionSeen := l.before, len(l.command) == 0
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case slices.Contains(l.command, arg):
			if optionSeen = true; l.isText {
				return append([]string{"sh", "-c"}, args[i+1:]...)
			}
		case arg == "-S" || arg == "--split-string": // options of env
			return append(shellWords(strings.Join(args[i+1:min(i+2, len(args))], " ")), args[min(i+2, len(args)):]...)
		case strings.HasPrefix(arg, "--split-string="):
			return append(shellWords(arg[len("--split-string="):]), args[i+1:]...)
		case slices.Contains(l.valued, arg):
			i++
		case strings.HasPrefix(arg, "-") || !optionSeen || isAssignment(arg):
		case l.subcommands != nil && strings.Contains(arg, "@") && i+1 < len(args): // a version of a tool
		case before > 0:
			before--
		default:
			return args[i:]
		}
	}
	return nil
}

// isAssignment reports whether a word sets a variable.
func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// shellText returns the text that a shell runs with -c.
func shellText(args []string) (string, bool) {
	for i, arg := range args {
		switch {
		case arg == "--command" || strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, "c"):
			for _, text := range args[i+1:] {
				if !strings.HasPrefix(text, "-") {
					return text, true
				}
			}
			return "", false
		case !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "+"):
			return "", false // a script
		}
	}
	return "", false
}

// shellCommands returns the simple commands of a shell's text, without the assignments and
// keywords in front of them.
func shellCommands(text string) (commands [][]string) {
	var words []string
	end := func() {
		for len(words) > 0 && (isAssignment(words[0]) || slices.Contains([]string{"then", "do", "else", "if", "while", "until", "!", "{", "("}, words[0])) {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for _, w := range shellWords(text) {
		if w == commandEnd {
			end()
		} else {
			words = append(words, w)
		}
	}
	end()
	return commands
}

// commandEnd is a word in the result of shellWords that ends a command. No argument can contain
// it.
const commandEnd = "\x00"

// shellWords splits a shell's text into words, without expanding anything.
func shellWords(text string) (words []string) {
	var word strings.Builder
	isWord, quote := false, rune(0)
	end := func() {
		if isWord {
			words = append(words, word.String())
		}
		word.Reset()
		isWord = false
	}
	isEscaped := false
	for _, r := range text {
		switch {
		case isEscaped:
			word.WriteRune(r)
			isEscaped = false
		case r == '\\' && quote != '\'':
			isEscaped, isWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, isWord = r, true
		case strings.ContainsRune(";&|\n()`", r):
			end()
			words = append(words, commandEnd)
		case unicode.IsSpace(r):
			end()
		default:
			word.WriteRune(r)
			isWord = true
		}
	}
	end()
	return words
}

// mentionedFetcher returns a fetcher whose name is a word of the arguments; "": none. The words uv and
// nix do not count.
func mentionedFetcher(args []string) string {
	for _, arg := range args {
		for _, word := range strings.FieldsFunc(arg, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`;&|()"'=,`, r) }) {
			if i := slices.Index(fetchers, filepath.Base(word)); i >= 0 && word != "uv" && word != "nix" {
				return fetchers[i]
			}
		}
	}
	return ""
}
