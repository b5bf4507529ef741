package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

func readme(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The README has at most 200 lines, its first screen has the main features of rootsfs, its links
// lead to existing files, and it names only existing commands.
func TestReadme(t *testing.T) {
	text := readme(t)
	lines := strings.Split(text, "\n")
	if len(lines) > 200 {
		t.Errorf("%d lines", len(lines))
	}
	first := strings.Join(lines[:min(50, len(lines))], "\n")
	for _, want := range []string{"Landlock", "`.git/hooks`", "`.env`", "rootsfs revoke", "$ rootsfs mount"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first screen lacks %s", want)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil && !strings.HasPrefix(m[1], "https:") {
			t.Error(err)
		}
	}
	seen := 0
	for _, m := range regexp.MustCompile("`(?:npx -y )?rootsfs ([a-z][^`]*)`").FindAllStringSubmatch(text, -1) {
		if args := strings.Fields(m[1]); args[0] != "help" {
			seen++
			if c, _, err := tree().Find(args); err != nil || !c.HasParent() {
				t.Errorf("no such command: rootsfs %s", m[1])
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d commands are named", seen)
	}
}

// R092: every command of the README prints the text that is shown below it. Numbers differ each
// time, so a shown number matches any number.
func TestReadmeCommands(t *testing.T) {
	p := scripts(t)
	p.Cmds["readme"] = func(ts *testscript.TestScript, _ bool, _ []string) { runReadme(ts, readme(t)) }
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "readme.txtar"), []byte(readmeLab), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Dir = dir
	testscript.Run(t, p)
}

// readmeLab is a script that sets up the home directory of someone who reads the README, and then
// runs the README's commands.
const readmeLab = `
env XDG_CONFIG_HOME=$WORK/home/.config
env HOME=$WORK/home
env LC_ALL=C
mkdir $HOME/code $HOME/out $HOME/agent $HOME/.config/Claude
exec git init -q $HOME/code
cp evil.sh $HOME/code/.env
cp evil.sh $HOME/evil.sh
mkdir $HOME/.local/bin $HOME/.local/share/claude/versions
cp claude $HOME/.local/share/claude/versions/2.1.0
chmod 755 $HOME/.local/share/claude/versions/2.1.0
symlink $HOME/.local/bin/claude -> $HOME/.local/share/claude/versions/2.1.0
env PATH=$HOME/.local/bin:$PATH
exec sed -i s,/home/me,$HOME, claude.json
cp claude.json $HOME/.config/Claude/claude_desktop_config.json
cd $HOME
readme
-- claude --
#!/bin/sh
echo an agent
-- evil.sh --
echo evil
-- claude.json --
{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/code"]}}}
`

// runReadme runs each command of the README's console blocks, in order and in one directory,
// and compares the output with the shown text.
func runReadme(ts *testscript.TestScript, text string) {
	home := ts.Getenv("HOME")
	commands := 0
	for _, m := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		dir := "cd; "
		for _, part := range strings.Split("\n"+m[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			if strings.HasPrefix(command, "cd ") {
				dir = command + "; "
				continue
			}
			commands++
			refused := regexp.MustCompile("denied|No such file|: refused:").MatchString(want)
			err := ts.Exec("sh", "-c", dir+command+" 2>&1 </dev/null")
			got := strings.ReplaceAll(ts.ReadFile("stdout"), home, "/home/me")
			if (err != nil) != refused {
				ts.Fatalf("$ %s\n%s%v", command, got, err)
			}
			if want = strings.TrimSpace(want); want != "" && anyNumber(want) != anyNumber(strings.TrimSpace(got)) {
				ts.Fatalf("$ %s\nshown:\n%s\nprinted:\n%s", command, want, got)
			}
		}
	}
	if commands < 12 {
		ts.Fatalf("only %d commands were found", commands)
	}
}

// anyNumber replaces each number in a text by N.
func anyNumber(text string) string {
	return regexp.MustCompile(`[0-9]+(\.[0-9]+)?`).ReplaceAllString(text, "N")
}

// The documents name the same oldest kernels as the code.
func TestDocumentsNameTheOldestKernels(t *testing.T) {
	for file, says := range map[string][]string{
		"../../README.md": {
			"Linux " + sandbox.LeastKernel + " or newer, amd64 and arm64, with FUSE.",
			"`rootsfs run` needs Linux " + sandbox.NamespacesKernel + " or newer, or bubblewrap.",
		},
		"help/confinement.md": {
			"| `namespaces` | Linux " + sandbox.NamespacesKernel + " or newer,",
			"| `landlock` | Linux " + sandbox.LandlockKernel + " or newer,",
		},
		"help/troubleshooting.md":           {"older than Linux " + sandbox.NamespacesKernel + " "},
		"../../vfs/internal/beneath/doc.go": {"Linux only, " + sandbox.LeastKernel + " or newer"},
		"../../mount/sandbox/doc.go":        {"Works on Linux " + sandbox.LeastKernel + " and newer, on amd64 and arm64; level Namespaces on " + sandbox.NamespacesKernel + ", and Landlock on // " + sandbox.LandlockKernel},
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(b)), " ")
		for _, want := range says {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", file, want)
			}
		}
	}
}
