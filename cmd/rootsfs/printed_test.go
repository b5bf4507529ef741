package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
)

const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// pastedWords are arguments that a printed command may have to carry: every pair of ASCII
// punctuation and a letter, and what has more than one meaning for a shell.
func pastedWords() []string {
	list := []string{
		punctuation, "a$(id>PWNED)1", "a`id>PWNED`", "';id>PWNED;'", `\';id>PWNED;\'`, "a\nid>PWNED\nb", "!!", "a!b", "!-1:p", "'!!'", `'\''!!`,
		"=ls", "~root", "a b", "a  b", " ", "müller", "日本", "a\u202e\x1b]0;x\ab", "a\xff", `\`, `\\`, `\n`, "{a,b}", "**", "$HOME", "%self", "#x", "-n", "a\u2800%s",
	}
	for _, a := range punctuation {
		list = append(list, string(a), "x"+string(a), string(a)+"x", string(a)+string(a))
	}
	for _, a := range `!"$'\` + "`" {
		for _, b := range punctuation {
			list = append(list, "x"+string(a)+string(b)+"y")
		}
	}
	return list
}

// A command that is printed can be pasted into sh, bash, zsh and fish, at their prompts
// and in scripts: the program gets the words that were meant, and nothing else runs.
func TestPastedCommandsAreTheirWords(t *testing.T) {
	dir := t.TempDir()
	argv := filepath.Join(dir, "argv")
	stub := "#!/bin/sh\nfor a; do printf '%s\\0' \"$a\"; done >>\"" + argv + "\"\n"
	if err := os.WriteFile(filepath.Join(dir, "rootsfs"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=xterm", "HISTFILE=", "LC_ALL=C.UTF-8", "PS1=> ")
	list := pastedWords()
	var want, script strings.Builder
	for i := 0; i < len(list); i += 8 {
		line := "rootsfs roots renew"
		want.WriteString("roots\x00renew\x00")
		for _, word := range list[i:min(i+8, len(list))] {
			line += " " + names.ShellWord(word)
			want.WriteString(word + "\x00")
		}
		script.WriteString(line + "\n")
	}
	check := func(t *testing.T, seen string) {
		got, err := os.ReadFile(argv)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want.String() {
			g, w := strings.Split(string(got), "\x00"), strings.Split(want.String(), "\x00")
			for i := range min(len(g), len(w)) {
				if g[i] != w[i] {
					t.Fatalf("word %d of %d (want %d) is %q, want %q\n%s", i, len(g), len(w), g[i], w[i], seen)
				}
			}
			t.Fatalf("%d words, want %d", len(g), len(w))
		}
		_ = os.Remove(argv)
		if left, _ := os.ReadDir(work); len(left) > 0 {
			t.Errorf("something else ran and left %v", left)
		}
	}
	for _, sh := range []struct{ name, start, bind string }{
		{"sh", "sh", ""}, {"bash", "bash --norc --noprofile", "PS1='> '"}, {"zsh", "zsh -f", "PS1='> '"}, {"fish", "fish --no-config", "function fish_prompt; end"},
	} {
		t.Run(sh.name, func(t *testing.T) {
			start := strings.Fields(sh.start)
			if _, err := exec.LookPath(start[0]); err != nil && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			cmd := exec.Command(start[0], append(start[1:], "-c", script.String())...)
			cmd.Dir, cmd.Env = work, env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			check(t, "in a script")

			p := startPty(t, work, env, append(start, "-i"))
			p.send(sh.bind + "\r")
			for i, line := range strings.Split(strings.TrimSpace(script.String()), "\n") {
				p.send(line + "\r")
				p.send(fmt.Sprintf("echo D\"\"ONE%d.\r", i))
				p.await(fmt.Sprintf("DONE%d.", i))
			}
			check(t, p.seen.String())
		})
	}
}
